/** plantstore token: creates, lists and revokes tokens, in the store or through a running service. */

import { type IssuedToken, issueToken, parseGrant, readTokens, summarize } from "../auth/token.ts";
import type { Config } from "../config.ts";
import type { TokenSummary } from "../domain/token.ts";
import {
  askService,
  CommandError,
  type Flags,
  requireFlags,
  splitList,
  type Target,
  withTarget,
} from "./command.ts";
import { printSecret } from "./files.ts";
import { printJson, printLine, printTable } from "./terminal.ts";

export async function createToken(config: Config, flags: Flags): Promise<void> {
  const { name, expires, rate } = flags;
  const scopes = splitList(flags.scopes);
  const request = { name, scopes, expires, rate };
  requireFlags(() => parseGrant(request), flags.scopes);
  const create = (target: Target): Promise<IssuedToken> =>
    target.client === undefined
      ? issueToken(target.store, parseGrant(request))
      : askService(target.client, "POST", "/tokens", request);
  const issued = await withTarget(config, flags, create, { canCreate: true });
  await printSecret(flags.json ? JSON.stringify(issued) : issued.token);
  if (process.stdout.isTTY)
    process.stderr.write(
      "Keep the token: the store has only its hash, so it cannot be shown again.\n",
    );
}

const list = async (target: Target): Promise<readonly TokenSummary[]> =>
  target.client === undefined
    ? (await readTokens(target.store)).map(summarize)
    : Array.fromAsync(target.client.listTokens());

export async function listTokens(config: Config, flags: Flags): Promise<void> {
  const found = (await withTarget(config, flags, list)).toSorted((one, other) =>
    `${one.created} ${one.name}` < `${other.created} ${other.name}` ? -1 : 1,
  );
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

export async function revokeToken(config: Config, flags: Flags, text: string): Promise<void> {
  const { name, prefix } = await withTarget(config, flags, async (target) => {
    const token = findOne(await list(target), text);
    if (target.client !== undefined) await target.client.revokeToken(token.id);
    else {
      const [found] = await target.store.listTokens({ after: token.id, limit: 1 });
      await target.store.revokeToken(found?.hash ?? "", Date.now());
    }
    return token;
  });
  await printLine(`Revoked ${name} (${prefix}…). Running services refuse it within 5 seconds.`);
}

/** By its name or, if none has that name, by its prefix. */
function findOne(tokens: readonly TokenSummary[], text: string): TokenSummary {
  const inUse = tokens.filter((token) => token.revoked === null);
  const named = inUse.filter((token) => token.name === text);
  const matches = ({ prefix }: TokenSummary): boolean =>
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

function stateOf({ expires, revoked }: TokenSummary): string {
  if (revoked !== null) return `revoked ${showTime(revoked)}`;
  return expires !== null && Date.parse(expires) <= Date.now() ? "expired" : "active";
}

const showTime = (time: string | null): string =>
  time === null ? "never" : `${time.slice(0, 16).replace("T", " ")}Z`;
