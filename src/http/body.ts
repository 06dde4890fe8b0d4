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
}

const EXPIRY_CHECK_MS = 250;
const CHUNKS_A_TICK = 64;

export class BodyReader {
  private readonly limits: BodyLimits;
  private bytesHeld = 0;
  /** All have the same allowance of time, so they are in the order of their deadlines. */
  private readonly readings = new Set<Reading>();
  private timer: Timer | undefined;

  constructor(limits: BodyLimits) {
    this.limits = limits;
  }

  /** The text of the body. One timer serves all readings: a timer each costs 4 % of the throughput. */
  readText(request: Request): Promise<string> {
    return new Promise((resolve, reject) => {
      const reading: Reading = {
        deadlineMs: performance.now() + this.limits.readSecondsMax * 1000,
        expire: () => reject(new Refusal("body_too_slow")),
        bytesHeld: 0,
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
    const bytes = new Bytes();
    let count = 0;
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      this.hold(reading, next.value.length);
      bytes.add(next.value);
      // Chunks that have arrived are read in one tick. Other requests want their share of it.
      if (++count % CHUNKS_A_TICK === 0) await new Promise(setImmediate);
    }
    // The runtime ends the body at the last chunk. Only then it reads the trailer, and refuses a malformed one
    // by itself. Such a request must not have an effect.
    await new Promise(setImmediate);
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
