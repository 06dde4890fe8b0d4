/** The journal of changes. */

import { findJson } from "./errors.ts";
import { formatId } from "./plants.ts";

interface ChangeContent {
  readonly name: string;
  readonly tag?: string;
}

export interface Change {
  readonly seq: number;
  /** ISO 8601. */
  readonly time: string;
  readonly type: "created" | "replaced" | "removed";
  readonly id: bigint;
  /** The name of the token. */
  readonly by?: string;
  /** The plant since this change. */
  readonly plant?: ChangeContent;
  /** The plant until this change. */
  readonly before?: ChangeContent;
}

export interface ChangeQuery {
  /** The number of the last change seen; 0, or nothing, begins with the oldest one that is kept. */
  readonly after?: number | undefined;
  /** Only changes of this plant. */
  readonly id?: bigint | undefined;
  /** Only these. */
  readonly types?: readonly Change["type"][] | undefined;
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /** The `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
}

/** A quote inside a JSON string is escaped, so this finds members only. In quotes the digits stay exact. */
export const ID_MEMBER = /"id":(-?\d+)/g;

/** Undefined if the text is not an array of changes. */
export function findChanges(json: string): Change[] | undefined {
  const found = findJson(json.replaceAll(ID_MEMBER, '"id":"$1"'));
  if (!Array.isArray(found) || !found.every(isChange)) return undefined;
  return found.map(
    (change) => Object.assign(change, { id: BigInt(change.id) }) as unknown as Change,
  );
}

function isChange(value: unknown): value is Record<"id", string> {
  const { seq, time, type, id } = (value ?? {}) as Record<keyof Change, unknown>;
  return (
    Number.isSafeInteger(seq) &&
    typeof time === "string" &&
    typeof type === "string" &&
    typeof id === "string"
  );
}

export function formatChangeQuery({ after = 0, id, types }: ChangeQuery): string {
  const filter =
    (id === undefined ? "" : `&id=${formatId(id)}`) + (types ? `&type=${types.join(",")}` : "");
  return `?after=${after}${filter}`;
}
