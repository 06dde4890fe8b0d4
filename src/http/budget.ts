/** The memory budget of an HTTP thread. */

import { Refusal } from "../domain/errors.ts";

/** Unread answers may use this share; the rest is for writes. */
export const ANSWERS_SHARE = 0.5;
/** For batch lines in flight to the store, in a budget of their own: unread answers do not delay them. */
export const LINES_SHARE = 0.25;
/** For packing and unpacking bodies, in a budget of its own. */
export const PACKING_SHARE = 0.25;
/** For draining refused bodies, in addition to the budget: clients without a token can cause these. */
export const LINGERING_SHARE = 0.125;

/** For bodies of requests whose JWT is being verified: anyone can make up one that waits for the issuer. */
const UNVERIFIED_SHARE = 0.25;

export const LARGE_BYTES = 262_144;
/** Garbage per collection, as a share of the budget: less costs CPU and saves no memory, more costs memory. */
const COLLECT_SHARE = 0.0625;
/** With many connections a GC is slow. The next one waits this many times its duration, up to a larger share. */
const COLLECT_PAUSE = 3;
const COLLECT_SHARE_MAX = 0.25;

/** Above this share of the budget, small garbage counts too. */
const BESIDE_SHARE = 0.25;

/** The memory budget for request bodies and large unsent answers. */
export class Budget {
  readonly bytesMax: number;
  bytesHeld = 0;
  private bytesDropped = 0;
  private collectAfterMs = 0;
  bytesLingering = 0;
  private bytesUnverified = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Whether the budget has room, and others hold at most `share` of it. A request alone always fits. */
  hasRoom(bytes: number, others: number, share = 1): boolean {
    return others <= this.bytesMax * share && (others === 0 || others + bytes <= this.bytesMax);
  }

  /** Throws a Refusal if others that wait hold their share. One body fits, however small the budget. */
  holdUnverified<Token>(bytes: number, found: Promise<Token>): Promise<Token> {
    const others = this.bytesUnverified;
    if (bytes > 0 && others > 0 && others + bytes > this.bytesMax * UNVERIFIED_SHARE)
      throw new Refusal("overloaded");
    this.bytesUnverified += bytes;
    return found.finally(() => (this.bytesUnverified -= bytes));
  }

  /** Only under load, for what the runtime otherwise collects in time. `beside` is held in another budget. */
  noteGarbage(bytes: number, beside = 0): void {
    if (this.bytesHeld + beside > this.bytesMax * BESIDE_SHARE) this.noteDropped(bytes);
  }

  /**
   * On a busy machine the runtime collects large strings late, and memory grows beyond the budget.
   */
  noteDropped(bytes: number): void {
    this.bytesDropped += bytes;
    const startedAtMs = performance.now();
    const isEarly = startedAtMs < this.collectAfterMs;
    if (this.bytesDropped < this.bytesMax * (isEarly ? COLLECT_SHARE_MAX : COLLECT_SHARE)) return;
    this.bytesDropped = 0;
    Bun.gc(true);
    const nowMs = performance.now();
    this.collectAfterMs = nowMs + COLLECT_PAUSE * (nowMs - startedAtMs);
  }
}
