/** The records of a file, understood exactly as `plantstore import` understands them. */

import { Refusal } from "../../domain/errors.ts";
import { type PlantRecord, readPlants } from "../../format/read-plants.ts";
import type { Reading } from "./messages.ts";

/** As large as the service takes by default, with its id. */
export const RECORD_BYTES_MAX = 1_048_576 + 64;
export const BLOCK_LENGTH_MAX = 2000;

export async function* readRecords(
  chunks: AsyncIterable<Uint8Array>,
  { kind, delimiter, mapping }: Reading,
): AsyncGenerator<PlantRecord[]> {
  const bounds = { recordBytesMax: RECORD_BYTES_MAX, blockLengthMax: BLOCK_LENGTH_MAX };
  if (kind !== "csv" || mapping === undefined) {
    yield* readPlants(chunks, kind === "json" ? { kind } : { kind: "ndjson" }, bounds);
    return;
  }
  const { id = "id", name = "name", tag } = mapping;
  const headings = tag === undefined ? { id, name } : { id, name, tag };
  for await (const records of readPlants(chunks, { kind, headings, delimiter }, bounds))
    yield tag === undefined ? records.map(withoutTag) : records;
}

/** Nobody wants the tags, although there is a column of that name. */
function withoutTag(record: PlantRecord): PlantRecord {
  if (record.plant instanceof Refusal) return record;
  return { ...record, plant: { ...record.plant, tag: undefined } };
}
