/** The journal, read from the newest change back. */

import type { Change, ChangeQuery } from "../../client/client.ts";
import { call } from "./service.ts";

export interface ChangesBack {
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
