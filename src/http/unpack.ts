/** Bodies in gzip (RFC 9110, section 8.4), unpacked within bounds. */

import { Refusal } from "../domain/errors.ts";
import type { Service } from "./exchange.ts";
import { retryWhileOverloaded } from "./stream.ts";

/** Bytes that one byte may unpack to. Plants that differ only in their ids stay below, and a bomb does not. */
const GROWTH_MAX = 250;
/** Not counted for that: a small body may well be one long run. */
const GROWTH_FREE_BYTES = 1_048_576;
const PACKED_CHUNK_BYTES = 16_384;
const UNPACKED_CHUNK_BYTES = 65_536;
/** The window, and its tables. */
const UNPACKER_BYTES = 65_536;

/** Unpacks a body, a chunk at a time. Throws a Refusal for one that is damaged, cut off or a bomb. */
export async function* unpack(
  chunks: AsyncIterable<Uint8Array>,
  { packing, config }: Service,
): AsyncGenerator<Uint8Array> {
  const { createGunzip } = await import("node:zlib");
  await retryWhileOverloaded(config.queueSecondsMax, async () => {
    if (!packing.hasRoom(UNPACKER_BYTES, packing.bytesHeld)) throw new Refusal("overloaded");
    packing.bytesHeld += UNPACKER_BYTES;
  });
  const unpacker = createGunzip({ chunkSize: UNPACKED_CHUNK_BYTES });
  let packedBytes = 0;
  const feed = async (): Promise<void> => {
    for await (const chunk of slice(chunks)) {
      packedBytes += chunk.length;
      if (unpacker.destroyed) return;
      if (!unpacker.write(chunk))
        await new Promise<void>((done) => void unpacker.once("drain", done).once("close", done));
    }
    unpacker.end();
  };
  feed().catch((error: unknown) => unpacker.destroy(error as Error));
  let unpackedBytes = 0;
  try {
    for await (const chunk of unpacker as AsyncIterable<Uint8Array>) {
      unpackedBytes += chunk.length;
      if (unpackedBytes > GROWTH_FREE_BYTES + GROWTH_MAX * packedBytes)
        throw new Refusal(
          "body_too_large",
          `The body unpacks to more than ${GROWTH_MAX} times its size.`,
        );
      yield chunk;
    }
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal("invalid_encoding");
  } finally {
    unpacker.destroy();
    packing.bytesHeld -= UNPACKER_BYTES;
  }
}

/** Others have their turn in between: 1 MiB may have 50,000 members. */
async function* slice(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += PACKED_CHUNK_BYTES) {
      yield chunk.subarray(at, at + PACKED_CHUNK_BYTES);
      await new Promise(setImmediate);
    }
}
