/**
 * Sends spans to a collector: OTLP over HTTP, as JSON. A collector that is slow, gone or refuses costs spans, which are
 * counted, and nothing else: what waits is bounded, and one request is in flight.
 */

import { hostname } from "node:os";
import packageJson from "../../package.json";
import { readStart } from "../answer.ts";
import type { Config, findTracing } from "../config.ts";
import { findRetryAfterMs } from "../domain/time.ts";
import { findAttributes } from "../domain/trace.ts";
import { within } from "../tick.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export type Attributes = Readonly<Record<string, string | number | undefined>>;

/** Integers are strings in the JSON of Protocol Buffers. */
export const toAttributes = (values: Attributes): object[] =>
  Object.entries(values).flatMap(([key, value]) =>
    value === undefined
      ? []
      : [{ key, value: typeof value === "string" ? { stringValue: value } : toInt(value) }],
  );

const toInt = (value: number): object => ({ intValue: String(Math.round(value)) });

const SPANS_PER_REQUEST = 512;
const REQUEST_CHARACTERS_MAX = 524_288;
const ATTEMPTS_MAX = 5;
const JITTER = 0.2;
/** Statuses that the protocol asks to retry. */
const RETRYABLE = new Set([429, 502, 503, 504]);
const ANSWER_BYTES_MAX = 65_536;

type Collector = Pick<NonNullable<ReturnType<typeof findTracing>>, "url" | "headers" | "timeoutMs">;

/** `waitMs` is what the collector asks for; undefined if the request must not be sent again. */
type Sent = Readonly<{ rejected: number; problem?: string; waitMs?: number }>;

export function createExporter(collector: Collector, config: Config, metrics: Metrics, log: Log) {
  const { spansMax, spanDelayMs, spanRetryMs, spanRetryMsMax, spanFlushMs } = config;
  const resource = JSON.stringify({ attributes: describeResource(config) });
  const scope = JSON.stringify({ name: "plantstore", version: packageJson.version });
  const format = (spans: readonly string[]): string =>
    `{"resourceSpans":[{"resource":${resource},"scopeSpans":[{"scope":${scope},"spans":[${spans.join(",")}]}]}]}`;
  /** Spans as JSON, oldest first. */
  let waiting: string[] = [];
  let exported = 0;
  let dropped = 0;
  /** Spans dropped when the collector began to fail; undefined while it does not. */
  let droppedBefore: number | undefined;
  let working: Promise<void> | undefined;
  /** Ends a pause: a request is full, or the service stops. */
  let wake: (() => void) | undefined;
  const stopping = new AbortController();
  /** Aborts the request in flight. */
  const ending = new AbortController();

  const count = (more: number, lost: number): void => {
    exported += more;
    dropped += lost;
    metrics.setGauge("spansExported", exported);
    metrics.setGauge("spansDropped", dropped);
  };

  function note(problem: string | undefined): void {
    if (problem !== undefined) {
      if (droppedBefore === undefined) log.warn("traces_not_exported", { problem });
      droppedBefore ??= dropped;
    } else if (droppedBefore !== undefined) {
      log.info("traces_exported_again", { dropped: dropped - droppedBefore });
      droppedBefore = undefined;
    }
  }

  const pause = (ms: number): Promise<unknown> => {
    const woken = Promise.withResolvers<void>();
    wake = woken.resolve;
    return within(ms, woken.promise, stopping.signal);
  };

  function take(): string[] {
    let characters = 0;
    let length = 0;
    while (length < Math.min(waiting.length, SPANS_PER_REQUEST)) {
      characters += waiting[length]?.length ?? 0;
      // One span alone is far below the bound.
      if (characters > REQUEST_CHARACTERS_MAX) break;
      length++;
    }
    return waiting.splice(0, length);
  }

  async function work(): Promise<void> {
    while (waiting.length > 0) {
      if (waiting.length < SPANS_PER_REQUEST && !stopping.signal.aborted) await pause(spanDelayMs);
      await deliver(take());
    }
    working = undefined;
  }

  async function deliver(spans: readonly string[]): Promise<void> {
    const body = format(spans);
    for (let attempt = 1; ; attempt++) {
      const { rejected, problem, waitMs } = await post(
        collector,
        body,
        spans.length,
        ending.signal,
      );
      note(problem);
      const isLast = waitMs === undefined || attempt === ATTEMPTS_MAX || stopping.signal.aborted;
      if (isLast) return count(spans.length - rejected, rejected);
      const backoffMs = spanRetryMs * 2 ** (attempt - 1) * (1 + JITTER * Math.random());
      await pause(Math.min(Math.max(backoffMs, waitMs), spanRetryMsMax));
    }
  }

  return {
    /** No more spans are kept. */
    get isFull(): boolean {
      return waiting.length >= spansMax;
    },

    drop: (): void => count(0, 1),

    add(span: string): void {
      if (stopping.signal.aborted) return count(0, 1);
      waiting.push(span);
      if (waiting.length >= SPANS_PER_REQUEST && droppedBefore === undefined) wake?.();
      working ??= work();
    },

    /** Sends what waits, for a moment. */
    async close(): Promise<void> {
      stopping.abort();
      const timer = setTimeout(() => {
        count(0, waiting.length);
        waiting = [];
        ending.abort();
      }, spanFlushMs);
      await working;
      clearTimeout(timer);
    },
  };
}

/** Never rejects. */
async function post(
  collector: Collector,
  body: string,
  length: number,
  ending: AbortSignal,
): Promise<Sent> {
  const attempt = new AbortController();
  const request = fetch(collector.url, {
    method: "POST",
    headers: {
      "user-agent": `plantstore/${packageJson.version}`,
      ...Object.fromEntries(collector.headers),
      "content-type": "application/json",
    },
    body,
    signal: attempt.signal,
    // The headers are meant for this collector alone.
    redirect: "manual",
  }).then((response) => judge(response, length, collector.timeoutMs));
  try {
    const sent = await within(collector.timeoutMs, request, ending);
    if (sent !== undefined) return sent;
    attempt.abort();
    // It may fail before or after that.
    request.catch(() => undefined);
    const problem = `No answer within ${collector.timeoutMs} ms.`;
    return { rejected: length, problem, waitMs: 0 };
  } catch (error) {
    // The message may have the URL, and its query a secret.
    const { code = "no answer" } = error as NodeJS.ErrnoException;
    return { rejected: length, problem: `Not reached (${code}).`, waitMs: 0 };
  }
}

/** A collector may accept a part: `{"partialSuccess":{"rejectedSpans":"1"}}`. */
async function judge(response: Response, length: number, timeoutMs: number): Promise<Sent> {
  const { status, headers } = response;
  if (response.ok) {
    const text = await readStart(response, ANSWER_BYTES_MAX, timeoutMs);
    const rejected = Math.min(length, findRejected(text));
    return { rejected, ...(rejected > 0 && { problem: `It rejected ${rejected} spans.` }) };
  }
  await response.body?.cancel();
  const problem = `It answered ${status}.`;
  if (!RETRYABLE.has(status)) return { rejected: length, problem };
  const waitMs = findRetryAfterMs(headers.get("retry-after")) ?? 0;
  return { rejected: length, problem, waitMs };
}

function findRejected(text: string): number {
  const [, count] = /"rejectedSpans"\s*:\s*"?(\d{1,9})\b/.exec(text) ?? [];
  return Number(count ?? 0);
}

/** https://opentelemetry.io/docs/specs/semconv/resource/ */
function describeResource({ otelServiceName, otelResourceAttributes }: Config): object[] {
  const attributes = findAttributes(otelResourceAttributes) ?? new Map<string, string>();
  return toAttributes({
    "service.version": packageJson.version,
    "host.name": hostname(),
    ...Object.fromEntries(attributes),
    "service.name": otelServiceName || attributes.get("service.name") || "plantstore",
  });
}
