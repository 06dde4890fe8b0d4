/** plantstore token: creates, lists and revokes tokens, in the store or through a running service. */

import { type IssuedToken, issueToken, parseGrant, summarize } from "../auth/token.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import type { TokenSummary } from "../domain/token.ts";
import type { Client } from "../../client/client.ts";
import { askService, CommandError, type Flags, requireFlags, withTarget } from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable } from "./terminal.ts";

/** The tokens of a store, or of a running service. */
interface Tokens {
  readonly list: () => Promise<readonly TokenSummary[]>;
  readonly create: (given: unknown) => Promise<IssuedToken>;
  readonly revoke: (token: TokenSummary) => Promise<unknown>;
}

const tokens = {
  ofStore: (store: Store): Tokens => ({
    list: async () => (await store.listTokens()).map(summarize),
    create: (given) => issueToken(store, parseGrant(given, Date.now())),
    revoke: async ({ id }) => {
      const token = (await store.listTokens()).find(({ hash }) => hash.startsWith(id));
      if (token !== undefined) await store.revokeToken(token.hash, Date.now());
    },
  }),
  ofService: (client: Client): Tokens => ({
    list: () => askService(client, "GET", "/tokens", "length"),
    create: (given) => askService(client, "POST", "/tokens", "token", given),
    revoke: ({ id }) => askService(client, "DELETE", `/tokens/${id}`),
  }),
};

export async function createToken(config: Config, flags: Flags): Promise<void> {
  const { name, expires, rate } = flags;
  const scopes = flags.scopes?.split(",").map((scope) => scope.trim());
  const given = { name, scopes, expires, rate };
  requireFlags(() => parseGrant(given, Date.now()), flags.scopes);
  const create = async (target: Tokens): Promise<void> => {
    const made = await target.create(given);
    await printSecret(flags.json ? JSON.stringify(made) : made.token, async (reason) => {
      // The token was never seen.
      await target.revoke(made);
      return `The token could not be written to standard output and was revoked. ${reason}`;
    });
  };
  await withTarget(config, flags, { ...tokens, isMade: true }, create);
  if (process.stdout.isTTY)
    process.stderr.write("Keep it: the store has only its hash, so it cannot be shown again.\n");
}

export async function listTokens(config: Config, flags: Flags): Promise<void> {
  const found = await withTarget(config, flags, tokens, ({ list }) => list());
  if (flags.json) return printJson(found);
  if (found.length === 0)
    return printLine("No tokens yet. Create one: plantstore token create --name <name>");
  printTable(
    ["NAME", "PREFIX", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "RATE", "STATE"],
    found.map((token) => [
      token.name,
      `${token.prefix}…`,
      token.scopes.join(","),
      showTime(token.created),
      showTime(token.expires),
      showTime(token.lastUsed),
      token.rate ?? "-",
      stateOf(token),
    ]),
  );
}

export async function revokeToken(
  config: Config,
  flags: Flags,
  nameOrPrefix: string,
): Promise<void> {
  const revoked = await withTarget(config, flags, tokens, async ({ list, revoke }) => {
    const token = findOne(await list(), nameOrPrefix);
    await revoke(token);
    return token;
  });
  process.stdout.write(
    `Revoked ${revoked.name} (${revoked.prefix}…). Running services refuse it within 5 seconds.\n`,
  );
}

/** By name first, then by prefix. */
function findOne(listed: readonly TokenSummary[], given: string): TokenSummary {
  const inUse = listed.filter((token) => token.revoked === null);
  const named = inUse.filter((token) => token.name === given);
  const matches = ({ prefix }: TokenSummary): boolean =>
    given.length > "pst_".length && (given.startsWith(prefix) || prefix.startsWith(given));
  const found = named.length > 0 ? named : inUse.filter(matches);
  const [token, another] = found;
  if (token === undefined)
    throw new CommandError(
      `No token in use has the name or prefix ${JSON.stringify(given)}; see: plantstore token list`,
    );
  if (another !== undefined)
    throw new CommandError(
      `${JSON.stringify(given)} could be ${found.map((one) => one.name).join(" or ")}; give the name.`,
    );
  return token;
}

function stateOf({ expires, revoked }: TokenSummary): string {
  if (revoked !== null) return `revoked ${showTime(revoked)}`;
  return expires !== null && Date.parse(expires) <= Date.now() ? "expired" : "active";
}

const showTime = (time: string | null): string =>
  time === null ? "never" : `${time.slice(0, 16).replace("T", " ")}Z`;
