/** What every command shares: how it fails, how Ctrl-C ends it, and the store or service it works on. */

import { readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { Client, ServiceError } from "../../client/client.ts";
import { type Config, ConfigError, toFlag } from "../config.ts";
import { catalogue, Refusal, StoreOpenError } from "../domain/errors.ts";
import { isActive } from "../domain/job.ts";
import type { SchemaChange, Store } from "../domain/store.ts";
import { splitList } from "../domain/token.ts";
import { MalformedFile } from "../format/records.ts";
import type { Field } from "../http/field.ts";
import { parseStoreUrl } from "../store-url.ts";
import { openStore } from "../store/open.ts";
import type { FoundSchema } from "../store/postgres/schema.ts";
import {
  adviseOnTemporaryFiles,
  getSchemaVersion,
  isBlank,
  migrations,
  readStore,
} from "../store/sqlite/database.ts";
import { findObstacle } from "../store/sqlite/obstacle.ts";
import { printError, printRetry } from "./terminal.ts";

/** Records were refused, or stores differ. */
export const EXIT_DIFFERENT = 3;

export class CommandError extends Error {
  readonly exitCode: number = 1;
}

export class UsageError extends CommandError {
  override readonly exitCode = 2;
}

const ourErrors = [CommandError, ConfigError, StoreOpenError, Refusal, ServiceError, MalformedFile];

/** Known failures in a sentence; a defect with its stack. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { message, stack = message, cause } = error;
  // Its message is for clients, who have a request id. No log has the cause yet. A thread sends it as a plain object.
  if (error instanceof Refusal && error.reason === "internal" && cause !== undefined)
    return explain(cause instanceof Error ? cause : Object.assign(new Error(), cause));
  // The cause is for the operator, as in the log of a service.
  if (error instanceof Refusal && cause instanceof Error)
    return `${message} ${cause.message.replace(/\.?$/, ".")}`;
  if (ourErrors.some((kind) => error instanceof kind)) return message;
  const { code, path } = error as NodeJS.ErrnoException;
  if (typeof code !== "string") return stack;
  // `ENOENT: no such file or directory, open 'x'` becomes `x: no such file or directory.`
  const [, what] = /^E[A-Z0-9]+: ([^,]+), \w+/.exec(message) ?? [];
  if (what === undefined) return message;
  if (path === undefined) return `${what[0]?.toUpperCase()}${what.slice(1)}.`;
  const isRefused = /^(EACCES|EPERM|EROFS|EMFILE|ENFILE)$/.test(code);
  const obstacle = isRefused ? findObstacle(path) : undefined;
  return `${path}: ${obstacle ?? what}.`;
}

/** A failure of a temporary file, which the user never named. */
export const toTemporaryFileError = (error: unknown, folder = tmpdir()): CommandError =>
  new CommandError(`${explain(error).replace(/\.?$/, ".")} ${adviseOnTemporaryFiles(folder)}`, {
    cause: error,
  });

/** npm forwards a Ctrl-C that the terminal already sent to every process: both count as one. */
const SAME_SIGNAL_MS = 500;

const PARENT_POLL_MS = 500;

export function onSignal(handle: (name: "SIGINT" | "SIGTERM", isSecond: boolean) => void): void {
  let sinceMs: number | undefined;
  const receive = (name: "SIGINT" | "SIGTERM"): void => {
    if (performance.now() - (sinceMs ?? -Infinity) < SAME_SIGNAL_MS) return;
    const isSecond = sinceMs !== undefined;
    sinceMs ??= performance.now();
    handle(name, isSecond);
  };
  for (const name of ["SIGINT", "SIGTERM"] as const)
    process.on(name, receive.bind(undefined, name));
  // bin/plantstore.cjs forwards signals. If it was killed, it cannot: its end counts as a SIGTERM.
  const launcher = process.env["_PLANTSTORE_LAUNCHER"];
  if (launcher === undefined) return;
  const watching = setInterval(() => {
    if (process.ppid === Number(launcher)) return;
    clearInterval(watching);
    receive("SIGTERM");
  }, PARENT_POLL_MS).unref();
}

export class Interrupted extends CommandError {}

/** 128 plus the signal number. */
const signalExitCodes = { SIGINT: 130, SIGTERM: 143 };

/** The first Ctrl-C aborts the signal given to `use` with an Interrupted as its reason; the second exits at once. */
export function untilInterrupted<Result>(use: (signal: AbortSignal) => Promise<Result>) {
  const controller = new AbortController();
  onSignal((name, isSecond) => {
    const exitCode = signalExitCodes[name];
    if (isSecond) process.exit(exitCode);
    controller.abort(Object.assign(new Interrupted("Interrupted."), { exitCode }));
  });
  return use(controller.signal);
}

export async function timeUntilInterrupted(use: (signal: AbortSignal) => Promise<void>) {
  const startedAtMs = performance.now();
  const error: unknown = await untilInterrupted(use).catch((failure: unknown) => failure);
  return { seconds: Math.round(performance.now() - startedAtMs) / 1000, error };
}

/** `state` says how far the command got, and that it is safe to run again. */
export function failHalfway(what: string, error: unknown, state: string): never {
  if (error instanceof Interrupted) {
    printError(`interrupted. ${state}`);
    throw error;
  }
  throw new CommandError(`${explain(error)}\nThe ${what} did not finish: ${state}`);
}

/** Printed before a migration, which cannot be undone without a backup. */
export const describeMigration = ({ location, from, to }: SchemaChange): string =>
  `The schema of ${location} changes from ${from} to ${to}. The previous version of plantstore cannot open the store afterwards; a backup made before can be restored.`;

export async function withStore<Result>(config: Config, use: (store: Store) => Promise<Result>) {
  const store = await openStore(config.databaseUrl, config, (change) =>
    printError(describeMigration(change)),
  );
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

export async function findSchema(config: Config): Promise<FoundSchema> {
  const url = parseStoreUrl(config.databaseUrl);
  if (url.engine === "postgres")
    return (await import("../store/postgres/schema.ts")).findSchema(url.target, config);
  const { path } = url;
  const hasContent = Boolean(statSync(path, { throwIfNoEntry: false })?.size);
  const version = hasContent
    ? readStore(path, (db) => (isBlank(db) ? undefined : getSchemaVersion(db, path)))
    : undefined;
  return { location: resolve(path), version, newest: migrations.length };
}

type Texts = "batch" | "ca" | "databaseUrl" | "url";
type Switches = "dryRun" | "force" | "json" | "yes";

/** The flags that several commands have, besides those of settings. A command adds its own: texts, and switches. */
export type Flags<Text extends string = never, Switch extends string = never> = Readonly<
  Partial<Record<Text | Texts, string> & Record<Switch | Switches, boolean>>
>;

/** Throws a usage error if the text is not allowed. */
export function parseFlag<Value>(
  flag: string,
  text: string | undefined,
  rule: Pick<Field<Value>, "expected" | "find">,
) {
  const value = text === undefined ? undefined : rule.find(text);
  if (value !== undefined || text === undefined) return value;
  throw new UsageError(
    `${flag}: ${JSON.stringify(text)} is not allowed; expected ${rule.expected}`,
  );
}

/**
 * Decides once whether a command works on a service or on a store, with the operations of the client that `open` has for
 * it. Creates a missing store only with `canCreate`: otherwise a typo would look like an empty store. `batch` is the name
 * to write under, if one was given.
 */
export async function withTarget<Target, Result>(
  config: Config,
  flags: Flags,
  open: (store: Store, config: Config) => Target,
  use: (target: Target | Client) => Promise<Result>,
  {
    canCreate = false,
    batch,
  }: { readonly canCreate?: boolean; readonly batch?: string | undefined } = {},
): Promise<Result> {
  const client = findClient(flags, config);
  if (client !== undefined) return use(client);
  const { location, version } = await findSchema(config);
  const exists = version !== undefined;
  if (!exists && !canCreate) throw new CommandError(`There is no store at ${location}.`);
  return withStore(config, async (store) => {
    // In the wrong folder, the new store would go unnoticed.
    if (!exists) printError(`created a new store at ${location}`);
    const job = batch === undefined ? undefined : await store.findJob(batch);
    // Only a service can tell whether it is lost, by watching it.
    if (job !== undefined && isActive(job))
      throw new Refusal(
        "job_running",
        `${catalogue.job_running.meaning} If its service was killed, choose another name.`,
      );
    return use(open(store, config));
  });
}

/** Each member of a body of the API: until a command has a flag for a new one, it does not compile. */
export type Whole<Body> = { readonly [Name in keyof Required<Body>]: Body[Name] };

export const splitFlag = (list: string | undefined): string[] | undefined =>
  list === undefined ? undefined : splitList(list);

/** The member of `Flags` for a flag, or for the name of a parameter. */
export const toMember = (flag: string): string =>
  flag.replace(/^--/, "").replaceAll(/[-_](.)/g, (_, letter: string) => letter.toUpperCase());

/** Throws a usage error for the first two flags that were both given: their names, and why they exclude each other. */
export function refusePairs(flags: object, pairs: readonly (readonly [string, string, string])[]) {
  const values: Readonly<Record<string, unknown>> = { ...flags };
  for (const [one, other, why] of pairs)
    if (values[toMember(one)] !== undefined && values[toMember(other)] !== undefined)
      throw new UsageError(`${one} and ${other}: ${why}`);
}

/** Turns a Refusal into a usage error about flags. `lists` are those that are arrays in the body. */
export function requireFlags<Parsed>(
  parse: () => Parsed,
  lists: Readonly<Record<string, string | undefined>>,
): Parsed {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const message = error.message.replaceAll(
      /(?<=(?:^|; )(\w+): [^;]*)an array/g,
      (_, name: string) => JSON.stringify(lists[name]),
    );
    const flags = message.replaceAll(/(^|; )(\w+)(?=: )/g, (_, first: string, name: string) => {
      return (first && "\n") + toFlag(name);
    });
    // --url is the service; the URL of a webhook is the argument <target>.
    throw new UsageError(flags.replace(/^--url:/, "<target>:"));
  }
}

/** The authority that the service's certificate is from, for `fetch`. */
export function findAuthority({ ca }: Flags, url: string): { tls?: { ca: string } } {
  if (ca === undefined) return {};
  const refuse = (why: string): never => {
    throw new UsageError(`--ca: ${ca} ${why}`);
  };
  if (!/^https:/i.test(url)) refuse(`has no effect: ${url} is not an https URL`);
  try {
    const pem = readFileSync(ca, "utf8");
    // fetch would ignore a file without a certificate.
    void new (process.getBuiltinModule("node:crypto").X509Certificate)(pem);
    return { tls: { ca: pem } };
  } catch (error) {
    const [, what] = /^E[A-Z0-9]+: ([^,]+)/.exec((error as Error).message) ?? [];
    return refuse(
      what === undefined ? "is not a certificate in PEM format" : `cannot be read: ${what}`,
    );
  }
}

export function findClient(flags: Flags, config: Config): Client | undefined {
  if (flags.url === undefined) {
    if (flags.ca !== undefined) throw new UsageError("--ca: has no effect without --url");
    return undefined;
  }
  if (flags.databaseUrl !== undefined)
    throw new UsageError("--url and --database-url: give one of them, the service or the store");
  const url = /^https?:[^@?#]*$/.test(flags.url) ? URL.parse(flags.url) : null;
  if (url === null)
    throw new UsageError(
      `--url: ${JSON.stringify(flags.url.replace(/\/\/[^/]*@/, "//********@"))} is not allowed; expected the address of a service, as in http://127.0.0.1:8080`,
    );
  if (config.token === undefined)
    throw new UsageError("--url: the token is missing; set PLANTSTORE_TOKEN in the environment");
  const authority = findAuthority(flags, url.href);
  return new Client(url.href, config.token, {
    fetch: (address, init) => fetch(address, { ...init, ...authority }),
    onRetry: printRetry,
  });
}
