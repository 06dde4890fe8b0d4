/**
 * What has been done since the start, in counters: to count a request takes less than a microsecond.
 *
 * They lie in a block of memory that may be shared: each thread counts in a block of its own, so that none
 * waits for another, and whoever wants to know adds them up.
 */

import { Histogram, HISTOGRAM_LENGTH } from "./histogram.ts";

/** Methods by name, and one name for all others: what a client makes up does not become a counter. */
const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"] as const;
const OTHER = methods.length - 1;
const STATUSES = 1_000;

/** Each a kind of request and how often it came. More than there are paths, methods and statuses of ours. */
const SLOTS = 4_096;
const SLOT_LENGTH = 2;

export const METRICS_BYTES =
  (HISTOGRAM_LENGTH + SLOTS * SLOT_LENGTH) * Float64Array.BYTES_PER_ELEMENT;

interface RequestCount {
  readonly path: string;
  readonly method: string;
  readonly status: number;
  readonly count: number;
}

export interface Totals {
  readonly requests: readonly RequestCount[];
  /** From arrival to answer, and so until the plant is on disk. */
  readonly creates: Histogram;
}

type CountRequest = (method: string, status: number) => void;

export class Metrics {
  /** In the order of their counters, which gives each its number. */
  readonly paths: string[];
  private readonly creates: Histogram;
  /** Kind and count in turns. A kind is never 0, which ends the list. */
  private readonly slots: Float64Array;
  private readonly slotByKind = new Map<number, number>();

  /** Whoever only reads a block of another thread says which paths that one counts. */
  constructor(
    memory: ArrayBufferLike = new ArrayBuffer(METRICS_BYTES),
    paths: readonly string[] = [],
  ) {
    const bytes = HISTOGRAM_LENGTH * Float64Array.BYTES_PER_ELEMENT;
    this.creates = new Histogram(new Float64Array(memory, 0, HISTOGRAM_LENGTH));
    this.slots = new Float64Array(memory, bytes, SLOTS * SLOT_LENGTH);
    this.paths = [...paths];
  }

  /** The counter of one path, by its pattern and never as it was sent. */
  counterOf(path: string): CountRequest {
    const first = this.paths.push(path) * methods.length * STATUSES;
    return (method, status) => {
      const index = methods.indexOf(method as (typeof methods)[number]);
      const kind = first + (index === -1 ? OTHER : index) * STATUSES + status;
      const slot = this.slotByKind.get(kind) ?? this.takeSlot(kind);
      this.slots[slot + 1] = (this.slots[slot + 1] ?? 0) + 1;
    };
  }

  /** A plant that was not there is on disk. */
  countCreate(durationMs: number): void {
    this.creates.add(durationMs);
  }

  /** Of all these, which count the same paths. */
  static addUp(blocks: readonly Metrics[]): Totals {
    const creates = new Histogram();
    const byKind = new Map<number, number>();
    for (const block of blocks) {
      creates.addAll(block.creates);
      for (const [kind, count] of block.readSlots())
        byKind.set(kind, (byKind.get(kind) ?? 0) + count);
    }
    const paths = blocks[0]?.paths ?? [];
    return { creates, requests: [...byKind].map(([kind, count]) => toCount(paths, kind, count)) };
  }

  private takeSlot(kind: number): number {
    const slot = this.slotByKind.size * SLOT_LENGTH;
    this.slotByKind.set(kind, slot);
    this.slots[slot] = kind;
    return slot;
  }

  private *readSlots(): Generator<[kind: number, count: number]> {
    const { slots } = this;
    for (let slot = 0; slots[slot]; slot += SLOT_LENGTH)
      yield [slots[slot] ?? 0, slots[slot + 1] ?? 0];
  }
}

function toCount(paths: readonly string[], kind: number, count: number): RequestCount {
  const ofMethod = Math.floor(kind / STATUSES);
  return {
    path: paths[Math.floor(ofMethod / methods.length) - 1] ?? "other",
    method: methods[ofMethod % methods.length] ?? "other",
    status: kind % STATUSES,
    count,
  };
}
