/** The journal by a filter, as the page shows it: read page by page from the newest change back, with what arrives. */

import { batch, signal } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { readBack } from "../api/changes.ts";
import { isAbort } from "../api/service.ts";
import { untilFollowing } from "./feed.ts";
import { addNewer, addOlder, foldOf, isShown, type Line } from "./journal.ts";
import type { ChangeFilter } from "./route.ts";

const PAGE_LENGTH = 100;
/** Past this many lines, new changes are not added. */
const LINES_MAX = 1000;

export class JournalLines {
  readonly filter: ChangeFilter;
  readonly lines = signal<readonly Line[]>([]);
  /** The cursor of the older changes; undefined at the start of the journal. */
  readonly next = signal<number | undefined>(0);
  readonly isLoading = signal(true);
  readonly failure = signal<unknown>(undefined);
  /** Newer changes are not shown. */
  readonly isBehind = signal(false);
  /** Plants that changed since, also where a filter or a line for many hides it, with the number of the change. */
  readonly since = signal<ReadonlyMap<bigint, number>>(new Map());
  /** The newest change that is shown, and those that arrived while the first page was read. */
  #newest = -1;
  #late: Change[] = [];
  /** The oldest change that was read. */
  #oldest: Change | undefined;
  readonly #left = new AbortController();

  constructor(filter: ChangeFilter) {
    this.filter = filter;
  }

  async loadMore(): Promise<void> {
    this.isLoading.value = true;
    this.failure.value = undefined;
    const { type, ...query } = this.filter;
    const fold = foldOf(this.filter);
    const wanted = { ...query, types: type && [type], fold, limit: PAGE_LENGTH };
    const end = this.lines.value.length + PAGE_LENGTH / 2;
    try {
      await untilFollowing();
      // A page may have only more of a batch that is shown.
      for (let after = this.next.value; after !== undefined && this.lines.value.length < end;) {
        const { changes, next } = await readBack({ ...wanted, after }, this.#left.signal);
        if (this.#newest === -1) this.#newest = changes[0]?.seq ?? 0;
        this.lines.value = addOlder(this.lines.value, changes, fold, this.#oldest);
        this.#oldest = changes.at(-1) ?? this.#oldest;
        this.next.value = after = next;
      }
    } catch (error) {
      if (isAbort(error)) return;
      this.failure.value = error;
    }
    this.isLoading.value = false;
    this.#accept();
  }

  hear(changes: readonly Change[]): void {
    const ids = new Set(this.lines.value.map(({ change }) => change.id));
    const again = changes.filter(({ id }) => ids.has(id));
    if (again.length > 0)
      this.since.value = new Map([
        ...this.since.value,
        ...again.map(({ id, seq }) => [id, seq] as const),
      ]);
    this.#late.push(...changes.filter((change) => isShown(this.filter, change)));
    this.#accept();
  }

  #accept(): void {
    if (this.#newest === -1) return;
    const fresh = this.#late.splice(0).filter(({ seq }) => seq > this.#newest);
    this.#newest = fresh.at(-1)?.seq ?? this.#newest;
    if (fresh.length === 0) return;
    if (this.lines.value.length >= LINES_MAX) this.isBehind.value = true;
    else this.lines.value = addNewer(this.lines.value, fresh, foldOf(this.filter));
  }

  /** From the newest change. */
  reload(): void {
    batch(() => {
      this.lines.value = [];
      this.next.value = 0;
      this.isBehind.value = false;
    });
    this.#newest = -1;
    this.#oldest = undefined;
    void this.loadMore();
  }

  stop(): void {
    this.#left.abort();
  }
}
