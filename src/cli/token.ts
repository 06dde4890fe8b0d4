/** plantstore token: creates, lists and revokes tokens in the store, whether the service runs or not. */

import { mintToken, toRecord } from "../auth/token.ts";
import { findRate, UNLIMITED } from "../auth/rate-limit.ts";
import { type Config, findDurationMs } from "../config.ts";
import { type Scope, scopes, type TokenRecord } from "../domain/token.ts";
import { maskStoreUrl } from "../store/open.ts";
import {
  CommandError,
  explainSystemError,
  requireStore,
  UsageError,
  withStore,
  withStoreOrNew,
} from "./command.ts";
import { STANDARD_OUTPUT, writeDescriptor } from "./files.ts";
import { printTable } from "./terminal.ts";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

export interface CreateOptions {
  readonly name: string;
  readonly scopes: string;
  readonly expires?: string;
  readonly rate?: string;
  readonly json?: boolean;
}

export async function createToken(config: Config, options: CreateOptions): Promise<void> {
  const createdAtMs = Date.now();
  const token = mintToken();
  const record = toRecord(token, {
    name: parseName(options.name),
    scopes: parseScopes(options.scopes),
    createdAtMs,
    expiresAtMs: parseExpiry(options.expires, createdAtMs),
    rate: parseRate(options.rate),
  });
  await withStoreOrNew(config, async (store) => {
    if (!(await store.createToken(record)))
      throw new CommandError(
        `A token named ${JSON.stringify(record.name)} is in use; revoke it first, or choose another name.`,
      );
    try {
      // Not process.stdout, which hides a failed write.
      const text = options.json ? JSON.stringify({ token, ...toJson(record) }) : token;
      await writeDescriptor(STANDARD_OUTPUT, `${text}\n`);
    } catch (error) {
      // The token was never seen.
      await store.revokeToken(record.hash, Date.now());
      throw new CommandError(
        `The token could not be written to standard output and was revoked. ${explainSystemError(error)}`,
        { cause: error },
      );
    }
  });
  if (process.stdout.isTTY)
    process.stderr.write(
      `Keep it: ${maskStoreUrl(config.databaseUrl)} holds only its hash, so it cannot be shown again.\n`,
    );
}

export async function listTokens(config: Config, asJson: boolean): Promise<void> {
  await requireStore(config);
  const tokens = await withStore(config, (store) => store.listTokens());
  if (asJson) {
    process.stdout.write(`${JSON.stringify(tokens.map(toJson), null, 2)}\n`);
    return;
  }
  if (tokens.length === 0) {
    process.stdout.write("No tokens yet. Create one: plantstore token create --name <name>\n");
    return;
  }
  const hasRates = tokens.some(({ rate }) => rate !== undefined);
  printTable(
    [
      "NAME",
      "PREFIX",
      "SCOPES",
      "CREATED",
      "EXPIRES",
      "LAST USED",
      "STATE",
      hasRates ? "RATE" : "",
    ],
    tokens.map((token) => [
      token.name,
      `${token.prefix}…`,
      token.scopes.join(","),
      showTime(token.createdAtMs),
      token.expiresAtMs === undefined ? "never" : showTime(token.expiresAtMs),
      token.lastUsedAtMs === undefined ? "never" : showTime(token.lastUsedAtMs),
      stateOf(token),
      hasRates ? (token.rate ?? "-") : "",
    ]),
  );
}

export async function revokeToken(config: Config, nameOrPrefix: string): Promise<void> {
  await requireStore(config);
  const revoked = await withStore(config, async (store) => {
    const token = findOne(await store.listTokens(), nameOrPrefix);
    await store.revokeToken(token.hash, Date.now());
    return token;
  });
  process.stdout.write(
    `Revoked ${revoked.name} (${revoked.prefix}…). Running services refuse it within 5 seconds.\n`,
  );
}

/** By name first, then by prefix. */
function findOne(tokens: readonly TokenRecord[], nameOrPrefix: string): TokenRecord {
  const unrevoked = tokens.filter((token) => token.revokedAtMs === undefined);
  const named = unrevoked.filter((token) => token.name === nameOrPrefix);
  const found =
    named.length > 0
      ? named
      : unrevoked.filter(
          (token) =>
            (nameOrPrefix !== "" && nameOrPrefix.startsWith(token.prefix)) ||
            (nameOrPrefix.length > "pst_".length && token.prefix.startsWith(nameOrPrefix)),
        );
  const [token, another] = found;
  if (token === undefined)
    throw new CommandError(
      `No token in use has the name or prefix ${JSON.stringify(nameOrPrefix)}; see: plantstore token list`,
    );
  if (another !== undefined)
    throw new CommandError(
      `${JSON.stringify(nameOrPrefix)} could be ${found.map((one) => one.name).join(" or ")}; give the name.`,
    );
  return token;
}

function parseName(name: string): string {
  if (NAME.test(name)) return name;
  throw new UsageError(
    `--name: ${JSON.stringify(name)} is not allowed; expected 1 to 64 characters out of A-Z a-z 0-9 . _ @ -, the first a letter or digit`,
  );
}

function parseScopes(text: string): Scope[] {
  const chosen = text.split(",").map((scope) => scope.trim());
  const unknown = chosen.find((scope) => !scopes.includes(scope as Scope));
  if (unknown !== undefined)
    throw new UsageError(
      `--scopes: ${JSON.stringify(unknown)} is not allowed; expected one or more of ${scopes.join(",")}`,
    );
  return scopes.filter((scope) => chosen.includes(scope));
}

function parseRate(text: string | undefined): string | undefined {
  if (text === undefined || text === UNLIMITED || findRate(text) !== undefined) return text;
  throw new UsageError(
    `--rate: ${JSON.stringify(text)} is not allowed; expected a number per s, min or h, as in 100/s, or none`,
  );
}

const EXPIRY_MS_MAX = 36_500 * 86_400_000;

/** A duration from now, or a date, which means its first moment in UTC, or a full time. */
function parseExpiry(text: string | undefined, nowMs: number): number | undefined {
  if (text === undefined) return undefined;
  const durationMs = findDurationMs(text);
  const isTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d))?$/.test(text);
  const expiresAtMs =
    durationMs === undefined ? (isTime ? Date.parse(text) : Number.NaN) : nowMs + durationMs;
  if (isTime && expiresAtMs <= nowMs) throw new UsageError(`--expires: ${text} is in the past`);
  if (expiresAtMs <= nowMs + EXPIRY_MS_MAX) return expiresAtMs;
  throw new UsageError(
    `--expires: ${JSON.stringify(text)} is not allowed; expected seconds, minutes, hours or days, as in 30m, 12h or 90d, at most 36500d, ` +
      "or a date or time, as in 2030-01-31 or 2030-01-31T18:00Z",
  );
}

function stateOf(token: TokenRecord): string {
  if (token.revokedAtMs !== undefined) return `revoked ${showTime(token.revokedAtMs)}`;
  return token.expiresAtMs !== undefined && token.expiresAtMs <= Date.now() ? "expired" : "active";
}

const showTime = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")}Z`;

const iso = (ms: number | undefined): string | null =>
  ms === undefined ? null : new Date(ms).toISOString();

function toJson(token: TokenRecord): object {
  return {
    name: token.name,
    prefix: token.prefix,
    scopes: token.scopes,
    created: iso(token.createdAtMs),
    expires: iso(token.expiresAtMs),
    lastUsed: iso(token.lastUsedAtMs),
    revoked: iso(token.revokedAtMs),
    rate: token.rate ?? null,
  };
}
