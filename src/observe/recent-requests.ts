/** The last answered requests of one HTTP thread. */

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
interface Noted {
  readonly atMs: number;
  /** The order within the thread: the wall clock may be set. */
  readonly endedMs: number;
  readonly durationMs: number;
  readonly status: number;
  readonly method: string;
  /** The path of its route. */
  readonly path: string;
  readonly id: string | undefined;
  /** The name of the error. */
  readonly reason: string | undefined;
  /** The name of the token. */
  readonly token: string | undefined;
  readonly requestId: string | undefined;
}

const createRing = () => ({ count: 0, slots: [] as Noted[] });

export type RecentRequest = ReturnType<typeof describe>;

/** For all threads, `sharedMs` is the order. */
const describe = ({ id, endedMs, durationMs, ...noted }: Noted) => ({
  ...noted,
  durationMs: Math.round(durationMs * 1000) / 1000,
  path: fillPath(noted.path, id),
  sharedMs: toShared(endedMs),
});

export const fillPath = (path: string, id: string | undefined): string =>
  id === undefined ? path : path.replace("{id}", id);

export class RecentRequests {
  private readonly succeeded = createRing();
  private readonly refused = createRing();
  private readonly failed = createRing();

  note(request: Noted): void {
    const { status } = request;
    const ring = status < 400 ? this.succeeded : status < 500 ? this.refused : this.failed;
    ring.slots[ring.count++ % REQUESTS_KEPT] = request;
  }

  find({ status, path, token, limit }: RequestQuery): readonly RecentRequest[] {
    const found = [this.succeeded, this.refused, this.failed]
      .flatMap(({ slots }) => slots)
      .filter((noted) => status === undefined || isWithin(noted.status, status))
      .filter((noted) => token === undefined || noted.token === token)
      .filter((noted) => path === undefined || fillPath(noted.path, noted.id).includes(path));
    return sortNewest(found.map(describe)).slice(0, limit);
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
