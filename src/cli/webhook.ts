/** plantstore webhook: who is told of changes, in the store or through a running service. */

import type { Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { type Attempt, hasSucceeded } from "../domain/webhook.ts";
import {
  parseNewWebhook,
  type ShownSecret,
  type ShownWebhook,
  Webhooks,
} from "../webhooks/manage.ts";
import {
  askService,
  CommandError,
  type Flags,
  parseChangeNumber,
  requireFlags,
  withTarget,
} from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable } from "./terminal.ts";

export type WebhookAction = Exclude<keyof Webhooks, "get">;

/** Without a name for the actions that are about no one webhook. */
type Manage = (action: WebhookAction, name: string | undefined, body: unknown) => Promise<unknown>;

const methods: Partial<Record<WebhookAction, string>> = { list: "GET", remove: "DELETE" };
/** What the answer of a service must have. */
const members: Record<WebhookAction, string | undefined> = {
  list: "length",
  remove: undefined,
  add: "secret",
  rotate: "secret",
  test: "durationMs",
  pause: "state",
  resume: "state",
  replay: "state",
};

const managed = {
  ofService:
    (client: Client): Manage =>
    (action, name, body) => {
      const path = name === undefined ? "/webhooks" : `/webhooks/${encodeURIComponent(name)}`;
      const isWhole = action === "list" || action === "add" || action === "remove";
      const method = methods[action] ?? "POST";
      return askService(
        client,
        method,
        isWhole ? path : `${path}/${action}`,
        members[action],
        body,
      );
    },
  ofStore: (store: Store, config: Config): Manage => {
    const webhooks = new Webhooks(store, config);
    return (action, name, body) =>
      action === "add" ? webhooks.add(body) : webhooks[action](name ?? "", body);
  },
};

/** `target` is the URL of a new webhook, or the name of one there is. */
export const manageWebhook =
  (action: WebhookAction) =>
  async (config: Config, flags: Flags, target?: string): Promise<void> => {
    const bodies: Partial<Record<WebhookAction, () => unknown>> = {
      add: () => parseAdded(flags, target),
      replay: () => ({ from: parseFrom(flags.from) }),
    };
    const name = action === "add" ? undefined : target;
    const body = bodies[action]?.();
    const result = await withTarget(config, flags, managed, (manage) => manage(action, name, body));
    if (action === "add" || action === "rotate")
      return printNewSecret(result as ShownSecret, flags);
    if (action === "test") {
      if (flags.json) printJson(result);
      else await printLine(describeAttempt(result as Attempt));
      if (hasSucceeded(result as Attempt)) return;
      throw new CommandError(`${name} did not take the event.`);
    }
    if (flags.json) return printJson(result ?? null);
    if (action === "list") return printWebhooks(result as ShownWebhook[]);
    if (action === "remove") return printLine(`Removed ${name}.`);
    const { state, lastChange } = result as ShownWebhook;
    await printLine(`${name} is ${state}, after change ${lastChange}.`);
  };

function parseAdded({ name, types }: Flags, url: string | undefined): object {
  const given = {
    url,
    name: name ?? null,
    types: types?.split(",").map((type) => type.trim()) ?? null,
  };
  requireFlags(() => parseNewWebhook(given), types);
  return given;
}

function printWebhooks(webhooks: readonly ShownWebhook[]): void {
  if (webhooks.length === 0)
    return void process.stdout.write("No webhooks yet. Add one: plantstore webhook add <url>\n");
  printTable(
    ["NAME", "URL", "TYPES", "STATE", "LAST CHANGE", "FAILURES", "LAST ATTEMPT"],
    webhooks.map(({ name, url, types, state, lastChange, failures, attempts: [last] }) => [
      name,
      url,
      types.join(","),
      state,
      String(lastChange),
      String(failures),
      last === undefined ? "never" : describeAttempt(last),
    ]),
  );
  for (const { name, reason } of webhooks)
    if (reason !== null) process.stdout.write(`\n${name} is paused: ${reason}\n`);
}

const printNewSecret = (webhook: ShownSecret, { json }: Flags): Promise<void> =>
  printSecret(
    json ? JSON.stringify(webhook) : webhook.secret,
    (reason) =>
      `The secret of ${webhook.name} could not be written to standard output. ${reason} Get another: plantstore webhook rotate ${webhook.name}`,
  );

/** In quotes, because an answer may hold what a terminal takes for a command. */
const describeAttempt = ({ time, durationMs, status, error, answer }: Attempt): string =>
  `${time} ${status ?? error} in ${durationMs} ms${answer ? ` ${JSON.stringify(answer)}` : ""}`;

const parseFrom = (text = ""): number | "newest" =>
  text === "newest"
    ? text
    : parseChangeNumber("--from", text, "the number of a change, 0 for the oldest, or newest");
