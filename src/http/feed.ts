/** Polls the journal for all readers that follow GET /changes. Readers at one cursor share a read. */

import type { ChangePage } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { ServedStore, StoreView } from "../domain/store.ts";
import type { Log } from "../observe/log.ts";
import { endOfTick } from "../tick.ts";

/** Consecutive changes, and their server-sent events. */
export function toChunk(after: number, { changes, last }: Pick<ChangePage, "changes" | "last">) {
  const events = changes.map(
    ({ seq, type, json }) => `id: ${seq}\nevent: ${type}\ndata: ${json}\n\n`,
  );
  return { after, last, changes, events: new TextEncoder().encode(events.join("")) };
}

type Chunk = ReturnType<typeof toChunk>;

const POLL_MS = 100;
/** Wakes readers even without a change, so those that have left are noticed. */
const WAKE_MS = 10_000;
const FAILED_POLL_MS = 1_000;
const CHUNK_LENGTH = 1_000;
const CHUNKS_MAX = 64;
const CHUNKS_BYTES_MAX = 4_194_304;

export class Feed {
  private readonly store: StoreView;
  private readonly log: Log;
  /** Cache of recent chunks, oldest first: readers at the same cursor want the same. */
  private chunks: Chunk[] = [];
  private readonly reading = new Map<number, Promise<Chunk>>();
  newest = 0;
  /** Resolves when there may be a newer change, or the service stops. */
  changed = Promise.withResolvers<void>();
  private wokenAtMs = 0;
  readers = 0;
  private isPolling = false;
  private ticks = Promise.resolve();
  /** The service is draining: readers end, and resume at another instance or later. */
  isClosed = false;

  constructor(store: Pick<ServedStore, "for">, log: Log) {
    this.store = store.for("whole store");
    this.log = log;
  }

  join(): void {
    this.readers++;
    if (!this.isPolling) void this.poll();
  }

  close(): void {
    this.isClosed = true;
    this.wake();
  }

  /**
   * One reader per tick, so other requests are served in between: otherwise readers delay creates.
   */
  awaitTick(): Promise<void> {
    return (this.ticks = this.ticks.then(endOfTick));
  }

  private wake(): void {
    this.changed.resolve();
    this.changed = Promise.withResolvers();
    this.wokenAtMs = performance.now();
  }

  /** How readers of the whole store read: together. Undefined for a confined one, which reads by itself. */
  findSharedRead(view: StoreView): ((after: number) => Chunk | Promise<Chunk>) | undefined {
    return view === this.store ? (after) => this.read(after) : undefined;
  }

  /** The changes after this number. Concurrent reads of the same cursor are coalesced. */
  private read(after: number): Chunk | Promise<Chunk> {
    const cached = this.find(after);
    if (cached !== undefined) return cached;
    const begun = this.reading.get(after);
    if (begun !== undefined) return begun;
    const reading = this.store
      .readChanges({ after, limit: CHUNK_LENGTH })
      .then((page) => this.keep(toChunk(after, page)))
      .finally(() => this.reading.delete(after));
    this.reading.set(after, reading);
    return reading;
  }

  /** A reader whose cursor is inside a cached chunk gets the remainder, and then shares the cursor of others. */
  private find(after: number): Chunk | undefined {
    const cached = this.chunks.findLast(
      ({ after: begin, last, changes: [first] }) =>
        // A chunk from cursor 0 lacks the changes that were trimmed. No change is between `first.seq - 1` and the first.
        begin === after || (first !== undefined && first.seq - 1 <= after && after < last),
    );
    if (cached === undefined || after < (cached.changes[0]?.seq ?? cached.last)) return cached;
    return toChunk(after, { ...cached, changes: cached.changes.filter(({ seq }) => seq > after) });
  }

  private keep(chunk: Chunk): Chunk {
    if (chunk.last > chunk.after) this.chunks.push(chunk);
    let bytes = this.chunks.reduce((sum, { events }) => sum + events.length, 0);
    while (this.chunks.length > (bytes > CHUNKS_BYTES_MAX ? 1 : CHUNKS_MAX))
      bytes -= this.chunks.shift()?.events.length ?? 0;
    return chunk;
  }

  private async poll(): Promise<void> {
    this.isPolling = true;
    while (this.readers > 0 && !this.isClosed) await Bun.sleep(await this.pollOnce());
    this.isPolling = false;
    this.forget();
  }

  private async pollOnce(): Promise<number> {
    try {
      const { newest } = await this.store.readChanges({ after: this.newest, limit: 0 });
      const isNew = newest !== this.newest;
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
