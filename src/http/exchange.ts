/** One request in flight, and the memory it holds. */

import type { Authenticator } from "../auth/token.ts";
import type { createRateLimiter, RateState } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { PartsOfWriter, Writer } from "../domain/change.ts";
import type { ServedStore, StoreView } from "../domain/store.ts";
import { type Confinement, confinementOf, type TokenRecord } from "../domain/token.ts";
import { findParent, type SpanContext } from "../domain/trace.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { RecentRequests } from "../observe/recent-requests.ts";
import type { Reports } from "../observe/reporter.ts";
import type { RequestSpan, Tracer } from "../observe/tracer.ts";
import { type Budget, LARGE_BYTES } from "./budget.ts";
import type { Feed } from "./feed.ts";
import type { Jobs } from "./job-runner.ts";

export interface Service {
  readonly config: Config;
  readonly store: ServedStore;
  readonly authenticator: Authenticator;
  readonly rates: ReturnType<typeof createRateLimiter>;
  readonly budget: Budget;
  /** For batch lines in flight to the store. */
  readonly lines: Budget;
  /** For the state of compressors. */
  readonly packing: Budget;
  readonly readiness: { readonly isDraining: boolean; readonly check: () => Promise<void> };
  readonly log: Log;
  readonly metrics: Metrics;
  readonly reports: Reports;
  readonly recent: RecentRequests;
  /** Undefined if requests are not traced. */
  readonly tracer?: Tracer | undefined;
  /** Concurrent requests share one copy: thousands of them must not take the memory of thousands. */
  readonly formatMetrics: () => Promise<Blob>;
  readonly feed: Feed;
  readonly jobs: Jobs;
  /** For pages of other origins: the headers that requests may have. */
  readonly sentHeaders: string;
  /** Sets the runtime's idle timer for one exchange; 0 turns it off. */
  readonly limitIdle: (request: Request, seconds: number) => void;
  readonly addressOf: (request: Request) => string | undefined;
}

export type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/** The rest of a body: its reader, or the promise of the whole. */
export type Rest = Reader | Promise<unknown>;
export type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "cancel">;

/** What a request says, by the fields of its operation. */
export interface Input<Path = object, Query = object, Headers = object, Body = unknown> {
  readonly path: Path;
  query: Query;
  readonly headers: Headers;
  /** The media type of the answer: as `Accept` chooses, or that of a body that is answered line by line. */
  form: string;
  body: Body;
}

export class Exchange {
  readonly service: Service;
  readonly request: RoutedRequest;
  readonly startedAtMs: number;
  readonly sentId: string | null;
  /** Bytes held for its body, and for the source of its answer. */
  bytesKept = 0;
  /** Bytes of a streamed answer in flight to the client. */
  private bytesLeaving = 0;
  /** The body was read, and counts as text. */
  isRead = false;
  /** Its write is stored: the client has to know. */
  isStored = false;
  /** Memory is held until the stream ends. */
  isStreamed = false;
  /** The runtime's idle timer is off. */
  isPatient = false;
  /** The unread rest of a body. */
  rest: Rest | undefined;
  token: TokenRecord | undefined;
  /** The token's rate state, if little is left. */
  rate: RateState | undefined;
  /** Undefined if it is not sampled. */
  span: RequestSpan | undefined;
  private id: string | undefined;
  private view: StoreView | undefined;

  constructor(service: Service, request: RoutedRequest, startedAtMs: number) {
    this.service = service;
    this.request = request;
    this.startedAtMs = startedAtMs;
    this.sentId = request.headers.get("x-request-id");
  }

  /** Sets the bytes held. Throws a Refusal if the budget lacks room, or other requests hold more than `share` of it. */
  reserve(bytesKept: number, share = 1): void {
    const { budget } = this.service;
    const others = budget.bytesHeld - this.bytesKept - this.bytesLeaving;
    const bytes = bytesKept + this.bytesLeaving;
    if (!budget.hasRoom(bytes, others, share)) {
      if (this.isRead || share < 1) budget.noteDropped(bytes);
      throw new Refusal("overloaded");
    }
    this.hold(bytesKept);
  }

  /** The same without a check, for bytes that are in memory already. */
  hold(bytesKept: number, bytesLeaving = this.bytesLeaving): void {
    const { budget } = this.service;
    const grown = bytesKept + bytesLeaving - this.bytesKept - this.bytesLeaving;
    budget.bytesHeld += grown;
    // The runtime collects the small chunks of a stream in time. A body that was not read leaves nothing to collect.
    const isLate = this.isStreamed ? -grown >= LARGE_BYTES : this.isRead;
    if (isLate && grown < 0) budget.noteDropped(-grown);
    this.bytesKept = bytesKept;
    this.bytesLeaving = bytesLeaving;
  }

  /** What the token may see and change. */
  get confinement(): Confinement {
    if (this.token === undefined) throw new Error("the request has no token");
    return confinementOf(this.token);
  }

  /** The store as the token sees it. Operations have no other. */
  get store(): StoreView {
    return (this.view ??= this.service.store.for(this.confinement));
  }

  /** Aborted when the client leaves. It takes memory, so it is made on demand. */
  get signal(): AbortSignal {
    return this.request.signal;
  }

  /** A HEAD request: nobody reads the body of the answer. */
  get isHead(): boolean {
    return this.request.method === "HEAD";
  }

  /** The span that work for this request is a part of. */
  get parent(): SpanContext | undefined {
    return this.span ?? (this.service.tracer && findParent(this.request.headers));
  }

  /** Sets the runtime's idle timer. */
  limitIdle(seconds: number): void {
    this.service.limitIdle(this.request, seconds);
  }

  get authorization(): string {
    return this.request.headers.get("authorization") ?? "";
  }

  /** For work that may take longer than the idle time. The timer is set again with the answer. */
  waitLong(): void {
    this.isPatient = true;
    this.limitIdle(0);
  }

  nameWriter(batch?: string): PartsOfWriter {
    return { token: this.token?.name, batch, trace: this.span?.trace };
  }

  /** For work that may outlast its token, or its job. */
  leaseWriter(batch: string | undefined, run?: string): Writer {
    return { ...this.nameWriter(batch), lease: { run, token: this.token?.hash } };
  }

  /** Throws a Refusal if it may not write under this name now. Called just before the write. */
  requireFree({ batch }: Pick<Writer, "batch">): Promise<void> | undefined {
    return batch === undefined ? undefined : this.service.jobs.requireFree(batch);
  }

  /** What each of its log lines has. */
  get ids() {
    const { requestId, span } = this;
    return { requestId, traceId: span?.traceId, spanId: span?.spanId };
  }

  /** The request's id in the log: the client's if it is sane, else ours. */
  get requestId(): string {
    this.id ??=
      this.sentId !== null && SANE_REQUEST_ID.test(this.sentId)
        ? this.sentId
        : `${requestIdPrefix}-${(++requestCount).toString(36)}`;
    return this.id;
  }
}

const SANE_REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;
const requestIdPrefix = Math.random().toString(36).slice(2, 10);
let requestCount = 0;
