/** The records of a file, read exactly as `plantstore import` reads them. */

import { Refusal } from "../../domain/errors.ts";
import { type FileFormat, type PlantRecord, readPlants } from "../../format/plants.ts";
import type { Reading } from "./messages.ts";

/** The service's default limit, with room for the id. */
export const RECORD_BYTES_MAX = 1_048_576 + 64;
export const BLOCK_LENGTH_MAX = 2000;

export function formatOf({ kind, delimiter, mapping }: Reading): FileFormat {
  if (kind !== "csv" || mapping === undefined) return { kind: kind === "json" ? kind : "ndjson" };
  const { id = "id", name = "name", tag } = mapping;
  return { kind, headings: tag === undefined ? { id, name } : { id, name, tag }, delimiter };
}

export async function* readRecords(
  chunks: AsyncIterable<Uint8Array>,
  reading: Reading,
  onHeading?: (heading: string) => void,
): AsyncGenerator<PlantRecord[]> {
  const hasNoTags = reading.kind === "csv" && reading.mapping?.tag === undefined;
  const records = readPlants(chunks, formatOf(reading), {
    recordBytesMax: RECORD_BYTES_MAX,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: reading.encoding,
    onHeading,
  });
  for await (const block of records) yield hasNoTags ? block.map(withoutTag) : block;
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
