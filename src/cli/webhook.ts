/** plantstore webhook: who is told of changes, in the store or through a running service. */

import type { Client } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { type Attempt, hasSucceeded } from "../domain/webhook.ts";
import { type ShownSecret, type ShownWebhook, Webhooks } from "../webhooks/manage.ts";
import {
  CommandError,
  explainSystemError,
  findClient,
  requireStore,
  UsageError,
  withStore,
} from "./command.ts";
import { STANDARD_OUTPUT, writeDescriptor } from "./files.ts";
import { printTable } from "./terminal.ts";

export interface WebhookOptions {
  readonly url?: string;
  readonly databaseUrl?: string;
  readonly json?: boolean;
  readonly name?: string;
  readonly types?: string;
  readonly from?: string;
}

type Managed = Omit<Webhooks, "get">;

/** The same through a service. */
function manageRemotely(client: Client): Managed {
  const ask = async (method: string, path: string, body?: unknown): Promise<never> => {
    const init = body === undefined ? {} : { body: JSON.stringify(body) };
    const headers = { "content-type": "application/json" };
    const response = await client.request(`/webhooks${path}`, { method, headers, ...init });
    return (response.status === 204 ? undefined : await response.json()) as never;
  };
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

async function manage<Result>(
  config: Config,
  options: WebhookOptions,
  use: (webhooks: Managed) => Promise<Result>,
): Promise<Result> {
  const client = findClient(options, config);
  if (client !== undefined) return use(manageRemotely(client));
  await requireStore(config);
  return withStore(config, (store) => use(new Webhooks(store, config)));
}

export type WebhookAction = Exclude<keyof Managed, "list" | "add">;

export async function addWebhook(
  config: Config,
  url: string,
  options: WebhookOptions,
): Promise<void> {
  const types = options.types?.split(",").map((type) => type.trim());
  const asked = { url, name: options.name ?? null, types: types ?? null };
  await printSecret(await manage(config, options, (webhooks) => webhooks.add(asked)), options);
}

export async function listWebhooks(config: Config, options: WebhookOptions): Promise<void> {
  const webhooks = await manage(config, options, (managed) => managed.list());
  if (options.json === true) return print(webhooks);
  if (webhooks.length === 0)
    return void process.stdout.write("No webhooks yet. Add one: plantstore webhook add <url>\n");
  printTable(
    ["NAME", "URL", "TYPES", "STATE", "LAST CHANGE", "FAILURES", "LAST ATTEMPT"],
    webhooks.map((webhook) => [
      webhook.name,
      webhook.url,
      webhook.types.join(","),
      webhook.state,
      String(webhook.lastChange),
      String(webhook.failures),
      webhook.attempts[0] === undefined ? "never" : describeAttempt(webhook.attempts[0]),
    ]),
  );
  for (const { name, reason } of webhooks)
    if (reason !== null) process.stdout.write(`\n${name} is paused: ${reason}\n`);
}

export async function changeWebhook(
  config: Config,
  action: WebhookAction,
  name: string,
  options: WebhookOptions,
): Promise<void> {
  const from = action === "replay" ? { from: parseFrom(options.from) } : undefined;
  const result = await manage(config, options, (webhooks): Promise<unknown> =>
    webhooks[action](name, from),
  );
  if (action === "rotate") return printSecret(result as ShownSecret, options);
  if (options.json === true) return print(result ?? null);
  if (action === "test") {
    const attempt = result as Attempt;
    process.stdout.write(`${describeAttempt(attempt)}\n`);
    if (!hasSucceeded(attempt)) throw new CommandError(`${name} did not take the event.`);
  } else if (action === "remove") process.stdout.write(`Removed ${name}.\n`);
  else {
    const { state, lastChange } = result as ShownWebhook;
    process.stdout.write(`${name} is ${state}, after change ${lastChange}.\n`);
  }
}

async function printSecret(webhook: ShownSecret, { json }: WebhookOptions): Promise<void> {
  try {
    // Not process.stdout, which hides a failed write.
    const text = json === true ? JSON.stringify(webhook) : webhook.secret;
    await writeDescriptor(STANDARD_OUTPUT, `${text}\n`);
  } catch (error) {
    throw new CommandError(
      `The secret of ${webhook.name} could not be written to standard output. ${explainSystemError(error)} Get another: plantstore webhook rotate ${webhook.name}`,
      { cause: error },
    );
  }
}

const print = (value: unknown): void =>
  void process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);

/** In quotes, because an answer may hold what a terminal takes for a command. */
const describeAttempt = ({ time, durationMs, status, error, answer }: Attempt): string =>
  `${time} ${status ?? error} in ${durationMs} ms${answer ? ` ${JSON.stringify(answer)}` : ""}`;

function parseFrom(text = ""): number | "newest" {
  if (text === "newest") return text;
  const from = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(from)) return from;
  throw new UsageError(
    `--from: ${JSON.stringify(text)} is not allowed; expected the number of a change, 0 for the oldest that is kept, or newest`,
  );
}
