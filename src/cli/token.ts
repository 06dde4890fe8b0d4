/** plantstore token: creates, lists and revokes tokens, in the store or through a running service. */

import type { Client, NewToken, Token } from "../../client/client.ts";
import { issueToken, parseGrant, readTokens, summarize } from "../auth/token.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import {
  CommandError,
  type Flags,
  requireFlags,
  splitFlag,
  type Whole,
  withTarget,
} from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable, showTags } from "./terminal.ts";

type Target = Pick<Client, "createToken" | "listTokens" | "revokeToken">;

const tokensOf = (store: Store): Target => ({
  createToken: (token) => issueToken(store, parseGrant(token)),

  listTokens: async function* () {
    yield* (await readTokens(store)).map(summarize);
  },

  revokeToken: async (id) => {
    const [found] = await store.listTokens({ after: id, limit: 1 });
    await store.revokeToken(found?.hash ?? "", Date.now());
  },
});

type Grant = Flags<"expires" | "name" | "rate" | "scopes" | "tags">;

export async function createToken(config: Config, flags: Grant): Promise<void> {
  const { expires, rate } = flags;
  const tags = splitFlag(flags.tags);
  const asked = { name: flags.name, scopes: splitFlag(flags.scopes), tags, expires, rate };
  const { name, scopes } = requireFlags(() => parseGrant(asked), {
    scopes: flags.scopes,
    tags: flags.tags,
  });
  const token: Whole<NewToken> = { name, scopes, tags, expires, rate };
  const create = (target: Target) => target.createToken(token);
  const issued = await withTarget(config, flags, tokensOf, create, { canCreate: true });
  await printSecret(flags.json ? JSON.stringify(issued) : issued.token);
  if (process.stdout.isTTY)
    process.stderr.write(
      "Keep the token: the store has only its hash, so it cannot be shown again.\n",
    );
}

const listAll = (target: Target) => Array.fromAsync(target.listTokens());

export async function listTokens(config: Config, flags: Flags): Promise<void> {
  const found = (await withTarget(config, flags, tokensOf, listAll)).toSorted((one, other) =>
    `${one.created} ${one.name}` < `${other.created} ${other.name}` ? -1 : 1,
  );
  if (flags.json) return printJson(found);
  if (found.length === 0)
    return printLine("No tokens yet. Create one: plantstore token create --name <name>");
  printTable(
    ["NAME", "PREFIX", "SCOPES", "TAGS", "CREATED", "EXPIRES", "LAST USED", "RATE", "STATE"],
    found.map((token) => [
      token.name,
      `${token.prefix}…`,
      token.scopes.join(","),
      showTags(token.tags),
      showTime(token.created),
      showTime(token.expires),
      showTime(token.lastUsed),
      token.rate ?? "-",
      stateOf(token),
    ]),
  );
}

export async function revokeToken(config: Config, flags: Flags, text: string): Promise<void> {
  const { name, prefix } = await withTarget(config, flags, tokensOf, async (target) => {
    const token = findOne(await listAll(target), text);
    await target.revokeToken(token.id);
    return token;
  });
  await printLine(`Revoked ${name} (${prefix}…). Running services refuse it within 5 seconds.`);
}

/** By its name or, if none has that name, by its prefix. */
function findOne(tokens: readonly Token[], text: string): Token {
  const inUse = tokens.filter((token) => token.revoked === null);
  const named = inUse.filter((token) => token.name === text);
  const matches = ({ prefix }: Token): boolean =>
    text.length > "pst_".length && (text.startsWith(prefix) || prefix.startsWith(text));
  const found = named.length > 0 ? named : inUse.filter(matches);
  const [token, another] = found;
  if (token === undefined)
    throw new CommandError(
      `No token in use has the name or prefix ${JSON.stringify(text)}; see: plantstore token list`,
    );
  if (another !== undefined)
    throw new CommandError(
      `${JSON.stringify(text)} could be ${found.map((one) => one.name).join(" or ")}; give the name.`,
    );
  return token;
}

function stateOf({ expires, revoked }: Token): string {
  if (revoked !== null) return `revoked ${showTime(revoked)}`;
  return expires !== null && Date.parse(expires) <= Date.now() ? "expired" : "active";
}

const showTime = (time: string | null): string =>
  time === null ? "never" : `${time.slice(0, 16).replace("T", " ")}Z`;
