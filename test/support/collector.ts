/** A collector of OpenTelemetry that refuses what is not OTLP as JSON, keeps the spans, and answers as the test wants. */

import { expect } from "bun:test";

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly name: string;
  readonly kind: number;
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly links: readonly Readonly<Record<"traceId" | "spanId", string>>[];
  readonly isError: boolean;
}

type Json = Record<string, unknown>;

const knownMembers = (value: Json, ...names: readonly string[]): void =>
  expect(Object.keys(value).filter((name) => !names.includes(name))).toEqual([]);

/** Each value has its one type, and integers are decimal strings. */
function readAttributes(sent: unknown): Record<string, string | number> {
  const pairs = (sent as readonly { key: string; value: Json }[]).map(({ key, value, ...more }) => {
    expect(more).toEqual({});
    expect(key).toMatch(/^[a-z][a-z0-9_.]*$/);
    const [[type, content] = [], ...others] = Object.entries(value);
    expect(others).toEqual([]);
    if (type === "intValue") expect(content).toMatch(/^-?\d+$/);
    else expect([type, typeof content]).toEqual(["stringValue", "string"]);
    return [key, type === "intValue" ? Number(content) : String(content)] as const;
  });
  expect(new Set(pairs.map(([key]) => key)).size).toBe(pairs.length);
  return Object.fromEntries(pairs);
}

function readSpan(sent: Json): Span {
  const ids = ["traceId", "spanId", "parentSpanId", "traceState"];
  const times = ["startTimeUnixNano", "endTimeUnixNano"];
  knownMembers(sent, ...ids, ...times, "flags", "name", "kind", "attributes", "links", "status");
  expect(sent["traceId"]).toMatch(/^(?!0+$)[0-9a-f]{32}$/);
  expect(sent["spanId"]).toMatch(/^(?!0+$)[0-9a-f]{16}$/);
  if ("parentSpanId" in sent) expect(sent["parentSpanId"]).toMatch(/^(?!0+$)[0-9a-f]{16}$/);
  expect(sent["flags"]).toBe(1);
  expect([1, 2, 3]).toContain(sent["kind"] as number);
  for (const name of times) expect(sent[name]).toMatch(/^1\d{18}$/);
  expect([{}, { code: 2 }]).toContainEqual(sent["status"] as object);
  const [startNs, endNs] = times.map((name) => BigInt(sent[name] as string)) as [bigint, bigint];
  expect(endNs).toBeGreaterThanOrEqual(startNs);
  return {
    ...(sent as unknown as Span),
    startNs,
    endNs,
    attributes: readAttributes(sent["attributes"]),
    links: (sent["links"] ?? []) as Span["links"],
    isError: (sent["status"] as Json)["code"] === 2,
  };
}

function readRequest(body: string) {
  const { resourceSpans, ...more } = JSON.parse(body) as { resourceSpans: Json[] };
  expect(more).toEqual({});
  const [group, ...otherGroups] = resourceSpans as { resource: Json; scopeSpans: Json[] }[];
  expect(otherGroups).toEqual([]);
  knownMembers(group as Json, "resource", "scopeSpans");
  const [scoped, ...otherScopes] = group?.scopeSpans ?? [];
  expect(otherScopes).toEqual([]);
  expect(scoped?.["scope"]).toEqual({ name: "plantstore", version: expect.any(String) });
  return {
    resource: readAttributes(group?.resource["attributes"]),
    spans: ((scoped?.["spans"] ?? []) as Json[]).map(readSpan),
  };
}

export function startCollector() {
  const requests: {
    readonly path: string;
    readonly headers: Record<string, string>;
    readonly body: string;
    readonly resource: Record<string, string | number>;
  }[] = [];
  const spans: Span[] = [];
  let fault: Error | undefined;
  let news = Promise.withResolvers<void>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request): Promise<Response> => {
      const body = await request.text();
      const headers = request.headers.toJSON() as Record<string, string>;
      const answer = collector.answers.shift();
      try {
        expect([request.method, headers["content-type"]]).toEqual(["POST", "application/json"]);
        const read = readRequest(body);
        const { pathname, search } = new URL(request.url);
        requests.push({ path: pathname + search, headers, body, resource: read.resource });
        if (answer === undefined) spans.push(...read.spans);
      } catch (error) {
        fault ??= error as Error;
      }
      news.resolve();
      news = Promise.withResolvers();
      return answer ?? Response.json({});
    },
  });
  const until = async (isDone: () => boolean): Promise<void> => {
    for (;;) {
      if (fault !== undefined) throw fault;
      if (isDone()) return;
      await news.promise;
    }
  };
  const collector = {
    url: `http://127.0.0.1:${server.port}`,
    requests,
    /** Those that were accepted. */
    spans,
    /** The next answers; then 200. */
    answers: [] as (Response | Promise<Response>)[],
    untilRequests: (count: number): Promise<void> => until(() => requests.length >= count),
    /** Resolves to the first accepted span like this. */
    find: async (isWanted: (span: Span) => boolean): Promise<Span> => {
      await until(() => spans.some(isWanted));
      return spans.find(isWanted) as Span;
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
  return collector;
}
