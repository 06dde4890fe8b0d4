/** plantstore webhook: who is told of changes, in the store or through a running service. */

import type { Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { type Attempt, hasSucceeded } from "../domain/webhook.ts";
import { type ShownSecret, type ShownWebhook, Webhooks } from "../webhooks/manage.ts";
import {
  askService,
  CommandError,
  parseChangeNumber,
  type TargetOptions,
  withTarget,
} from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printTable } from "./terminal.ts";

interface WebhookOptions extends TargetOptions {
  readonly json?: boolean;
  readonly name?: string;
  readonly types?: string;
  readonly from?: string;
}

type Managed = Omit<Webhooks, "get">;

/** The same through a service. */
function manageRemotely(client: Client): Managed {
  const ask = (method: string, path: string, body?: unknown): Promise<never> =>
    askService(client, method, `/webhooks${path}`, body);
  const act =
    (action: string) =>
    (name: string, body?: unknown): Promise<never> =>
      ask("POST", `/${encodeURIComponent(name)}/${action}`, body);
  return {
    list: () => ask("GET", ""),
    add: (given) => ask("POST", "", given),
    remove: (name) => ask("DELETE", `/${encodeURIComponent(name)}`),
    test: act("test"),
    pause: act("pause"),
    resume: act("resume"),
    replay: act("replay"),
    rotate: act("rotate"),
  };
}

const managed = {
  ofService: manageRemotely,
  ofStore: (store: Store, config: Config): Managed => new Webhooks(store, config),
};

type WebhookAction = Exclude<keyof Managed, "list" | "add">;

export async function addWebhook(
  config: Config,
  options: WebhookOptions,
  url: string,
): Promise<void> {
  const types = options.types?.split(",").map((type) => type.trim()) ?? null;
  const given = { url, name: options.name ?? null, types };
  await withTarget(config, options, managed, async (webhooks) =>
    printNewSecret(await webhooks.add(given), options),
  );
}

export async function listWebhooks(config: Config, options: WebhookOptions): Promise<void> {
  const webhooks = await withTarget(config, options, managed, (target) => target.list());
  if (options.json) return printJson(webhooks);
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

export const changeWebhook =
  (action: WebhookAction) =>
  async (config: Config, options: WebhookOptions, name: string): Promise<void> => {
    const from = action === "replay" ? { from: parseFrom(options.from) } : undefined;
    const result = await withTarget(config, options, managed, (webhooks): Promise<unknown> =>
      webhooks[action](name, from),
    );
    if (action === "rotate") return printNewSecret(result as ShownSecret, options);
    if (options.json) return printJson(result ?? null);
    if (action === "test") {
      const attempt = result as Attempt;
      process.stdout.write(`${describeAttempt(attempt)}\n`);
      if (!hasSucceeded(attempt)) throw new CommandError(`${name} did not take the event.`);
    } else if (action === "remove") process.stdout.write(`Removed ${name}.\n`);
    else {
      const { state, lastChange } = result as ShownWebhook;
      process.stdout.write(`${name} is ${state}, after change ${lastChange}.\n`);
    }
  };

const printNewSecret = (webhook: ShownSecret, { json }: WebhookOptions): Promise<void> =>
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
