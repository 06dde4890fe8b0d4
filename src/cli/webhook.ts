/** plantstore webhook: manages webhooks, in the store or through a running service. */

import type { Client, NewWebhook, Webhook, WebhookAttempt } from "../../client/client.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { hasSucceeded } from "../domain/webhook.ts";
import { parseNewWebhook, webhookActions } from "../webhooks/manage.ts";
import {
  CommandError,
  type Flags,
  parseFlag,
  requireFlags,
  splitFlag,
  type Whole,
  withTarget,
} from "./command.ts";
import { fieldsOf } from "./fields.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable, showTags } from "./terminal.ts";

export type WebhookAction = keyof typeof webhookActions;

type Target = Pick<
  Client,
  | "listWebhooks"
  | `${"add" | "get" | "pause" | "remove" | "replay" | "resume" | "rotate" | "skip" | "test"}Webhook`
>;

function webhooksOf(store: Store, config: Config): Target {
  const manage = async <Result>(action: WebhookAction, name: string, input?: object) =>
    (await webhookActions[action](
      { store, confinement: "whole store", config },
      name,
      input,
    )) as Result;
  return {
    listWebhooks: () => manage("list", ""),
    getWebhook: (name) => manage("show", name),
    addWebhook: (webhook) => manage("add", "", webhook),
    removeWebhook: (name) => manage("remove", name),
    testWebhook: (name) => manage("test", name),
    pauseWebhook: (name) => manage("pause", name),
    resumeWebhook: (name) => manage("resume", name),
    skipWebhook: (name) => manage("skip", name),
    replayWebhook: (name, from) => manage("replay", name, { from }),
    rotateWebhook: (name) => manage("rotate", name),
  };
}

type WebhookFlags = Flags<"from" | "name" | "types">;

type Act = (target: Target, name: string, flags: WebhookFlags) => Promise<unknown>;

const actions: Readonly<Record<WebhookAction, Act>> = {
  list: (target) => target.listWebhooks(),
  show: (target, name) => target.getWebhook(name),
  add: (target, url, flags) => target.addWebhook(toNewWebhook(url, flags)),
  remove: (target, name) => target.removeWebhook(name),
  test: (target, name) => target.testWebhook(name),
  pause: (target, name) => target.pauseWebhook(name),
  resume: (target, name) => target.resumeWebhook(name),
  skip: (target, name) => target.skipWebhook(name),
  replay: (target, name, { from }) => target.replayWebhook(name, toStart(from)),
  rotate: (target, name) => target.rotateWebhook(name),
};

const toNewWebhook = (url: string, { name, types }: WebhookFlags): Whole<NewWebhook> => ({
  url,
  name,
  types: splitFlag(types) as NewWebhook["types"],
});

const toStart = (from: string | undefined): number | "newest" =>
  from === "newest" ? from : (parseFlag("--from", from, fieldsOf.changes.after) ?? 0);

/** `name` is the URL of a new webhook, or the name of an existing one. */
export const manageWebhook =
  (action: WebhookAction) =>
  async (config: Config, flags: WebhookFlags, name = ""): Promise<void> => {
    if (action === "add")
      requireFlags(() => parseNewWebhook(toNewWebhook(name, flags)), { types: flags.types });
    if (action === "replay") toStart(flags.from);
    const result = await withTarget(config, flags, webhooksOf, (target) =>
      actions[action](target, name, flags),
    );
    if (action === "add" || action === "rotate")
      return printSecret(
        flags.json ? JSON.stringify(result) : (result as { secret: string }).secret,
      );
    if (action === "test") {
      if (flags.json) printJson(result);
      else await printLine(describeAttempt(result as WebhookAttempt));
      if (hasSucceeded(result as WebhookAttempt)) return;
      throw new CommandError(`${name} did not accept the event.`);
    }
    if (flags.json) printJson(result ?? null);
    if (action === "skip" && (result as { skipped: number | null }).skipped === null)
      throw new CommandError(`Nothing was skipped: ${name} has no change that failed.`);
    if (flags.json) return;
    if (action === "list") return printWebhooks(result as Webhook[]);
    if (action === "show") return printWebhook(result as Webhook);
    if (action === "remove") return printLine(`Removed ${name}.`);
    const { state, lastChange } = result as Webhook;
    await printLine(`${name} is ${state}, after change ${lastChange}.`);
  };

function printWebhooks(webhooks: readonly Webhook[]): void {
  if (webhooks.length === 0)
    return void process.stdout.write("No webhooks yet. Add one: plantstore webhook add <url>\n");
  printTable(
    ["NAME", "URL", "TYPES", "TAGS", "STATE", "LAST CHANGE", "FAILURES", "LAST ATTEMPT"],
    webhooks.map(({ name, url, types, tags, state, lastChange, failures, attempts: [last] }) => [
      name,
      url,
      types.join(","),
      showTags(tags),
      state,
      String(lastChange),
      String(failures),
      last === undefined ? "never" : describeAttempt(last),
    ]),
  );
  for (const { name, reason } of webhooks)
    if (reason !== null) process.stdout.write(`\n${name} is paused: ${reason}\n`);
}

function printWebhook(webhook: Webhook): void {
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

const describeAttempt = ({ time, durationMs, status, error, answer }: WebhookAttempt): string =>
  `${time} ${status ?? error} in ${durationMs} ms ${quote(answer)}`.trimEnd();
