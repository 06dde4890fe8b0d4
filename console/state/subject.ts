/** What an action is about. It is captured when the action is asked for, and never read from the page again. */

import type { BulkFilter, Change, Client } from "../../client/client.ts";
import { createFilter, narrows, pickFilter } from "../../src/domain/filter.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import type { ListFilter, TimedPlant } from "../api/plants.ts";
import { type Selection, sortAll } from "./plant-list.ts";

/** What an action is about. */
export interface Subject {
  /** Each of these, as it was shown. */
  readonly plants: readonly Plant[];
  /** All that match, beside these. */
  readonly matching?: Matching | undefined;
}

/** Ids are texts, because it is kept in the storage of the tab. */
export interface Matching {
  readonly filter: ListFilter;
  readonly except: readonly string[];
  /** The number of these that were in the list. */
  readonly excepted: number;
}

interface Shown {
  readonly filter: ListFilter;
  readonly plants: readonly Plant[];
  /** The plant that is listed for its id alone: the filter does not find it. */
  readonly onlyById: Plant | undefined;
}

/** For files and entity tags, which have no time. */
export const withoutTime = ({ id, name, tag }: Plant): Plant => ({ id, name, tag });

export function capture({ isAll, ids }: Selection, { filter, plants, onlyById }: Shown): Subject {
  const picked = plants.filter(({ id }) => ids.has(id)).map(withoutTime);
  if (!isAll) return { plants: picked };
  const isExcepted = onlyById === undefined || ids.has(onlyById.id);
  return {
    plants: isExcepted ? [] : [withoutTime(onlyById)],
    matching: { filter, except: Array.from(ids, String), excepted: picked.length },
  };
}

/**
 * What is left of it after these changes: a plant that someone has changed is not the one that was asked about.
 * Undefined if the changes do not concern it.
 */
export function keepUnchanged(subject: Subject, changes: readonly Change[]): Subject | undefined {
  const { plants, matching } = subject;
  const latest = new Map(changes.map((change) => [change.id, change.plant]));
  const isLeft = (plant: Plant): boolean => {
    const now = latest.get(plant.id);
    return !latest.has(plant.id) || (now !== undefined && isSame({ ...now, id: plant.id }, plant));
  };
  const left = plants.filter(isLeft);
  const accepts = createFilter(matching?.filter ?? {});
  const isFound = ({ id, plant, before }: Change): boolean =>
    matching?.except.includes(String(id)) === false &&
    [plant, before].some((content) => content !== undefined && accepts({ ...content, id }));
  if (left.length === plants.length && !changes.some(isFound)) return undefined;
  return { ...subject, plants: left };
}

export const toBulkFilter = ({ filter, except }: Matching): BulkFilter => ({
  ...pickFilter(filter),
  ...(narrows(filter) ? {} : { all: true }),
  except: except.map(BigInt),
});

/** Plants of a sorted list that are written to a file at once. */
const BLOCK_LENGTH = 10_000;

/** In the order of the list. */
export async function* readSubject(
  client: Client,
  { plants: named, matching }: Subject,
  { signal: ended }: { readonly signal: AbortSignal },
): AsyncGenerator<readonly Plant[], void> {
  if (named.length > 0) yield named;
  if (matching === undefined) return;
  const { filter } = matching;
  const { sort, order } = filter;
  const except = new Set(matching.except.map(BigInt));
  const query = {
    ...pickFilter(filter),
    order: sort === undefined ? order : undefined,
    include: sort === "changed" ? sort : undefined,
  };
  const plants: TimedPlant[] = [];
  for await (const block of client.exportBlocks(query, { signal: ended })) {
    const found = block.filter(({ id }) => !except.has(id));
    if (sort === undefined) yield found;
    else plants.push(...found);
  }
  // Sorted here: each sorted page makes the service scan the whole store.
  const sorted = sortAll(filter, plants);
  for (let at = 0; at < sorted.length; at += BLOCK_LENGTH)
    yield sorted.slice(at, at + BLOCK_LENGTH).map(withoutTime);
}
