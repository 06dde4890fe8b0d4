/** Reads request bodies: JSON in UTF-8, within bounds of one body's size, of all bodies' sizes, and of time. */

import { Refusal } from "../domain/errors.ts";
import { Bytes } from "../format/records.ts";
import { within } from "../store/batcher.ts";

/** The type of the body. Throws a Refusal unless it is one of these, in UTF-8 and not compressed. */
export function requireType(headers: Headers, ...allowed: readonly string[]): string {
  const contentType = headers.get("content-type") ?? "";
  const type = contentType === allowed[0] ? contentType : findUtf8Type(contentType, allowed);
  if (type === undefined)
    throw new Refusal(
      "unsupported_media_type",
      `The body must be declared as ${allowed.join(" or ")}, in UTF-8.`,
    );
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.trim().toLowerCase() !== "identity")
    throw new Refusal("unsupported_encoding");
  return type;
}

/** A parameter of a media type, RFC 9110 section 5.6.6: a token or a quoted string. */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)|"((?:[^"\\]|\\.)*)")[ \t]*$/;

function findUtf8Type(contentType: string, allowed: readonly string[]): string | undefined {
  const [first = "", ...parameters] = contentType.split(";");
  const type = first.trim().toLowerCase();
  const isAllowed = allowed.includes(type) && parameters.every(isUtf8OrOther);
  return isAllowed ? type : undefined;
}

/** Any parameter but a charset other than UTF-8. */
function isUtf8OrOther(parameter: string): boolean {
  // The grammar allows an empty parameter, as in "application/json;".
  if (parameter.trim() === "") return true;
  const match = PARAMETER.exec(parameter);
  if (match === null) return false;
  const [, name = "", token, quoted] = match;
  return name.toLowerCase() !== "charset" || (token ?? quoted)?.toLowerCase() === "utf-8";
}

/** A collection takes some milliseconds, and making so much text many times as long. */
const COLLECT_CHARACTERS = 8_388_608;
/** Less is ordinary, and left to the collector. */
const LARGE_CHARACTERS = 262_144;
/** A body is also decoded and parsed, which makes more text and values than it has bytes. */
const PARSED_PARTS = 3;
/** An eighth of the bound, besides it. */
const LINGERING_PARTS = 8;
/** What a line of a batch takes while it is being stored. It may be as short as its id. */
const LINE_BYTES = 800;
/** A quarter of the bound, besides it. */
const LINES_PARTS = 4;

/**
 * The bytes of all bodies that are being received, and of all large answers that wait to be sent, within one bound.
 * What each request holds is part of its Exchange.
 */
export class Memory {
  readonly bytesMax: number;
  bytesHeld = 0;
  private bytesLingering = 0;
  private bytesOfLines = 0;
  /** Lines that wait for room. The oldest come first. */
  private readonly linesWaiting: { readonly bytes: number; readonly begin: () => void }[] = [];
  private charactersMade = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /**
   * For a refused body whose rest is read. This has a small share of its own, because any client can have one: it takes
   * no room from those with a token. Returns what releases it; undefined if the share is taken.
   */
  holdLingering(bytes: number): (() => void) | undefined {
    if (this.bytesLingering * LINGERING_PARTS > this.bytesMax) return undefined;
    this.bytesLingering += bytes;
    return () => (this.bytesLingering -= bytes);
  }

  /**
   * Resolves when there is room for so many lines to be stored, to what releases it. The lines of many batches wait
   * for each other here, where they are short texts, and not in the queue of the store, where they take much more.
   * Rejects with a Refusal when they have waited too long, or with the reason of the signal.
   */
  async holdLines(lines: number, msMax: number, signal: AbortSignal): Promise<() => void> {
    const { promise, resolve: begin } = Promise.withResolvers<void>();
    const waiting = { bytes: lines * LINE_BYTES, begin };
    this.linesWaiting.push(waiting);
    this.beginLines();
    if (this.linesWaiting.includes(waiting)) await within(msMax, promise, signal);
    const place = this.linesWaiting.indexOf(waiting);
    if (place !== -1) {
      this.linesWaiting.splice(place, 1);
      signal.throwIfAborted();
      throw new Refusal("overloaded");
    }
    return () => {
      this.bytesOfLines -= waiting.bytes;
      this.beginLines();
    };
  }

  private beginLines(): void {
    while (this.bytesOfLines * LINES_PARTS <= this.bytesMax) {
      const next = this.linesWaiting.shift();
      if (next === undefined) return;
      this.bytesOfLines += next.bytes;
      next.begin();
    }
  }

  /** Large texts become garbage faster than the collector notices on a busy machine, so it is told. */
  noteText(characters: number): void {
    if (characters < LARGE_CHARACTERS && !this.isCrowded) return;
    this.charactersMade += characters;
    if (this.charactersMade < COLLECT_CHARACTERS) return;
    this.charactersMade = 0;
    Bun.gc(true);
  }

  /** Throws a Refusal if there is no room for so many more bytes. */
  requireRoom(bytes: number): void {
    if (this.bytesHeld + bytes > this.bytesMax) throw new Refusal("overloaded");
  }

  get isHalfTaken(): boolean {
    return this.bytesHeld * 2 > this.bytesMax;
  }

  /** Whether even small texts are to be collected soon. */
  get isCrowded(): boolean {
    return this.isHalfTaken || this.linesWaiting.length > 0;
  }
}

/** The runtime takes up to this much of a body off the network before the service reads it, as measured. */
const UNREAD_BYTES_MAX = 1_572_864;

/** What the runtime may hold of a body that has not been read. One body fits, however small the bound. */
export function countUnread({ headers }: Request, { bytesMax }: Memory): number {
  const declared = headers.get("content-length");
  const isUnknown = declared === null && headers.has("transfer-encoding");
  const length = isUnknown ? Number.POSITIVE_INFINITY : Number.parseInt(declared ?? "0", 10);
  return Math.min(length, UNREAD_BYTES_MAX, bytesMax / 2);
}

interface BodyLimits {
  readonly bodyBytesMax: number;
  readonly readSecondsMax: number;
}

/** An exchange whose body is received. */
interface Receiving {
  readonly request: Request;
  readonly bytesKept: number;
  hold(bytes: number): void;
  claim(bytes: number): void;
}

/** An early answer, and whether the connection closes after it. */
interface Lingering {
  readonly body: ReadableStream<Uint8Array>;
  readonly closes: boolean;
}

/** What is left of a body: its reader, or the promise of the whole. */
type Rest = Reader | Promise<unknown>;
export type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "cancel">;

/** A larger body is read piece by piece, so a client that still sends can be told from one that has stopped. */
const WHOLE_BYTES_MAX = 65_536;
const CHUNKS_A_TICK = 64;

export class BodyReader {
  private readonly limits: BodyLimits;
  private readonly memory: Memory;
  /** Of bodies that were not read to their end. */
  private readonly rests = new WeakMap<Request, Rest>();

  constructor(limits: BodyLimits, memory: Memory) {
    this.limits = limits;
    this.memory = memory;
  }

  /** The text of the body: at once if the body has arrived. A large one counts as held memory from now on. */
  readText(exchange: Receiving): string | Promise<string> {
    const { request } = exchange;
    const declared = request.headers.get("content-length");
    // The runtime joins equal lengths by a comma, and refuses lengths that differ.
    const length = declared === null ? undefined : Number.parseInt(declared, 10);
    this.requireLength(length ?? 0);
    this.memory.requireRoom((length ?? 0) - exchange.bytesKept);
    // In one piece if it is small: a loop over the chunks costs 45 % of the throughput.
    if (length === undefined || length > WHOLE_BYTES_MAX)
      return this.finish(exchange, (isLate) => this.readChunks(exchange, length, isLate));
    const bytes = request.bytes();
    const arrived = Bun.peek(bytes);
    if (arrived instanceof Uint8Array) return decodeUtf8(arrived);
    exchange.hold(length);
    return this.finish(exchange, () => bytes);
  }

  /**
   * The answer to a request whose body was not read to its end: all of it at once, and its end after the rest of the
   * body. Undefined if there is no rest, or if the connection stays open: then the runtime discards it.
   */
  linger(
    request: Request,
    text: string,
    { isClosing, isSlow }: { readonly isClosing: boolean; readonly isSlow: boolean },
  ): Lingering | undefined {
    const declared = request.headers.get("content-length");
    const length = declared === null ? Number.POSITIVE_INFINITY : Number.parseInt(declared, 10);
    const closes = isClosing || length > LINGER_BYTES_MAX || this.rests.has(request);
    const rest = this.findRest(request, length, closes);
    if (rest === undefined) return undefined;
    const { memory } = this;
    let isSent = false;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        if (isSent) {
          await discard(rest, memory, isSlow ? LINGER_SLOW_MS_MAX : LINGER_MS_MAX);
          controller.close();
        } else controller.enqueue(new TextEncoder().encode(text));
        isSent = true;
      },
    });
    return { body, closes };
  }

  private findRest(request: Request, length: number, closes: boolean): Rest | undefined {
    const begun = this.rests.get(request);
    if (begun !== undefined || request.bodyUsed || length === 0) return begun;
    // HTTP/1.0 closes unless the client says otherwise, and the runtime does not tell the version.
    const isKept = !closes && /\bkeep-alive\b/i.test(request.headers.get("connection") ?? "");
    if (isKept) return undefined;
    if (length > WHOLE_BYTES_MAX) return request.body?.getReader();
    const bytes = request.bytes();
    // Before the look: the client may be gone already, and a rejection that nothing handles ends the process.
    bytes.catch(() => undefined);
    return Bun.peek(bytes) === bytes ? bytes : undefined;
  }

  /** Bounds the time. */
  private async finish(
    exchange: Receiving,
    read: (isLate: () => boolean) => Promise<Uint8Array>,
  ): Promise<string> {
    const { request } = exchange;
    let isLate = false;
    try {
      const bytes = read(() => isLate);
      const all = await within(this.limits.readSecondsMax * 1000, bytes);
      if (all === undefined) {
        isLate = true;
        if (!this.rests.has(request)) this.rests.set(request, bytes);
        throw new Refusal("body_too_slow");
      }
      // A small one is bounded by the queue of writes.
      if (all.length <= WHOLE_BYTES_MAX) exchange.hold(0);
      this.memory.noteText(all.length * PARSED_PARTS);
      return decodeUtf8(all);
    } catch (error) {
      throw isAbort(error) ? new Refusal("body_incomplete") : error;
    }
  }

  private async readChunks(
    exchange: Receiving,
    length: number | undefined,
    isLate: () => boolean,
  ): Promise<Uint8Array> {
    const { request } = exchange;
    if (request.body === null) return new Uint8Array();
    const reader = request.body.getReader();
    this.rests.set(request, reader);
    exchange.claim(length ?? 0);
    const bytes = new Bytes();
    let count = 0;
    let total = 0;
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      if (isLate()) return bytes.take();
      total += next.value.length;
      if (length === undefined) {
        this.requireLength(total);
        exchange.claim(total);
      }
      bytes.add(next.value);
      // Chunks that have arrived are read in one tick. Other requests want their share of it.
      if (++count % CHUNKS_A_TICK === 0) await new Promise(setImmediate);
    }
    // The runtime ends the body at the last chunk. Only then it reads the trailer, and refuses a malformed one
    // by itself. Such a request must not have an effect.
    await new Promise(setImmediate);
    this.rests.delete(request);
    if (request.signal.aborted) throw new Refusal("body_incomplete");
    return bytes.take();
  }

  private requireLength(bytes: number): void {
    const { bodyBytesMax } = this.limits;
    if (bytes > bodyBytesMax)
      throw new Refusal(
        "body_too_large",
        `The body is larger than ${bodyBytesMax} bytes, the most that this service reads.`,
      );
  }
}

/*
 * Closing a connection with unread data makes the system send a reset, which overtakes the answer: the client would
 * see a broken connection, and a proxy would make it a 502. So the service discards what the client still sends,
 * within bounds, before it closes. This is what nginx calls lingering close.
 */
const LINGER_BYTES_MAX = 67_108_864;
const LINGER_MS_MAX = 10_000;
/** For a client that has used up its time. */
const LINGER_SLOW_MS_MAX = 3_000;
/** The runtime's idle timer, which may end early, would cut off the end of the answer. */
export const LINGER_SECONDS_MAX = 20;
/** A proxy that has an early answer may stop sending and wait for the end of the answer: this is what it waits. */
const LINGER_IDLE_MS_MAX = 500;
/** For a body whose end the service does not see. Most clients have sent theirs by then. */
const LINGER_BLIND_MS = 2_000;

/** Resolves when the body or the client's connection has ended, or at a bound. */
export async function discard(rest: Rest, memory: Memory, msMax = LINGER_MS_MAX): Promise<void> {
  if (rest instanceof Promise) return void (await soon(rest));
  const deadlineMs = performance.now() + msMax;
  let count = 0;
  const release = memory.holdLingering(UNREAD_BYTES_MAX);
  if (release === undefined) {
    // The runtime discards it without holding any, but does not tell when it ends.
    await rest.cancel().catch(() => undefined);
    await Bun.sleep(LINGER_BLIND_MS);
    return;
  }
  try {
    for (let bytes = 0; bytes <= LINGER_BYTES_MAX && performance.now() < deadlineMs;) {
      const next = await soon(rest.read());
      if (next === undefined || next.done) return;
      bytes += next.value.length;
      if (++count % CHUNKS_A_TICK === 0) await new Promise(setImmediate);
    }
  } finally {
    release();
  }
}

const soon = <Result>(read: Promise<Result>): Promise<Result | undefined> =>
  within(
    LINGER_IDLE_MS_MAX,
    read.catch(() => undefined),
  );

/**
 * The runtime takes the end of the client's half of the connection for the end of all of it, and then sends nothing
 * more. It notices up to two ticks after the last bytes. Throws a Refusal if it has: the client would not get its
 * answer, so nothing is to be stored.
 */
export async function requireOpen({ signal }: Request): Promise<void> {
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  if (signal.aborted) throw new Refusal("body_incomplete");
}

export const isAbort = (error: unknown): boolean =>
  error instanceof Error && error.name === "AbortError";

// A byte order mark is kept, so the JSON parser refuses it (RFC 8259, section 8.1).
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The runtime's own `text()` would silently replace invalid bytes. */
function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    throw new Refusal("invalid_utf8", undefined, error);
  }
}
