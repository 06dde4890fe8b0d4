/** Bodies in a content coding (RFC 9110, section 8.4): zstd or gzip, unpacked within bounds. */

import { Refusal } from "../domain/errors.ts";
import type { Service } from "./exchange.ts";
import type { Coding } from "./query.ts";
import { retryWhileOverloaded } from "./stream.ts";

/** Bytes that one byte may unpack to. Plants that differ only in their ids stay below, and a bomb does not. */
const GROWTH_MAX = 250;
/** Not counted for that: a small body may well be one long run. */
const GROWTH_FREE_BYTES = 1_048_576;
const PACKED_PIECE_BYTES = 16_384;
const UNPACKED_PIECE_BYTES = 65_536;
/** The window of gzip, and its tables. */
const GUNZIP_BYTES = 65_536;

/** Unpacks a body, a piece at a time. Throws a Refusal for one that is damaged, cut off or a bomb. */
export async function* unpack(
  coding: Coding,
  chunks: AsyncIterable<Uint8Array>,
  { packing, config }: Service,
): AsyncGenerator<Uint8Array> {
  const { constants, createGunzip, createZstdDecompress } = await import("node:zlib");
  const chunkSize = UNPACKED_PIECE_BYTES;
  const params = { [constants.ZSTD_d_windowLogMax]: Math.log2(WINDOW_BYTES_MAX) };
  const unpacker =
    coding === "zstd" ? createZstdDecompress({ chunkSize, params }) : createGunzip({ chunkSize });
  const frames = coding === "zstd" ? new ZstdFrames() : undefined;
  let bytesHeld = 0;
  const hold = (bytes: number): Promise<void> =>
    retryWhileOverloaded(config.queueSecondsMax, async () => {
      // After the end nobody would release them.
      if (bytes <= bytesHeld || unpacker.destroyed) return;
      if (!packing.hasRoom(bytes - bytesHeld, packing.bytesHeld - bytesHeld))
        throw new Refusal("overloaded");
      packing.bytesHeld += bytes - bytesHeld;
      bytesHeld = bytes;
    });
  let packedBytes = 0;
  const feed = async (): Promise<void> => {
    for await (const chunk of slice(chunks)) {
      packedBytes += chunk.length;
      frames?.add(chunk);
      await hold(frames?.windowBytes ?? GUNZIP_BYTES);
      if (unpacker.destroyed) return;
      if (!unpacker.write(chunk))
        await new Promise<void>((done) => void unpacker.once("drain", done).once("close", done));
    }
    frames?.requireEnd();
    unpacker.end();
  };
  feed().catch((error: unknown) => unpacker.destroy(error as Error));
  let unpackedBytes = 0;
  try {
    for await (const piece of unpacker as AsyncIterable<Uint8Array>) {
      unpackedBytes += piece.length;
      if (unpackedBytes > GROWTH_FREE_BYTES + GROWTH_MAX * packedBytes)
        throw new Refusal(
          "body_too_large",
          `The body unpacks to more than ${GROWTH_MAX} times its size.`,
        );
      yield piece;
    }
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal("invalid_encoding");
  } finally {
    unpacker.destroy();
    packing.bytesHeld -= bytesHeld;
  }
}

/** Others have their turn in between: 1 MiB may have 100,000 frames. */
async function* slice(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += PACKED_PIECE_BYTES) {
      yield chunk.subarray(at, at + PACKED_PIECE_BYTES);
      await new Promise(setImmediate);
    }
}

/** RFC 9659: no encoder uses a larger window for this coding. */
const WINDOW_BYTES_MAX = 8_388_608;
const ZSTD_MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a5;

/**
 * The frames of a zstd body (RFC 8878, section 3), to tell where they end: the runtime's decoder takes a body that was
 * cut off for complete. They also tell how much memory it takes to unpack them.
 */
class ZstdFrames {
  windowBytes = 0;
  private bytesSkipped = 0;
  private head: number[] = [];
  private isBetween = true;
  private frames = 0;
  private readonly walk = this.walkFrames();
  private needed = this.walk.next().value;

  add(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length;) {
      const skipped = Math.min(this.bytesSkipped, chunk.length - at);
      this.bytesSkipped -= skipped;
      at += skipped;
      if (at === chunk.length) return;
      this.head.push(chunk[at++] as number);
      if (this.head.length < this.needed) continue;
      const head = Buffer.from(this.head);
      this.head = [];
      this.needed = this.walk.next(head).value;
    }
  }

  requireEnd(): void {
    const isEnd = this.isBetween && this.head.length === 0 && this.bytesSkipped === 0;
    if (!isEnd || this.frames === 0) throw new Refusal("invalid_encoding");
  }

  /** Yields the length of each header, and gets its bytes. Before that, `bytesSkipped` are passed over. */
  private *walkFrames(): Generator<number, never, Buffer> {
    for (; ; this.frames++) {
      this.isBetween = true;
      const magic = (yield 4).readUInt32LE();
      this.isBetween = false;
      if (magic === ZSTD_MAGIC) yield* this.walkFrame();
      else if (magic >>> 4 === SKIPPABLE_MAGIC) this.bytesSkipped = (yield 4).readUInt32LE();
      else throw new Refusal("invalid_encoding");
    }
  }

  private *walkFrame(): Generator<number, void, Buffer> {
    const descriptor = (yield 1).readUInt8();
    const isSingle = (descriptor & 0x20) !== 0;
    const checksumBytes = (descriptor & 0x04) === 0 ? 0 : 4;
    const place = (isSingle ? 0 : 1) + ([0, 1, 2, 4][descriptor & 3] as number);
    const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6] as number;
    const rest = yield place + sizeBytes;
    const window = isSingle ? readSize(rest.subarray(place)) : readWindow(rest.readUInt8());
    if (window > WINDOW_BYTES_MAX)
      throw new Refusal(
        "invalid_encoding",
        `The body needs a window of more than ${WINDOW_BYTES_MAX} bytes (RFC 9659).`,
      );
    this.windowBytes = Math.max(this.windowBytes, window);
    for (let isLast = false; !isLast;) {
      const block = (yield 3).readUIntLE(0, 3);
      isLast = (block & 1) === 1;
      // A run of one byte has its length, and the byte.
      const isRun = ((block >> 1) & 3) === 1;
      this.bytesSkipped = (isRun ? 1 : block >> 3) + (isLast ? checksumBytes : 0);
    }
  }
}

const readWindow = (descriptor: number): number =>
  2 ** (10 + (descriptor >> 3)) * (1 + (descriptor & 7) / 8);

/** The size of a frame's content, which is also its window. With two bytes it is 256 more. */
function readSize(bytes: Buffer): number {
  if (bytes.length === 8) return Number(bytes.readBigUInt64LE());
  return bytes.readUIntLE(0, bytes.length) + (bytes.length === 2 ? 256 : 0);
}
