/** The bytes of a file, piece by piece, counted. */

export interface Counter {
  bytesRead: number;
}

/** Browsers hand out megabytes at a time, by which no progress could be told. */
const PIECE_BYTES = 65_536;

/** A loop over the stream itself would not do in every browser. */
export async function* readChunks(
  file: Blob,
  counter: Counter,
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
