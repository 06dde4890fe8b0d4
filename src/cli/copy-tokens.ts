/** Tokens from store to store, so that clients go on with those they have. */

import type { TokenRecord } from "../domain/token.ts";
import type { Side } from "./copy-side.ts";

export interface TokenTally {
  copied: number;
  /** They were there already. */
  present: number;
  /** Not as in the source, and left alone: what the target has revoked stays so. */
  different: number;
  /** In the target only, and left alone. */
  extra: number;
}

/** What either store had when the tokens were copied. */
export interface CopiedTokens {
  readonly tally: TokenTally;
  /** Not copied: another token of the target, which is not revoked, has the name. */
  readonly collisions: readonly TokenRecord[];
  readonly different: readonly TokenRecord[];
  readonly from: readonly TokenRecord[];
  /** Those of the source only, as the target has them. */
  readonly to: readonly TokenRecord[];
}

export async function copyTokens(from: Side, to: Side): Promise<CopiedTokens> {
  const ours = await listTokens(from);
  const before = byHash(await listTokens(to));
  const collisions = ours.length === 0 ? [] : await to.attempt((store) => store.adoptTokens(ours));
  const theirs = pick(ours, await listTokens(to));
  const after = byHash(theirs);
  const different = ours.filter((token) => !isSame(token, after.get(token.hash)));
  const present = ours.filter(({ hash }) => before.has(hash)).length;
  const tally = {
    copied: theirs.length - present,
    present,
    different: different.length - collisions.length,
    extra: before.size - present,
  };
  return { tally, collisions, different, from: ours, to: theirs };
}

/** Which of the two has other tokens now, or as good as other ones, than when they were copied. */
export async function findTokenChanges(
  from: Side,
  to: Side,
  copied: CopiedTokens,
): Promise<{ readonly from: boolean; readonly to: boolean }> {
  const ours = await listTokens(from);
  const theirs = pick(copied.from, await listTokens(to));
  return { from: !areSame(copied.from, ours), to: !areSame(copied.to, theirs) };
}

const listTokens = (side: Side): Promise<TokenRecord[]> =>
  side.attempt((store) => store.listTokens());

const byHash = (tokens: readonly TokenRecord[]): Map<string, TokenRecord> =>
  new Map(tokens.map((token) => [token.hash, token]));

function pick(wanted: readonly TokenRecord[], tokens: readonly TokenRecord[]): TokenRecord[] {
  const hashes = byHash(wanted);
  return tokens.filter(({ hash }) => hashes.has(hash));
}

function areSame(before: readonly TokenRecord[], now: readonly TokenRecord[]): boolean {
  const known = byHash(before);
  return before.length === now.length && now.every((token) => isSame(token, known.get(token.hash)));
}

/** When it was used last, and since when it is revoked, changes nothing about what its bearer may do. */
function isSame(one: TokenRecord, other: TokenRecord | undefined): boolean {
  return (
    other !== undefined &&
    one.hash === other.hash &&
    one.prefix === other.prefix &&
    one.name === other.name &&
    one.scopes.join(" ") === other.scopes.join(" ") &&
    one.createdAtMs === other.createdAtMs &&
    one.expiresAtMs === other.expiresAtMs &&
    (one.revokedAtMs === undefined) === (other.revokedAtMs === undefined)
  );
}
