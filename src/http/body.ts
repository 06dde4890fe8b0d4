/** Reads request bodies within bounds: of one body's size, of all bodies' sizes together, and of time. */

import { Refusal } from "../domain/error.ts";

interface BodyLimits {
  readonly bodyBytesMax: number;
  readonly bodyBytesTotalMax: number;
  readonly readSecondsMax: number;
}

interface Reading {
  readonly deadlineMs: number;
  readonly expire: () => void;
}

const EXPIRY_CHECK_MS = 250;

export class BodyReader {
  private readonly limits: BodyLimits;
  private bytesHeld = 0;
  /** All have the same allowance of time, so that they stand in the order in which they expire. */
  private readonly readings = new Set<Reading>();
  private timer: Timer | undefined;

  constructor(limits: BodyLimits) {
    this.limits = limits;
  }

  /** The text of the body. Invalid UTF-8 is refused; the runtime's own `text()` would replace it in silence. */
  async readText(request: Request): Promise<string> {
    return decodeUtf8(await this.read(request));
  }

  private async read(request: Request): Promise<Uint8Array> {
    const declared = request.headers.get("content-length");
    if (declared === null) return this.readChunked(request);
    const length = Number(declared);
    if (length > this.limits.bodyBytesMax) throw this.tooLarge();
    this.hold(length);
    try {
      return await this.inTime(request.bytes());
    } finally {
      this.bytesHeld -= length;
    }
  }

  private async readChunked(request: Request): Promise<Uint8Array> {
    if (request.body === null) return new Uint8Array();
    const reader = request.body.getReader();
    const chunks: Uint8Array[] = [];
    let length = 0;
    try {
      await this.inTime(
        (async () => {
          for (let next = await reader.read(); !next.done; next = await reader.read()) {
            this.hold(next.value.length);
            length += next.value.length;
            if (length > this.limits.bodyBytesMax) throw this.tooLarge();
            chunks.push(next.value);
          }
        })(),
      );
      return Buffer.concat(chunks);
    } finally {
      this.bytesHeld -= length;
    }
  }

  private hold(bytes: number): void {
    if (this.bytesHeld + bytes > this.limits.bodyBytesTotalMax) throw new Refusal("overloaded");
    this.bytesHeld += bytes;
  }

  private tooLarge(): Refusal {
    return new Refusal(
      "body_too_large",
      `The body is larger than ${this.limits.bodyBytesMax} bytes, the most that this service reads.`,
    );
  }

  /** Settles as the read does, or with `body_too_slow`. One timer serves all reads: a timer each costs 4 %. */
  private inTime<Result>(read: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      const reading: Reading = {
        deadlineMs: performance.now() + this.limits.readSecondsMax * 1000,
        expire: () => reject(new Refusal("body_too_slow")),
      };
      this.readings.add(reading);
      this.timer ??= setTimeout(() => this.expireLate(), EXPIRY_CHECK_MS);
      read.then(
        (result) => {
          this.readings.delete(reading);
          resolve(result);
        },
        (error: unknown) => {
          this.readings.delete(reading);
          reject(isAbort(error) ? new Refusal("body_incomplete") : error);
        },
      );
    });
  }

  private expireLate(): void {
    const now = performance.now();
    for (const reading of this.readings) {
      if (reading.deadlineMs > now) break;
      this.readings.delete(reading);
      reading.expire();
    }
    this.timer =
      this.readings.size === 0 ? undefined : setTimeout(() => this.expireLate(), EXPIRY_CHECK_MS);
  }
}

const isAbort = (error: unknown): boolean => error instanceof Error && error.name === "AbortError";

// A byte order mark is kept, and so refused by the JSON parser (RFC 8259, section 8.1).
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    throw new Refusal("invalid_utf8", undefined, error);
  }
}
