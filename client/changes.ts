/** The journal of changes. */

import { findJson } from "./errors.ts";
import { type Content, formatId } from "./plants.ts";

interface ChangeFacts {
  readonly seq: number;
  /** ISO 8601. */
  readonly time: string;
  readonly id: bigint;
  /** The name of the token that made the change. */
  readonly by?: string;
}

/** `plant` is the plant after this change, `before` the one it replaced or removed. */
export type Change =
  | (ChangeFacts & {
      readonly type: "created";
      readonly plant: Content;
      readonly before?: undefined;
    })
  | (ChangeFacts & {
      readonly type: "replaced";
      readonly plant: Content;
      readonly before: Content;
    })
  | (ChangeFacts & {
      readonly type: "removed";
      readonly plant?: undefined;
      readonly before: Content;
    });

export interface ChangeQuery {
  /** The cursor: the number of the last change seen. 0 or undefined starts at the oldest change in the journal. */
  readonly after?: number | undefined;
  /** Only changes of this plant. */
  readonly id?: bigint | undefined;
  /** Only changes of these types. */
  readonly types?: readonly Change["type"][] | undefined;
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /** The `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
  /** The number of the newest change in the journal, whatever the filter. */
  readonly newest: number;
}

/** Matches members only, because quotes inside JSON strings are escaped. Quoting the digits keeps them exact. */
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
  const { seq, time, type, id, plant, before } = (value ?? {}) as Record<keyof Change, unknown>;
  return (
    Number.isSafeInteger(seq) &&
    typeof time === "string" &&
    typeof type === "string" &&
    typeof id === "string" &&
    (type === "removed" || hasName(plant)) &&
    (type === "created" || hasName(before))
  );
}

const hasName = (value: unknown): boolean =>
  typeof (value as Partial<Content> | null | undefined)?.name === "string";

/** Parses the header `Last-Change`; undefined without one. */
export function findNewest(headers: Headers): number | undefined {
  const newest = headers.get("last-change");
  return newest !== null && /^\d{1,16}$/.test(newest) ? Number(newest) : undefined;
}

export function formatChangeQuery({ after = 0, id, types }: ChangeQuery): string {
  const filter =
    (id === undefined ? "" : `&id=${formatId(id)}`) + (types ? `&type=${types.join(",")}` : "");
  return `?after=${after}${filter}`;
}
