/** Spans by OpenTelemetry: which requests and deliveries are sampled, and their attributes. */

import type { Config, findTracing } from "../config.ts";
import {
  type CommitFacts,
  findNamedSpan,
  findTraceParent,
  findTraceState,
  nameSpan,
  type SpanContext,
  type StoreTracing,
  toTraceHeaders,
} from "../domain/trace.ts";
import { type Attributes, createExporter, toAttributes } from "./exporter.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

type Tracing = NonNullable<ReturnType<typeof findTracing>>;
export type Tracer = ReturnType<typeof createTracer>;
export type RequestSpan = NonNullable<ReturnType<Tracer["startRequest"]>>;

/** Numbers of the protocol. */
const INTERNAL = 1;
const SERVER = 2;
const CLIENT = 3;
const STATUS_ERROR = 2;

/** Children of one request. An import of a million plants has thousands of commits. */
const CHILDREN_MAX = 64;
/** The wall clock was set if it differs by more than this. */
const CLOCK_MS = 50;

/** The journal entry of the change names a sampled request; `parent` is the request that sends the event itself. */
interface DeliveryOrigin {
  readonly cause?: string | undefined;
  readonly parent?: SpanContext | undefined;
}

interface Ended extends Pick<SpanContext, "traceId" | "spanId"> {
  readonly parentSpanId?: string | undefined;
  readonly traceState?: string | undefined;
  readonly link?: Pick<SpanContext, "traceId" | "spanId"> | undefined;
  readonly name: string;
  readonly kind: number;
  /** By `performance.now()`. */
  readonly startedAtMs: number;
  readonly endedAtMs: number;
  readonly attributes: Attributes;
  readonly isError: boolean;
}

export function createTracer(tracing: Tracing, config: Config, metrics: Metrics, log: Log) {
  const exporter = createExporter(tracing, config, metrics, log);
  const { followClock, send } = createSpanWriter(exporter);
  /** Requests that are not finished, by the name that journal entries have. */
  const open = new Map<string, { childrenLeft: number; readonly traceState: string | undefined }>();
  function noteChild(
    trace: string,
    span: Pick<Ended, "name" | "startedAtMs" | "endedAtMs" | "attributes">,
    failure: unknown,
  ): void {
    const request = open.get(trace);
    const parent = findNamedSpan(trace);
    if (request === undefined || parent === undefined || request.childrenLeft-- <= 0) return;
    const { traceId, spanId: parentSpanId } = parent;
    const { traceState } = request;
    const ids = { traceId, parentSpanId, spanId: randomHex(8), traceState };
    const { reason } = (failure ?? {}) as { readonly reason?: string };
    const isError = failure !== undefined;
    const type = isError ? (reason ?? "internal") : undefined;
    const attributes = { ...span.attributes, "error.type": type };
    send({ ...ids, kind: INTERNAL, isError, ...span, attributes });
  }

  const storeTracing: StoreTracing = {
    noteWait: (trace, startedAtMs, endedAtMs, failure) =>
      noteChild(trace, { name: "queue", startedAtMs, endedAtMs, attributes: {} }, failure),

    noteCommit: (trace, { startedAtMs, endedAtMs, writes, syncMs }: CommitFacts, failure) => {
      const attributes = {
        "plantstore.commit.writes": writes,
        "plantstore.commit.sync_us": syncMs === undefined ? undefined : syncMs * 1000,
      };
      noteChild(trace, { name: "commit", startedAtMs, endedAtMs, attributes }, failure);
    },
  };

  return {
    ...storeTracing,

    /** Undefined if the request is not sampled. A header that is not valid is ignored. */
    startRequest(headers: Headers, startedAtMs: number) {
      const header = headers.get("traceparent");
      const parent = header === null ? undefined : findTraceParent(header);
      const context = sample(tracing, parent);
      if (context === undefined) return undefined;
      followClock();
      const trace = nameSpan(context);
      const traceState = parent && findTraceState(headers.get("tracestate"));
      open.set(trace, { childrenLeft: CHILDREN_MAX, traceState });
      let described: Pick<Ended, "name" | "attributes" | "isError"> | undefined;
      let endedAtMs: number | undefined;
      let failed: string | undefined;
      const finish = (): void => {
        if (described === undefined || endedAtMs === undefined || !open.delete(trace)) return;
        const { name, attributes, isError } = described;
        send({
          ...context,
          parentSpanId: parent?.spanId,
          traceState,
          name,
          kind: SERVER,
          startedAtMs,
          endedAtMs,
          attributes: { ...attributes, "error.type": failed ?? attributes["error.type"] },
          isError: isError || failed !== undefined,
        });
      };
      return {
        ...context,
        traceState,
        /** Names the request in the journal. */
        trace,
        describe(name: string, attributes: Attributes, isError: boolean): void {
          described = { name, attributes, isError };
          finish();
        },
        /** Only the first call has an effect. `failure` is that of an answer that had begun. */
        end(failure?: string): void {
          if (endedAtMs !== undefined) return;
          endedAtMs = performance.now();
          failed = failure;
          // The work of a job may end before its answer is known.
          finish();
        },
      };
    },

    /**
     * An event for a webhook, as part of the request that sends it. Without one it starts a trace of its own, which
     * links to the request that made the change, and with a sampler that follows parents is sampled if that one was.
     */
    startDelivery({ cause, parent }: DeliveryOrigin) {
      const link = findNamedSpan(cause);
      const isFollowing = link !== undefined && tracing.isParentBased;
      const context = isFollowing
        ? toSampled(createTraceId(Math.random()))
        : sample(tracing, parent);
      const startedAtMs = performance.now();
      const traceId = parent?.traceId ?? randomHex(16);
      const sent = context ?? { traceId, spanId: randomHex(8), isSampled: false };
      const { traceState, spanId: parentSpanId } = parent ?? {};
      if (context !== undefined) followClock();
      return {
        context,
        headers: toTraceHeaders({ ...sent, traceState }),
        end(name: string, attributes: Attributes, isError: boolean): void {
          if (context === undefined) return;
          const times = { startedAtMs, endedAtMs: performance.now() };
          const ids = { ...context, parentSpanId, traceState, link };
          send({ ...ids, ...times, name, kind: CLIENT, attributes, isError });
        },
      };
    },

    close: (): Promise<void> => exporter.close(),
  };
}

/** Spans in the form of the protocol, with times by the wall clock. */
function createSpanWriter(exporter: ReturnType<typeof createExporter>) {
  /** When `performance.now()` was 0. */
  let originMs = performance.timeOrigin;

  function followClock(): void {
    const nowMs = Date.now();
    if (Math.abs(nowMs - originMs - performance.now()) > CLOCK_MS)
      originMs = nowMs - performance.now();
  }

  function send({ traceId, spanId, link, attributes, isError, ...span }: Ended): void {
    if (exporter.isFull) return exporter.drop();
    const { parentSpanId, traceState, name, kind, startedAtMs, endedAtMs } = span;
    exporter.add(
      JSON.stringify({
        traceId,
        spanId,
        traceState,
        parentSpanId,
        flags: 1,
        name,
        kind,
        startTimeUnixNano: toNanoseconds(originMs + startedAtMs),
        endTimeUnixNano: toNanoseconds(originMs + endedAtMs),
        attributes: toAttributes(attributes),
        links: link && [{ ...link, flags: 1 }],
        status: isError ? { code: STATUS_ERROR } : {},
      }),
    );
  }

  return { followClock, send };
}

/** The context of a new span; undefined if it is not sampled. `parent` may be in another service. */
function sample({ isParentBased, share }: Tracing, parent: SpanContext | undefined) {
  if (parent === undefined) {
    const draw = Math.random();
    return draw < share ? toSampled(createTraceId(draw)) : undefined;
  }
  const { traceId, isSampled } = parent;
  const isTaken = isParentBased ? isSampled : isInShare(traceId, share);
  return isTaken ? toSampled(traceId) : undefined;
}

const toSampled = (traceId: string): SpanContext => ({
  traceId,
  spanId: randomHex(8),
  isSampled: true,
});

const SHARE_DIGITS = 13;
const SHARE_START = 16;
const SHARE_END = SHARE_START + SHARE_DIGITS;
const SHARE_UNIT = 16 ** SHARE_DIGITS;

/** The same bits, compared in the same way, as in OpenTelemetry's libraries: services with one share agree. */
const isInShare = (traceId: string, share: number): boolean =>
  Number.parseInt(traceId.slice(SHARE_START, SHARE_END), 16) < share * SHARE_UNIT;

/** `draw` decided whether it is sampled, so services that draw again by the id decide in the same way. */
function createTraceId(draw: number): string {
  const drawn = Math.floor(draw * SHARE_UNIT)
    .toString(16)
    .padStart(SHARE_DIGITS, "0");
  return randomHex(8) + drawn + randomHex(2).slice(1);
}

const randomHex = (bytes: number): string => crypto.getRandomValues(new Uint8Array(bytes)).toHex();

/** As text: a double cannot hold it. */
function toNanoseconds(ms: number): string {
  const whole = Math.floor(ms);
  return `${whole}${String(Math.floor((ms - whole) * 1e6)).padStart(6, "0")}`;
}
