/** The journal, read or counted from the newest change back. */

import type { Change, ChangeCount, ChangeCountQuery, ChangeQuery } from "../../client/client.ts";
import { call } from "./service.ts";

interface ChangesBack {
  /** Newest first. */
  readonly changes: readonly Change[];
  /** The cursor of the older changes; undefined if there are none. */
  readonly next: number | undefined;
}

/** Reads pages until one has changes, or the journal begins. With a filter a page may be empty. */
export async function readBack(query: ChangeQuery, signal?: AbortSignal): Promise<ChangesBack> {
  return call(async (client) => {
    for (let { after } = query; ;) {
      const page = await client.listChangePage({ ...query, order: "desc", after }, { signal });
      const next = page.hasMore ? page.last : undefined;
      if (page.changes.length > 0 || next === undefined) return { changes: page.changes, next };
      after = next;
    }
  });
}

/** The newest change of a plant; undefined if the journal does not tell. */
export async function findLastChange(
  id: bigint,
  signal?: AbortSignal,
): Promise<Change | undefined> {
  const found = await readBack({ id, limit: 1 }, signal).catch(() => undefined);
  return found?.changes[0];
}

/** Counts from the newest change back, page by page, and adds up those of a group. */
export async function countChanges(
  query: ChangeCountQuery,
  signal?: AbortSignal,
  pagesMax = Number.POSITIVE_INFINITY,
): Promise<ChangeCount[]> {
  const groups = new Map<string, ChangeCount>();
  await call(async (client) => {
    let after: number | undefined = 0;
    for (let pages = 0; pages < pagesMax && after !== undefined; pages++) {
      const page = await client.countChangePage({ ...query, after }, { signal });
      for (const count of page.counts) {
        const key = `${count.start}\n${count.by}\n${count.batch}`;
        const known = groups.get(key);
        groups.set(key, known === undefined ? count : add(count, known));
      }
      after = page.next;
    }
  });
  return [...groups.values()];
}

/** The older one is from a later page. */
const add = (older: ChangeCount, known: ChangeCount): ChangeCount => ({
  ...known,
  created: known.created + older.created,
  replaced: known.replaced + older.replaced,
  removed: known.removed + older.removed,
  first: older.first,
  firstTime: older.firstTime,
});
