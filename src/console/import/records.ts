/** The records of a file, read exactly as `plantstore import` reads them. */

import { Refusal } from "../../domain/errors.ts";
import { type PlantRecord, readPlants } from "../../format/plants.ts";
import type { Reading } from "./messages.ts";

/** The service's default limit, with room for the id. */
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

/** The person chose no column for tags, although one may be named so. */
function withoutTag(record: PlantRecord): PlantRecord {
  if (record.plant instanceof Refusal) return record;
  return { ...record, plant: { ...record.plant, tag: undefined } };
}

/** Browsers hand out megabytes at a time, too coarse for a progress bar. */
const PIECE_BYTES = 65_536;

/** Uses a reader because not every browser can iterate over a stream. */
export async function* readChunks(
  file: Blob,
  counter = { bytesRead: 0 },
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const reader = file.stream().getReader();
  try {
    for (;;) {
      signal?.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) return;
      for (let start = 0; start < value.length; start += PIECE_BYTES) {
        const piece = value.subarray(start, start + PIECE_BYTES);
        counter.bytesRead += piece.length;
        yield piece;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
