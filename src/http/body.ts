/** Reads request bodies: JSON in UTF-8, within bounds of one body's size, of all bodies' sizes, and of time. */

import { Refusal } from "../domain/errors.ts";
import { Bytes } from "../format/records.ts";

/** Throws a Refusal unless the body is declared as one of these types, in UTF-8 and not compressed. */
export function requireType(headers: Headers, ...allowed: readonly [string, ...string[]]): void {
  const contentType = headers.get("content-type");
  if (contentType !== allowed[0] && !isInUtf8(contentType ?? "", allowed))
    throw new Refusal(
      "unsupported_media_type",
      `The body must be declared as ${allowed[0]} in UTF-8.`,
    );
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.trim().toLowerCase() !== "identity")
    throw new Refusal("unsupported_encoding");
}

/** A parameter of a media type, RFC 9110 section 5.6.6: a token or a quoted string. */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)|"((?:[^"\\]|\\.)*)")[ \t]*$/;

function isInUtf8(contentType: string, allowed: readonly string[]): boolean {
  const [type = "", ...parameters] = contentType.split(";");
  if (!allowed.includes(type.trim().toLowerCase())) return false;
  return parameters.every((parameter) => {
    // The grammar allows an empty parameter, as in "application/json;".
    if (parameter.trim() === "") return true;
    const match = PARAMETER.exec(parameter);
    if (match === null) return false;
    const [, name = "", token, quoted] = match;
    return name.toLowerCase() !== "charset" || (token ?? quoted)?.toLowerCase() === "utf-8";
  });
}

interface BodyLimits {
  readonly bodyBytesMax: number;
  readonly bodyBytesTotalMax: number;
  readonly readSecondsMax: number;
}

interface Reading {
  readonly deadlineMs: number;
  readonly expire: () => void;
  bytesHeld: number;
  isOver: boolean;
}

/** What is left of a body: its reader, or the promise of the whole. */
type Rest = Reader | Promise<unknown>;
type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read">;

const EXPIRY_CHECK_MS = 250;
const CHUNKS_A_TICK = 64;

export class BodyReader {
  private readonly limits: BodyLimits;
  private bytesHeld = 0;
  /** All have the same allowance of time, so they are in the order of their deadlines. */
  private readonly readings = new Set<Reading>();
  private timer: Timer | undefined;
  /** Of bodies that were not read to their end. */
  private readonly rests = new WeakMap<Request, Rest>();

  constructor(limits: BodyLimits) {
    this.limits = limits;
  }

  /** The text of the body. One timer serves all readings: a timer each costs 4 % of the throughput. */
  readText(request: Request): Promise<string> {
    return new Promise((resolve, reject) => {
      const reading: Reading = {
        deadlineMs: performance.now() + this.limits.readSecondsMax * 1000,
        expire: () => {
          if (!this.rests.has(request)) this.rests.set(request, bytes);
          reject(new Refusal("body_too_slow"));
        },
        bytesHeld: 0,
        isOver: false,
      };
      const bytes = this.readBytes(request, reading);
      this.readings.add(reading);
      this.timer ??= setTimeout(() => this.expireLate(), EXPIRY_CHECK_MS);
      bytes.then(
        (read) => {
          this.release(reading);
          try {
            resolve(decodeUtf8(read));
          } catch (error) {
            reject(error);
          }
        },
        (error: unknown) => {
          this.release(reading);
          reject(isAbort(error) ? new Refusal("body_incomplete") : error);
        },
      );
    });
  }

  /**
   * The part of the body that an early answer leaves unread, and that has to be discarded before the connection
   * closes. Undefined if there is none, or if the connection stays open: then the runtime discards it.
   */
  findRest(request: Request, isClosing: boolean): Rest | undefined {
    const begun = this.rests.get(request);
    if (begun !== undefined || request.bodyUsed) return begun;
    const declared = request.headers.get("content-length");
    const bytes = declared === null ? Number.POSITIVE_INFINITY : Number.parseInt(declared, 10);
    if (bytes === 0 || (bytes <= LINGER_BYTES_MAX && !isClosing)) return undefined;
    return request.body?.getReader();
  }

  /** In one piece if the length is declared: a loop over the chunks costs 45 % of the throughput. */
  private readBytes(request: Request, reading: Reading): Promise<Uint8Array> {
    const declared = request.headers.get("content-length");
    if (declared === null) return this.readChunks(request, reading);
    // The runtime joins equal lengths by a comma, and refuses lengths that differ.
    this.hold(reading, Number.parseInt(declared, 10));
    return request.bytes();
  }

  private async readChunks(request: Request, reading: Reading): Promise<Uint8Array> {
    if (request.body === null) return new Uint8Array();
    const reader = request.body.getReader();
    this.rests.set(request, reader);
    const bytes = new Bytes();
    let count = 0;
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      if (reading.isOver) return bytes.take();
      this.hold(reading, next.value.length);
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

  private hold(reading: Reading, bytes: number): void {
    const { bodyBytesMax, bodyBytesTotalMax } = this.limits;
    if (reading.bytesHeld + bytes > bodyBytesMax)
      throw new Refusal(
        "body_too_large",
        `The body is larger than ${bodyBytesMax} bytes, the most that this service reads.`,
      );
    if (this.bytesHeld + bytes > bodyBytesTotalMax) throw new Refusal("overloaded");
    reading.bytesHeld += bytes;
    this.bytesHeld += bytes;
  }

  private release(reading: Reading): void {
    reading.isOver = true;
    this.readings.delete(reading);
    this.bytesHeld -= reading.bytesHeld;
    reading.bytesHeld = 0;
  }

  private expireLate(): void {
    const now = performance.now();
    for (const reading of this.readings) {
      if (reading.deadlineMs > now) break;
      this.release(reading);
      reading.expire();
    }
    this.timer =
      this.readings.size === 0 ? undefined : setTimeout(() => this.expireLate(), EXPIRY_CHECK_MS);
  }
}

/*
 * Closing a connection with unread data makes the system send a reset, which overtakes the answer: the client would
 * see a broken connection, and a proxy would make it a 502. So the service discards what the client still sends,
 * within bounds, before it closes. This is what nginx calls lingering close.
 */
const LINGER_BYTES_MAX = 67_108_864;
/** Less than the shortest idle time of a connection, which would cut off the end of the answer. */
const LINGER_MS_MAX = 10_000;
/** A proxy that has an early answer may stop sending and wait for the end of the answer: this is what it waits. */
const LINGER_IDLE_MS_MAX = 500;

/** The whole answer at once, and its end after the rest of the request's body. */
export function answerAndLinger(
  text: string,
  rest: Rest,
  { isSlow }: { readonly isSlow: boolean },
): ReadableStream<Uint8Array> {
  let isSent = false;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (isSent) {
        await discard(rest, isSlow ? LINGER_IDLE_MS_MAX : LINGER_MS_MAX);
        controller.close();
      } else controller.enqueue(new TextEncoder().encode(text));
      isSent = true;
    },
  });
}

/** Resolves when the body or the client's connection has ended, or at a bound. */
async function discard(rest: Rest, msMax: number): Promise<void> {
  const deadlineMs = performance.now() + msMax;
  if (rest instanceof Promise) return void (await soon(rest));
  for (let bytes = 0; bytes <= LINGER_BYTES_MAX && performance.now() < deadlineMs;) {
    const next = await soon(rest.read());
    if (next === undefined || next.done) return;
    bytes += next.value.length;
  }
}

const soon = <Result>(read: Promise<Result>): Promise<Result | undefined> =>
  Promise.race([read.catch(() => undefined), Bun.sleep(LINGER_IDLE_MS_MAX).then(() => undefined)]);

export const isAbort = (error: unknown): boolean =>
  error instanceof Error && error.name === "AbortError";

// A byte order mark is kept, so the JSON parser refuses it (RFC 8259, section 8.1).
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The runtime's own `text()` would replace invalid bytes without a word. */
function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    throw new Refusal("invalid_utf8", undefined, error);
  }
}
