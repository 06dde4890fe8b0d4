/** Watches the journal for all readers of GET /changes that follow it, and gives them turns. */

import { type Change, type ChangePage, formatChange } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import type { Log } from "../observe/log.ts";
import { pause } from "../store/batcher.ts";

/** Changes that follow each other in the journal, and their events. */
interface Chunk extends Pick<ChangePage, "changes" | "last"> {
  readonly after: number;
  readonly events: Uint8Array;
}

export const toChunk = (
  after: number,
  { changes, last }: Pick<ChangePage, "changes" | "last">,
): Chunk => ({ after, last, changes, events: encoder.encode(changes.map(formatEvent).join("")) });

const formatEvent = (change: Change): string =>
  `id: ${change.seq}\nevent: ${change.type}\ndata: ${formatChange(change)}\n\n`;

const POLL_MS = 100;
/** Readers that have left are forgotten after this time, also if there is no change for months. */
const WAKE_MS = 10_000;
const FAILED_POLL_MS = 1_000;
const CHUNKS_MAX = 64;
const CHUNKS_BYTES_MAX = 4_194_304;

/** While there are writes, all turns together rest this many times as long as they take. */
const REST = 24;
/** A timer takes at least a millisecond, so shorter rests are added up. */
const REST_MS_MIN = 2;
const REST_MS_MAX = 1_000;
/** After a write more are likely. */
const BUSY_MS = 200;

const encoder = new TextEncoder();

export class Feed {
  private readonly store: Pick<Store, "readChanges">;
  private readonly log: Log;
  /** What readers were sent lately: those that are equally far want the same. The oldest come first. */
  private chunks: Chunk[] = [];
  /** The number of the newest change; 0 before the first look. */
  newest = 0;
  /** Resolves when there may be a newer change, or the service stops. */
  changed = Promise.withResolvers<void>();
  private wokenAtMs = 0;
  private turns: Promise<unknown> = Promise.resolve();
  private restMs = 0;
  /** How many clients follow the changes. */
  readers = 0;
  private isPolling = false;
  /** Whether the service is stopping: a reader ends, and goes on with another instance or later. */
  isClosed = false;
  private busyUntilMs = 0;

  constructor(store: Pick<Store, "readChanges">, log: Log) {
    this.store = store;
    this.log = log;
  }

  /** As long as there are readers, the journal is watched. */
  join(): void {
    this.readers++;
    if (!this.isPolling) void this.poll();
  }

  close(): void {
    this.isClosed = true;
    this.wake();
  }

  private wake(): void {
    this.changed.resolve();
    this.changed = Promise.withResolvers();
    this.wokenAtMs = performance.now();
  }

  /** After this time, writes get most of the thread for a while. */
  noteWrite(nowMs: number): void {
    this.busyUntilMs = nowMs + BUSY_MS;
  }

  /** What goes on after this number. Of one that begins earlier, the rest: its reader is then as far as others. */
  find(after: number): Chunk | undefined {
    const kept = this.chunks.findLast(
      ({ after: begin, last, changes: [first] }) =>
        // A chunk that begins at 0 lacks the changes that were no longer in the journal.
        begin === after || (first !== undefined && first.seq <= after && after < last),
    );
    if (kept === undefined || kept.after === after) return kept;
    return toChunk(after, { ...kept, changes: kept.changes.filter(({ seq }) => seq > after) });
  }

  keep(chunk: Chunk): void {
    if (chunk.last > chunk.after) this.chunks.push(chunk);
    let bytes = this.chunks.reduce((sum, { events }) => sum + events.length, 0);
    while (this.chunks.length > (bytes > CHUNKS_BYTES_MAX ? 1 : CHUNKS_MAX))
      bytes -= this.chunks.shift()?.events.length ?? 0;
  }

  /**
   * Resolves to what `make` makes. A piece is made in its turn and not before, so no reader holds one while it waits.
   * There is one turn a tick: however many readers there are, other requests come between two pieces.
   */
  async takeTurn<Piece>(make: () => Promise<Piece>): Promise<Piece> {
    const last = this.turns;
    const { promise, resolve: end } = Promise.withResolvers<void>();
    this.turns = promise;
    await last;
    // The runtime ends both in one tick, and runs all that follows from the first before it ends the second.
    const [begun, sent] = [new Promise(setImmediate), new Promise(setImmediate)];
    await begun;
    const begunAtMs = performance.now();
    try {
      return await make();
    } finally {
      void sent.then(() => this.rest(begunAtMs)).then(end);
    }
  }

  private async rest(begunAtMs: number): Promise<void> {
    const nowMs = performance.now();
    const isBusy = nowMs < this.busyUntilMs;
    this.restMs = isBusy ? this.restMs + (nowMs - begunAtMs) * REST : 0;
    if (this.restMs < REST_MS_MIN) return;
    await pause(Math.min(this.restMs, REST_MS_MAX));
    this.restMs = 0;
  }

  private async poll(): Promise<void> {
    this.isPolling = true;
    while (this.readers > 0 && !this.isClosed) await Bun.sleep(await this.pollOnce());
    this.isPolling = false;
    this.forget();
  }

  /** Resolves to the time until the next one. */
  private async pollOnce(): Promise<number> {
    const query = { after: this.newest, limit: 0, id: undefined, types: undefined };
    try {
      const { newest } = await this.store.readChanges(query);
      const isNew = newest !== this.newest;
      if (isNew && this.newest > 0) this.noteWrite(performance.now());
      this.newest = newest;
      if (isNew || performance.now() - this.wokenAtMs > WAKE_MS) this.wake();
      return POLL_MS;
    } catch (error) {
      this.log.warn("feed_not_read", { cause: error });
      // Each reader's own read then fails with changes_gone.
      if (error instanceof Refusal && error.reason === "changes_gone") this.forget();
      return FAILED_POLL_MS;
    }
  }

  private forget(): void {
    this.chunks = [];
    this.newest = 0;
  }
}
