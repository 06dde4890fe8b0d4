/** plantstore webhook: manages webhooks, in the store or through a running service. */

import type { Config } from "../config.ts";
import { type Attempt, hasSucceeded } from "../domain/webhook.ts";
import {
  parseNewWebhook,
  type ShownSecret,
  type ShownSkip,
  type ShownWebhook,
  webhookActions,
} from "../webhooks/manage.ts";
import { parseChangeNumber } from "./changes.ts";
import {
  askService,
  CommandError,
  type Flags,
  requireFlags,
  splitList,
  withTarget,
} from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable } from "./terminal.ts";

export type WebhookAction = keyof typeof webhookActions;

/** The other actions are POST, with the action in the path. */
const methods: Readonly<Record<string, string>> = {
  list: "GET",
  show: "GET",
  add: "POST",
  remove: "DELETE",
};

/** `target` is the URL of a new webhook, or the name of an existing one. */
export const manageWebhook =
  (action: WebhookAction) =>
  async (config: Config, flags: Flags, target?: string): Promise<void> => {
    const name = action === "add" ? "" : (target ?? "");
    const { from } = flags;
    let body: unknown;
    if (action === "add") {
      body = { url: target, name: flags.name ?? null, types: splitList(flags.types) ?? null };
      requireFlags(() => parseNewWebhook(body), flags.types);
    }
    if (action === "replay")
      body = { from: from === "newest" ? from : parseChangeNumber("--from", from) };
    const result: unknown = await withTarget(config, flags, (where) => {
      if (where.client === undefined)
        return webhookActions[action]({ store: where.store, config }, name, body);
      const parts = ["/webhooks", encodeURIComponent(name), methods[action] ? "" : action];
      const path = parts.filter((part) => part !== "").join("/");
      return askService(where.client, methods[action] ?? "POST", path, body);
    });
    if (action === "add" || action === "rotate")
      return printSecret(flags.json ? JSON.stringify(result) : (result as ShownSecret).secret);
    if (action === "test") {
      if (flags.json) printJson(result);
      else await printLine(describeAttempt(result as Attempt));
      if (hasSucceeded(result as Attempt)) return;
      throw new CommandError(`${name} did not accept the event.`);
    }
    if (flags.json) printJson(result ?? null);
    if (action === "skip" && (result as ShownSkip).skipped === null)
      throw new CommandError(`Nothing was skipped: ${name} has no change that failed.`);
    if (flags.json) return;
    if (action === "list") return printWebhooks(result as ShownWebhook[]);
    if (action === "show") return printWebhook(result as ShownWebhook);
    if (action === "remove") return printLine(`Removed ${name}.`);
    const { state, lastChange } = result as ShownWebhook;
    await printLine(`${name} is ${state}, after change ${lastChange}.`);
  };

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

function printWebhook(webhook: ShownWebhook): void {
  printWebhooks([webhook]);
  const { failures, nextAttempt, attempts } = webhook;
  if (nextAttempt !== null)
    process.stdout.write(`\nFailed attempts: ${failures}. The next one is at ${nextAttempt}.\n`);
  if (attempts.length === 0) return;
  process.stdout.write("\n");
  printTable(
    ["TIME", "EVENT", "RESULT", "MS", "ANSWER"],
    attempts.map(({ time, event, status, error, durationMs, answer }) => [
      time,
      event,
      String(status ?? error),
      String(durationMs),
      quote(answer),
    ]),
  );
}

/** Quoted, because an answer may contain terminal escape sequences. */
const quote = (answer: string | null): string => (answer ? JSON.stringify(answer) : "");

const describeAttempt = ({ time, durationMs, status, error, answer }: Attempt): string =>
  `${time} ${status ?? error} in ${durationMs} ms ${quote(answer)}`.trimEnd();
