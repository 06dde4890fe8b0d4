/** Answers in a content coding (RFC 9110, section 8.4): zstd or gzip, as the client prefers. */

import { Refusal } from "../domain/errors.ts";
import type { Exchange } from "./exchange.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { answerText, type MoreHeaders } from "./answer.ts";
import { type Choice, chooseCoding, type Coding } from "./query.ts";
import type { Make, Packer } from "./stream.ts";

/** What a resource with several codings says in every answer. */
export const VARY = "Accept, Accept-Encoding";

/** A smaller answer fits into one packet as it is. */
const PACKED_BYTES_MIN = 1_400;
/** Packing less takes less time than a message to another thread. */
const SYNC_BYTES_MAX = 16_384;
/** At its fastest level zstd needs less CPU time than gzip, for nearly the same size. */
const LEVELS: Readonly<Record<Coding, number>> = { zstd: 1, gzip: 4 };
/** A larger window takes more memory, and makes plants no smaller. */
const WINDOW_BITS = 18;
/** Memory of one stream: its window, its tables, and the chunk that is being packed. */
const PACKER_BYTES: Readonly<Record<Coding, number>> = { zstd: 1_048_576, gzip: 524_288 };

const findChoice = ({ request }: Exchange): Choice | undefined =>
  chooseCoding(request.headers.get("accept-encoding"));

/** Answers a page in the coding that the client prefers, if it is worth it. */
export function answerPage(
  exchange: Exchange,
  text: string | Uint8Array,
  headers: MoreHeaders,
): Response | Promise<Response> {
  const choice = findChoice(exchange);
  if (choice === undefined || (text.length < PACKED_BYTES_MIN && !choice.isRequired))
    return answerText(exchange, text, headers);
  const bytes =
    typeof text === "string" ? new TextEncoder().encode(text) : (text as Uint8Array<ArrayBuffer>);
  const { coding } = choice;
  const more = { ...headers, "content-encoding": coding };
  if (bytes.length <= SYNC_BYTES_MAX) return answerText(exchange, packNow(bytes, coding), more);
  exchange.reserve(bytes.length, ANSWERS_SHARE);
  return packLater(bytes, coding).then((packed) => answerText(exchange, packed, more));
}

const packNow = (bytes: Uint8Array<ArrayBuffer>, coding: Coding): Uint8Array =>
  coding === "zstd"
    ? Bun.zstdCompressSync(bytes, { level: LEVELS.zstd })
    : Bun.gzipSync(bytes, { level: LEVELS.gzip as 4 });

/** On a thread of the runtime's pool. */
async function packLater(bytes: Uint8Array<ArrayBuffer>, coding: Coding): Promise<Uint8Array> {
  if (coding === "zstd") return Bun.zstdCompress(bytes, { level: LEVELS.zstd });
  const { gzip } = await import("node:zlib");
  return new Promise((resolve, reject) =>
    gzip(bytes, { level: LEVELS.gzip }, (error, packed) =>
      error ? reject(error) : resolve(packed),
    ),
  );
}

type Chunks = ReturnType<Make>;

/** The coding of a stream; undefined if the client prefers none, or memory is short. Holds its memory from now on. */
export function openPacker(exchange: Exchange): (Packer & { headers: MoreHeaders }) | undefined {
  const { packing } = exchange.service;
  const choice = findChoice(exchange);
  if (choice === undefined) return undefined;
  const { coding, isRequired } = choice;
  const bytes = PACKER_BYTES[coding];
  if (!packing.hasRoom(bytes, packing.bytesHeld)) {
    if (isRequired) throw new Refusal("overloaded");
    return undefined;
  }
  let isHeld = false;
  const hold = (isNeeded: boolean): void => {
    if (isNeeded !== isHeld) packing.bytesHeld += isNeeded ? bytes : -bytes;
    isHeld = isNeeded;
  };
  hold(true);
  return {
    headers: { "content-encoding": coding },
    hold,
    pack: (make) => (signal) => packChunks(make(signal), coding),
  };
}

/** Each chunk is flushed, so the client can unpack it as it arrives. The pool's threads pack. */
async function* packChunks(chunks: Chunks, coding: Coding): Chunks {
  const { constants, createGzip, createZstdCompress } = await import("node:zlib");
  const isZstd = coding === "zstd";
  const params = {
    [constants.ZSTD_c_compressionLevel]: LEVELS.zstd,
    [constants.ZSTD_c_windowLog]: WINDOW_BITS,
  };
  const packer = isZstd ? createZstdCompress({ params }) : createGzip({ level: LEVELS.gzip });
  const flushing = isZstd ? constants.ZSTD_e_flush : constants.Z_SYNC_FLUSH;
  let packed: Uint8Array[] = [];
  packer.on("data", (bytes: Uint8Array) => packed.push(bytes));
  const failed = new Promise<never>((_, reject) => packer.on("error", reject));
  failed.catch(() => undefined);
  const take = (): Uint8Array => {
    const bytes = Buffer.concat(packed);
    packed = [];
    return bytes;
  };
  try {
    for await (const chunk of chunks) {
      packer.write(chunk);
      await Promise.race([failed, new Promise<void>((done) => packer.flush(flushing, done))]);
      const bytes = take();
      if (bytes.length > 0) yield bytes;
    }
    const ended = new Promise<void>((done) => packer.on("end", done));
    packer.end();
    await Promise.race([failed, ended]);
    yield take();
  } finally {
    packer.destroy();
  }
}
