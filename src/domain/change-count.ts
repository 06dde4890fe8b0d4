/** Counts of changes by person, batch and time: the journal as a picture. Counts of two pages can be added up. */

import {
  type Change,
  type ChangeCount,
  type ChangeQuery,
  changeTypes,
  type CountGroup,
  countGroups,
  type Grouping,
} from "./change.ts";
import type { StoreView } from "./store.ts";

/** A list of distinct groups; undefined for anything else. */
export function findCountGroups(text: string): readonly CountGroup[] | undefined {
  const groups = text.split(",") as CountGroup[];
  const isSound = groups.every((group) => countGroups.includes(group));
  return isSound && new Set(groups).size === groups.length ? groups : undefined;
}

/** Counts changes in groups. */
export function createTally({ group, everyMs }: Grouping) {
  const groups = new Map<string, ChangeCount>();
  const isBy = group.includes("by");
  const isOfBatch = group.includes("batch");
  let recent: ChangeCount | undefined;
  const find = (startMs: number | undefined, by: string | undefined, batch: string | undefined) => {
    // Names contain no newline.
    const key = `${startMs}\n${by ?? ""}\n${batch ?? ""}`;
    return { key, known: groups.get(key) };
  };
  return {
    get size(): number {
      return groups.size;
    },

    list: (): readonly ChangeCount[] => [...groups.values()],

    /** False if that would be another group than `groupsMax`. */
    add({ seq, atMs, type, by: who, batch: what }: Change, groupsMax: number): boolean {
      const startMs = everyMs === undefined ? undefined : Math.floor(atMs / everyMs) * everyMs;
      const [by, batch] = [isBy ? who : undefined, isOfBatch ? what : undefined];
      // Most changes belong to the group of the one before.
      const isSame = recent?.by === by && recent?.batch === batch && recent?.startMs === startMs;
      const { key, known } =
        isSame && recent !== undefined ? { key: "", known: recent } : find(startMs, by, batch);
      recent = known;
      if (known === undefined) {
        if (groups.size === groupsMax) return false;
        const counts = { created: 0, replaced: 0, removed: 0, [type]: 1 };
        const ends = { first: seq, firstMs: atMs, last: seq, lastMs: atMs };
        groups.set(key, { startMs, by, batch, ...counts, ...ends });
        return true;
      }
      known[type]++;
      if (seq < known.first) [known.first, known.firstMs] = [seq, atMs];
      if (seq > known.last) [known.last, known.lastMs] = [seq, atMs];
      return true;
    },

    /** Adds the counts of another page. */
    merge(counts: readonly ChangeCount[]): void {
      for (const each of counts) {
        const { key, known } = find(each.startMs, each.by, each.batch);
        if (known === undefined) {
          groups.set(key, each);
          continue;
        }
        for (const type of changeTypes) known[type] += each[type];
        const { first, firstMs, last, lastMs } = each;
        if (first < known.first) Object.assign(known, { first, firstMs });
        if (last > known.last) Object.assign(known, { last, lastMs });
      }
    },
  };
}

/** Between two answers of a long count. */
const COUNT_MS_MAX = 1_000;

interface CountedChanges {
  /** The group with the newest change is first. */
  readonly counts: readonly ChangeCount[];
  /** The cursor of the older changes; undefined if all were counted. */
  readonly next: number | undefined;
  readonly newest: number;
}

/**
 * From the newest change back, until `limit` groups are full, or for about a second. The store reads in pieces, between
 * which others take turns.
 */
export async function countChanges(
  store: Pick<StoreView, "readChanges">,
  { limit, ...query }: ChangeQuery & { readonly count: Grouping },
  now = () => performance.now(),
): Promise<CountedChanges> {
  const endsAtMs = now() + COUNT_MS_MAX;
  const tally = createTally(query.count);
  for (let { after } = query; ;) {
    // A group that is known may be found again, so the tally never exceeds the limit.
    const piece = { ...query, order: "desc", after, limit: limit - tally.size } as const;
    const { counts = [], last, hasMore, newest } = await store.readChanges(piece);
    tally.merge(counts);
    after = last;
    const isDone = tally.size === limit || now() > endsAtMs;
    if (!hasMore || isDone)
      return { counts: tally.list(), next: hasMore ? last : undefined, newest };
  }
}
