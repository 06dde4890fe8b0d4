/** plantstore token: creates, lists and revokes tokens, in the store or through a running service. */

import {
  grantRules,
  type IssuedToken,
  issueToken,
  summarize,
  type TokenGrant,
} from "../auth/token.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { type Scope, scopes, type TokenSummary } from "../domain/token.ts";
import type { Client } from "../../client/client.ts";
import { askService, CommandError, type TargetOptions, UsageError, withTarget } from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable } from "./terminal.ts";

interface TokenOptions extends TargetOptions {
  readonly json?: boolean;
}

interface CreateOptions extends TokenOptions {
  readonly name: string;
  readonly scopes: string;
  readonly expires?: string;
  readonly rate?: string;
}

/** The tokens of a store, or of a running service. */
interface Tokens {
  readonly list: () => Promise<readonly TokenSummary[]>;
  readonly create: (grant: TokenGrant) => Promise<IssuedToken>;
  readonly revoke: (token: TokenSummary) => Promise<unknown>;
}

const tokens = {
  ofStore: (store: Store): Tokens => ({
    list: async () => (await store.listTokens()).map(summarize),
    create: (grant) => issueToken(store, grant),
    revoke: async ({ id }) => {
      const token = (await store.listTokens()).find(({ hash }) => hash.startsWith(id));
      if (token !== undefined) await store.revokeToken(token.hash, Date.now());
    },
  }),
  ofService: (client: Client): Tokens => ({
    list: () => askService(client, "GET", "/tokens"),
    create: ({ expiresAtMs, name, scopes: granted, rate }) => {
      const expires = expiresAtMs === undefined ? undefined : new Date(expiresAtMs).toISOString();
      return askService(client, "POST", "/tokens", { name, scopes: granted, expires, rate });
    },
    revoke: ({ id }) => askService(client, "DELETE", `/tokens/${id}`),
  }),
};

export async function createToken(config: Config, options: CreateOptions): Promise<void> {
  const { name, expires, rate } = options;
  const createdAtMs = Date.now();
  const chosen = options.scopes.split(",").map((scope) => scope.trim());
  const unknown = chosen.find((scope) => !scopes.includes(scope as Scope));
  if (expires !== undefined && /^\d{4}-/.test(expires) && Date.parse(expires) <= createdAtMs)
    throw new UsageError(`--expires: ${expires} is in the past`);
  const grant: TokenGrant = {
    name: accept("name", name, grantRules.name.find(name)),
    scopes: accept("scopes", unknown ?? options.scopes, grantRules.scopes.find(chosen)),
    createdAtMs,
    expiresAtMs:
      expires === undefined
        ? undefined
        : accept("expires", expires, grantRules.expires.find(expires, createdAtMs)),
    rate: rate === undefined ? undefined : accept("rate", rate, grantRules.rate.find(rate)),
  };
  const create = async (target: Tokens): Promise<void> => {
    const made = await target.create(grant);
    await printSecret(options.json ? JSON.stringify(made) : made.token, async (reason) => {
      // The token was never seen.
      await target.revoke(made);
      return `The token could not be written to standard output and was revoked. ${reason}`;
    });
  };
  await withTarget(config, options, { ...tokens, isMade: true }, create);
  if (process.stdout.isTTY)
    process.stderr.write("Keep it: the store has only its hash, so it cannot be shown again.\n");
}

export async function listTokens(config: Config, options: TokenOptions): Promise<void> {
  const found = await withTarget(config, options, tokens, ({ list }) => list());
  if (options.json) return printJson(found);
  if (found.length === 0)
    return printLine("No tokens yet. Create one: plantstore token create --name <name>");
  const hasRates = found.some(({ rate }) => rate !== null);
  const head = ["NAME", "PREFIX", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "STATE"];
  printTable(
    [...head, hasRates ? "RATE" : ""],
    found.map((token) => [
      token.name,
      `${token.prefix}…`,
      token.scopes.join(","),
      showTime(token.created),
      showTime(token.expires),
      showTime(token.lastUsed),
      stateOf(token),
      hasRates ? (token.rate ?? "-") : "",
    ]),
  );
}

export async function revokeToken(
  config: Config,
  options: TokenOptions,
  nameOrPrefix: string,
): Promise<void> {
  const revoked = await withTarget(config, options, tokens, async ({ list, revoke }) => {
    const token = findOne(await list(), nameOrPrefix);
    await revoke(token);
    return token;
  });
  process.stdout.write(
    `Revoked ${revoked.name} (${revoked.prefix}…). Running services refuse it within 5 seconds.\n`,
  );
}

/** By name first, then by prefix. */
function findOne(listed: readonly TokenSummary[], nameOrPrefix: string): TokenSummary {
  const unrevoked = listed.filter((token) => token.revoked === null);
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

function accept<Value>(
  flag: keyof typeof grantRules,
  text: string,
  found: Value | undefined,
): Value {
  if (found !== undefined) return found;
  const { expected } = grantRules[flag];
  throw new UsageError(`--${flag}: ${JSON.stringify(text)} is not allowed; expected ${expected}`);
}

function stateOf({ expires, revoked }: TokenSummary): string {
  if (revoked !== null) return `revoked ${showTime(revoked)}`;
  return expires !== null && Date.parse(expires) <= Date.now() ? "expired" : "active";
}

const showTime = (time: string | null): string =>
  time === null ? "never" : `${time.slice(0, 16).replace("T", " ")}Z`;
