/** What a check of any engine comes to, and says in the same words. */

import type { PlantCounts, TokenCounts } from "../store/rows.ts";
import { formatCount } from "./quantity.ts";

/** What a check of any engine comes to. */
export interface Checked {
  /** The store, for people. */
  readonly place: string;
  readonly isSound: boolean;
  readonly rows: readonly (readonly string[])[];
  readonly facts: Readonly<Record<string, unknown>>;
}

export function describePlants(plants: PlantCounts | undefined): string[][] {
  if (plants === undefined) return [];
  const { count, tagged, tags, idMin, idMax } = plants;
  return [
    ["plants", "", show(count)],
    ["ids", "", idMin === null ? "none" : `${idMin} to ${idMax}`],
    ["tags", "", `${show(tags)} different, on ${show(tagged)} of the plants`],
  ];
}

export function describeTokens(tokens: TokenCounts | undefined): string[][] {
  if (tokens === undefined) return [];
  const { active, expired, revoked } = tokens;
  return [
    ["tokens", "", `${show(active)} active, ${show(expired)} expired, ${show(revoked)} revoked`],
  ];
}

/** One row a line, so that the table fits a terminal of 80 columns. */
export function describeFaults(check: string, messages: readonly string[]): string[][] {
  return messages
    .flatMap((message) => message.match(/\S.{0,59}(?=\s|$)|\S+/g) ?? [message])
    .map((line, index) => (index === 0 ? [check, "WRONG", line] : ["", "", line]));
}

const show = (count: bigint): string => formatCount(Number(count));
