/** Trace context by https://www.w3.org/TR/trace-context/, and lists of pairs as OpenTelemetry's variables have them. */

/** A span of another service, or of an earlier request. */
export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly isSampled: boolean;
  readonly traceState?: string | undefined;
}

const PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/s;
const FORBIDDEN_VERSION = "ff";
const ZEROS = /^0+$/;
const SAMPLED = 1;

/** Undefined for anything that the standard says to ignore. A later version may have more fields; version 00 has none. */
export function findTraceParent(header: string | null): SpanContext | undefined {
  const [, version, traceId = "", spanId = "", flags = "", more] = PARENT.exec(header ?? "") ?? [];
  if (version === undefined || version === FORBIDDEN_VERSION) return undefined;
  if (ZEROS.test(traceId) || ZEROS.test(spanId)) return undefined;
  if (version === "00" && more !== undefined) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export const formatTraceParent = ({ traceId, spanId, isSampled }: SpanContext): string =>
  `00-${traceId}-${spanId}-0${isSampled ? SAMPLED : 0}`;

const STATE_MEMBER = /^([a-z0-9][a-z0-9_*/@-]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$/;
const STATE_MEMBERS_MAX = 32;
/** What the standard asks to be kept. Longer members go first, then the last ones. */
const STATE_CHARACTERS_MAX = 512;
const STATE_MEMBER_CHARACTERS_MAX = 128;

/** The list in its shortest form. Undefined if it is empty or one member is wrong. Of equal keys the first counts. */
export function findTraceState(header: string | null): string | undefined {
  const members = new Map<string, string>();
  const texts = (header ?? "").split(",").map((text) => text.trim());
  for (const text of texts.filter((each) => each !== "")) {
    const [, key] = STATE_MEMBER.exec(text) ?? [];
    if (key === undefined) return undefined;
    if (!members.has(key)) members.set(key, text);
  }
  if (members.size > STATE_MEMBERS_MAX) return undefined;
  let kept = [...members.values()];
  const join = (): string => kept.join(",");
  if (join().length > STATE_CHARACTERS_MAX)
    kept = kept.filter((text) => text.length <= STATE_MEMBER_CHARACTERS_MAX);
  while (join().length > STATE_CHARACTERS_MAX) kept.pop();
  return join() || undefined;
}

/** The caller's span, for requests that this one sends. */
export function findParent(headers: Headers): SpanContext | undefined {
  const parent = findTraceParent(headers.get("traceparent"));
  return parent && { ...parent, traceState: findTraceState(headers.get("tracestate")) };
}

/** The headers of a request that the span sends. */
export const toTraceHeaders = (span: SpanContext): Readonly<Record<string, string>> => ({
  traceparent: formatTraceParent(span),
  ...(span.traceState !== undefined && { tracestate: span.traceState }),
});

/** How a journal entry names the sampled request that made it. */
export const nameSpan = ({ traceId, spanId }: Pick<SpanContext, "traceId" | "spanId">): string =>
  `${traceId}-${spanId}`;

export function findNamedSpan(name: string | undefined) {
  const [, traceId, spanId] = /^([0-9a-f]{32})-([0-9a-f]{16})$/.exec(name ?? "") ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

/** `key1=value1,key2=value2`, with values percent-encoded. Undefined if a pair is malformed or not allowed. */
export function findPairs(
  text: string,
  isAllowed: (key: string, value: string) => boolean,
): ReadonlyMap<string, string> | undefined {
  const pairs = new Map<string, string>();
  for (const pair of text.split(",").filter((each) => each.trim() !== "")) {
    const [, key = "", encoded = ""] = /^([^=]*)=(.*)$/s.exec(pair) ?? [];
    const name = key.trim();
    try {
      const value = decodeURIComponent(encoded.trim());
      if (name === "" || !isAllowed(name, value)) return undefined;
      pairs.set(name, value);
    } catch {
      return undefined;
    }
  }
  return pairs;
}

/** These belong to the exporter. */
const OWN_HEADERS = /^(content-(type|length|encoding)|transfer-encoding|connection|host)$/i;

/** Header fields of requests to the collector, RFC 9110 section 5. */
export const findHeaders = (text: string): ReadonlyMap<string, string> | undefined =>
  findPairs(
    text,
    (key, value) =>
      /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(key) &&
      !OWN_HEADERS.test(key) &&
      /^[!-~]([ -~]*[!-~])?$/.test(value),
  );

export const findAttributes = (text: string): ReadonlyMap<string, string> | undefined =>
  findPairs(
    text,
    (key, value) =>
      /^[!-~]{1,255}$/.test(key) && /^\P{Cc}{0,255}$/u.test(value) && value.isWellFormed(),
  );

/** What a store tells about a request that is traced. */
export interface StoreTracing {
  /** `trace` is that of the writer; times are by `performance.now()`. */
  noteWait(trace: string, startedAtMs: number, endedAtMs: number, failure?: unknown): void;
  noteCommit(trace: string, facts: CommitFacts, failure?: unknown): void;
}

export interface CommitFacts extends Readonly<Record<"startedAtMs" | "endedAtMs", number>> {
  /** All that shared the transaction, of every HTTP thread. */
  readonly writes: number;
  /** The COMMIT: what is written to the log, and its sync. Undefined if the store cannot tell it apart. */
  readonly syncMs?: number | undefined;
}
