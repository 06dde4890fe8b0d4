/** The last answered requests of one HTTP thread, in slots that are reused: noting one allocates nothing. */

import { toShared } from "../tick.ts";

/** For each class of statuses, so neither successes nor refusals evict failures of the service. */
export const REQUESTS_KEPT = 256;

/** Which of them, newest first. */
export interface RequestQuery {
  readonly status: StatusRange | undefined;
  /** A part of the path. */
  readonly path: string | undefined;
  readonly token: string | undefined;
  readonly limit: number;
}

export type StatusRange = Readonly<Record<"from" | "to", number>>;

export const statusRule = {
  expected: "failed, 2xx, 3xx, 4xx, 5xx, or a status from 200 to 599",
  pattern: "^(failed|[2-5]xx|[2-5][0-9]{2})$",
  find(input: string): StatusRange | undefined {
    if (!new RegExp(statusRule.pattern).test(input)) return undefined;
    if (input === "failed") return { from: 400, to: 599 };
    return { from: Number(input.replace("xx", "00")), to: Number(input.replace("xx", "99")) };
  },
};

/** Nothing that a client could have put a secret into: no query, no header, and an id only if it is one. */
interface Slot {
  atMs: number;
  /** The order within the thread: the wall clock may be set. */
  endedMs: number;
  durationMs: number;
  status: number;
  method: string;
  /** The path of its route. */
  path: string;
  id: string | undefined;
  /** The name of the error. */
  reason: string | undefined;
  /** The name of the token. */
  token: string | undefined;
  requestId: string | undefined;
}

const createSlot = (): Slot => ({
  atMs: 0,
  endedMs: 0,
  durationMs: 0,
  status: 0,
  method: "",
  path: "",
  id: undefined,
  reason: undefined,
  token: undefined,
  requestId: undefined,
});

const createRing = () => ({ noted: 0, slots: Array.from({ length: REQUESTS_KEPT }, createSlot) });

export type RecentRequest = ReturnType<typeof describeSlot>;

/** For all threads, `sharedMs` is the order. */
const describeSlot = ({ id, endedMs, durationMs, ...slot }: Slot) => ({
  ...slot,
  durationMs: Math.round(durationMs * 1000) / 1000,
  path: fillPath(slot.path, id),
  sharedMs: toShared(endedMs),
});

export const fillPath = (path: string, id: string | undefined): string =>
  id === undefined ? path : path.replace("{id}", id);

export class RecentRequests {
  private readonly succeeded = createRing();
  private readonly refused = createRing();
  private readonly failed = createRing();

  /** The slot for a request with this status. The caller sets every member. */
  claim(status: number): Slot {
    const ring = status < 400 ? this.succeeded : status < 500 ? this.refused : this.failed;
    return ring.slots[ring.noted++ % REQUESTS_KEPT] as Slot;
  }

  find({ status, path, token, limit }: RequestQuery): readonly RecentRequest[] {
    const found = [this.succeeded, this.refused, this.failed]
      .flatMap(({ slots, noted }) => slots.slice(0, noted))
      .filter((slot) => status === undefined || isWithin(slot.status, status))
      .filter((slot) => token === undefined || slot.token === token)
      .filter((slot) => path === undefined || fillPath(slot.path, slot.id).includes(path));
    return sortNewest(found.map(describeSlot)).slice(0, limit);
  }
}

const isWithin = (status: number, { from, to }: StatusRange): boolean =>
  status >= from && status <= to;

const sortNewest = (requests: readonly RecentRequest[]): RecentRequest[] =>
  requests.toSorted((one, other) => other.sharedMs - one.sharedMs);

/** The newest of all threads. */
export const mergeRequests = (lists: readonly (readonly RecentRequest[])[], limit: number) =>
  sortNewest(lists.flat())
    .slice(0, limit)
    .map((request) => {
      const { sharedMs: _, ...shown } = request;
      return shown;
    });
