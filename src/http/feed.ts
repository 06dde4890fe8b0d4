/** The newest changes, read once for all readers of GET /changes that follow them. */

import { type Change, formatChange } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import type { Log } from "../observe/log.ts";

/** Changes that follow each other in the journal. */
export interface Chunk {
  readonly after: number;
  readonly last: number;
  readonly changes: readonly Change[];
  /** As events, for the readers that want all. */
  readonly text: string;
}

const POLL_MS = 100;
const POLL_LENGTH = 1_000;
const FAILED_POLL_MS = 1_000;
/** A reader that is further behind reads the store by itself. */
const CHARACTERS_MAX = 8_388_608;
const CHUNKS_MAX = 1_024;
/** What a reader is sent at a time. */
const CHUNK_CHARACTERS_MAX = 65_536;

/** The share of the time that all readers together may take from the writes. */
const SHARE = 0.05;
/** What a piece takes, and each character of it, as measured. */
const PIECE_MS = 0.05;
const CHARACTER_MS = 0.000_01;
/** The same if the reader had to read the store by itself. */
const OWN_CHARACTER_MS = 0.000_03;
/** A timer takes at least a millisecond, so shorter waits are added up. */
const DEBT_MS_MAX = 2;
/** After a change more are likely. */
const BUSY_MS = 1_000;
const BUSY_LENGTH = 100;

export class Feed {
  private readonly store: Pick<Store, "readChanges">;
  private readonly log: Log;
  private chunks: Chunk[] = [];
  private characters = 0;
  /** Up to where the journal was read; undefined before the first time. */
  private newest: number | undefined;
  private readonly waiting = new Set<() => void>();
  /** How many clients follow the changes. */
  readers = 0;
  private isPolling = false;
  /** Whether the service is stopping: a reader ends, and goes on with another instance or later. */
  isClosed = false;
  /** When the readers have paid for what they were sent. */
  private paidAtMs = 0;
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

  leave(): void {
    this.readers--;
  }

  /** Ends every reader. */
  close(): void {
    this.isClosed = true;
    this.wake();
  }

  /** The chunk after this number; undefined if it is not cached: not written yet, or only in the store. */
  find(after: number): Chunk | undefined {
    // From the end, because most readers are there.
    const chunk = this.chunks.findLast((one) => one.after <= after);
    return chunk !== undefined && chunk.last > after ? chunk : undefined;
  }

  /** Whether a reader has to read the store by itself. */
  isBehind(after: number): boolean {
    const first = this.chunks[0]?.after ?? this.newest;
    return first !== undefined && after < first;
  }

  /** Resolves when there may be something new, after that time, or at the abort. */
  wait(ms: number, signal: AbortSignal): Promise<void> {
    if (this.isClosed || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.waiting.delete(end);
        signal.removeEventListener("abort", end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.waiting.add(end);
      signal.addEventListener("abort", end);
    });
  }

  /** How many changes a reader may read by itself. While there are many changes, every reader gets its turn soon. */
  get ownLimit(): number {
    return this.isBusy ? BUSY_LENGTH : POLL_LENGTH;
  }

  /** Resolves when so much may be sent to one more reader: however many there are, writes keep most of the time. */
  async pay(characters: number, { isOwn }: { readonly isOwn: boolean }): Promise<void> {
    const cost = (PIECE_MS + characters * (isOwn ? OWN_CHARACTER_MS : CHARACTER_MS)) / SHARE;
    const dueMs = Math.max(performance.now(), this.paidAtMs);
    this.paidAtMs = dueMs + cost;
    for (;;) {
      const debtMs = dueMs - performance.now();
      if (debtMs < DEBT_MS_MAX || this.isClosed) return;
      if (!this.isBusy) return void (this.paidAtMs = 0);
      await Bun.sleep(Math.min(debtMs, BUSY_MS));
    }
  }

  private get isBusy(): boolean {
    return performance.now() < this.busyUntilMs;
  }

  private wake(): void {
    for (const end of this.waiting) end();
  }

  private async poll(): Promise<void> {
    this.isPolling = true;
    while (this.readers > 0 && !this.isClosed) await Bun.sleep(await this.pollOnce());
    this.isPolling = false;
    this.forget();
  }

  /** Resolves to the time until the next one. */
  private async pollOnce(): Promise<number> {
    const query = { limit: POLL_LENGTH, id: undefined, types: undefined };
    try {
      if (this.newest === undefined) {
        // Starts at the end of the journal. Readers fetch older changes themselves.
        const { newest } = await this.store.readChanges({ ...query, after: 0, limit: 0 });
        this.newest = newest;
        this.wake();
        return 0;
      }
      const page = await this.store.readChanges({ ...query, after: this.newest });
      if (page.last > this.newest) {
        this.add(page.changes, page.last);
        this.busyUntilMs = performance.now() + BUSY_MS;
        this.wake();
      }
      return page.hasMore ? 0 : POLL_MS;
    } catch (error) {
      this.log.warn("feed_not_read", { cause: error });
      // Each reader's own read then fails with changes_gone.
      if (error instanceof Refusal && error.reason === "changes_gone") this.forget();
      this.wake();
      return FAILED_POLL_MS;
    }
  }

  private forget(): void {
    this.chunks = [];
    this.characters = 0;
    this.newest = undefined;
  }

  private add(changes: readonly Change[], last: number): void {
    let after = this.newest as number;
    let first = 0;
    let text = "";
    const cut = (end: number, chunkLast: number): void => {
      this.chunks.push({ after, last: chunkLast, changes: changes.slice(first, end), text });
      this.characters += text.length;
      [after, first, text] = [chunkLast, end, ""];
    };
    for (const [index, change] of changes.entries()) {
      text += formatEvent(change);
      if (text.length > CHUNK_CHARACTERS_MAX) cut(index + 1, change.seq);
    }
    if (last > after) cut(changes.length, last);
    this.newest = last;
    while (this.characters > CHARACTERS_MAX || this.chunks.length > CHUNKS_MAX)
      this.characters -= this.chunks.shift()?.text.length ?? 0;
  }
}

export const formatEvent = (change: Change): string =>
  `id: ${change.seq}\nevent: ${change.type}\ndata: ${formatChange(change)}\n\n`;
