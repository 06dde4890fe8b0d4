/** What the store has of a file's plants already. */

import type { Client } from "../../../client/client.ts";
import { Refusal } from "../../domain/errors.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import type { Comparison, Difference, Reading } from "./messages.ts";
import { readRecords } from "./preview.ts";

/** More than these are not compared, and the page says so. */
const ROWS_MAX = 200_000;
const DIFFERENCES_MAX = 10_000;
const DIFFERENCES_SHOWN = 50;
const PAGE_LENGTH_MAX = 1000;

export const isSame = (one: Plant, other: Plant | undefined): boolean =>
  one.id === other?.id && one.name === other.name && one.tag === other.tag;

/** Reads the whole file, block by block. Yields how far it came after each. */
export async function* compare(
  file: File,
  reading: Reading,
  client: Client,
): AsyncGenerator<Comparison> {
  const counts = { created: 0, same: 0, refused: 0 };
  const all: Difference[] = [];
  const counter = { bytesRead: 0 };
  const describe = (end?: Comparison["end"]): Comparison => ({
    ...counts,
    different: all.length,
    differences: end === undefined ? all.slice(0, DIFFERENCES_SHOWN) : all,
    share: Math.min(1, counter.bytesRead / Math.max(1, file.size)),
    end,
  });
  let rows = 0;
  try {
    for await (const records of readRecords(file, reading, counter)) {
      if (rows >= ROWS_MAX || all.length >= DIFFERENCES_MAX) return yield describe("partial");
      rows += records.length;
      const given = records.flatMap(({ plant }) => (plant instanceof Refusal ? [] : [plant]));
      counts.refused += records.length - given.length;
      const stored = await findStored(given, client);
      for (const plant of given) {
        const found = stored.get(plant.id);
        if (found === undefined) counts.created++;
        else if (isSame(plant, found)) counts.same++;
        else all.push({ stored: found, given: plant });
      }
      yield describe();
    }
    yield describe("complete");
  } catch {
    // Comparing is a service to the reader; the import itself says what is wrong with the file or the store.
    yield describe("failed");
  }
}

/** Walks over the ids in pages: where ids are dense they share large ones, and where they are sparse each has a small one. */
async function findStored(
  given: readonly Plant[],
  client: Client,
): Promise<ReadonlyMap<bigint, Plant>> {
  const ids = given.map(({ id }) => id).toSorted((one, other) => (one < other ? -1 : 1));
  const found = new Map<bigint, Plant>();
  let limit = 100;
  for (let at = 0; at < ids.length;) {
    const first = ids[at] as bigint;
    const after = first === INT64_MIN ? undefined : first - 1n;
    const { plants, next } = await client.listPage({ after, limit });
    for (const plant of plants) found.set(plant.id, plant);
    const last = next ?? INT64_MAX;
    const end = ids.findIndex((id, index) => index >= at && id > last);
    const passed = (end === -1 ? ids.length : end) - at;
    at += passed;
    limit = Math.max(1, Math.min(PAGE_LENGTH_MAX, passed > limit / 4 ? limit * 4 : limit >> 2));
  }
  return found;
}
