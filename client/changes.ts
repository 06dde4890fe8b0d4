/** The journal of changes. */

import type { Client } from "./client.ts";
import { findJson, findWaitMs, ServiceError } from "./errors.ts";
import { findNext } from "./plants.ts";
import { retry, type RetryOptions } from "./retry.ts";

interface ChangeContent {
  readonly name: string;
  readonly tag?: string;
}

interface Change {
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

export interface ChangePage {
  readonly changes: readonly Change[];
  /** The `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
}

/** A quote inside a JSON string is escaped, so this finds members only. In quotes the digits stay exact. */
const ID_MEMBER = /"id":(-?\d+)/g;

/** Undefined where the text is not an array of changes. */
function findChanges(json: string): Change[] | undefined {
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

const PAGE_LENGTH = 1_000;

/**
 * A page of the journal, behind this number; 0 begins with the oldest change that is kept. Rejects with `changes_gone`
 * where the journal does not go on from there.
 */
export function listChanges(
  client: Client,
  after: number,
  options: RetryOptions = {},
): Promise<ChangePage> {
  const path = `/changes?after=${after}&limit=${PAGE_LENGTH}`;
  const attempt = async (): Promise<ChangePage> => {
    const response = await client.request(path, { signal: options.signal ?? null });
    const changes = findChanges(await response.text());
    const next = findNext(response.headers);
    if (changes === undefined || next === null)
      throw new ServiceError({ message: "The answer is not one of a plant store." });
    const last = next === undefined ? (changes.at(-1)?.seq ?? after) : Number(next);
    return { changes, last, hasMore: next !== undefined };
  };
  return retry(attempt, options, findWaitMs);
}
