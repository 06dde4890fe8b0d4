/** Counts of changes, for the views that are not part of the first one. */

import { useEffect, useRef } from "preact/hooks";
import type { Change, ChangeCount, ChangeCountQuery } from "../../client/client.ts";
import { countChanges } from "../api/changes.ts";
import { arrived } from "../state/feed.ts";
import { addArrived } from "../state/journal.ts";
import type { ChangeFilter } from "../state/route.ts";
import { useRead } from "./read.ts";

/** Counts that stay true while changes arrive, also those that arrive during the count. */
export function useCounts(
  filter: ChangeFilter,
  {
    pagesMax,
    ...query
  }: Pick<ChangeCountQuery, "group" | "every"> & { readonly pagesMax?: number },
  inputs: readonly unknown[] = [],
) {
  const { type, id: _, ...range } = filter;
  const early = useRef<readonly Change[]>(undefined);
  const read = async (ended: AbortSignal): Promise<readonly ChangeCount[]> => {
    early.current = [];
    const wanted = { ...range, types: type && [type], ...query };
    const counts = await countChanges(wanted, ended, pagesMax);
    const all = addArrived(counts, early.current, filter, query);
    early.current = undefined;
    return all;
  };
  const counts = useRead(read, inputs);
  useEffect(() => {
    early.current &&= [...early.current, ...arrived.value];
    counts.update((known) => addArrived(known, arrived.value, filter, query));
  }, [arrived.value]);
  return counts;
}
