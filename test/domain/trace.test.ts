/** Trace context by the rules of W3C, and the pairs of OpenTelemetry's variables. */

import { describe, expect, test } from "bun:test";
import {
  findHeaders,
  findNamedSpan,
  findPairs,
  findTraceParent,
  findTraceState,
  formatTraceParent,
  nameSpan,
} from "../../src/domain/trace.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

describe("traceparent", () => {
  test.each([
    [`00-${TRACE}-${SPAN}-01`, true],
    [`00-${TRACE}-${SPAN}-00`, false],
    [`00-${TRACE}-${SPAN}-03`, true],
    [`00-${TRACE}-${SPAN}-fe`, false],
    [`01-${TRACE}-${SPAN}-01`, true],
    [`cc-${TRACE}-${SPAN}-01-what-the-future-brings`, true],
    [`cc-${TRACE}-${SPAN}-00-`, false],
  ])("%s is a parent", (header, isSampled) =>
    expect(findTraceParent(header)).toEqual({ traceId: TRACE, spanId: SPAN, isSampled }),
  );

  test.each([
    null,
    "",
    "00",
    `ff-${TRACE}-${SPAN}-01`,
    `0-${TRACE}-${SPAN}-01`,
    `0x-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-01-`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-`,
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-0g`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}.01`,
    `cc-${TRACE}-${SPAN}-01.more`,
    ` 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01, 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01\n`,
  ])("%j is ignored", (header) => expect(findTraceParent(header)).toBeUndefined());

  test("is written as version 00, with no flag but the sampled one", () => {
    const parent = findTraceParent(`cc-${TRACE}-${SPAN}-ff-more`);
    expect(parent && formatTraceParent(parent)).toBe(`00-${TRACE}-${SPAN}-01`);
    expect(findNamedSpan(parent && nameSpan(parent))).toEqual({ traceId: TRACE, spanId: SPAN });
    expect(findNamedSpan("x")).toBeUndefined();
  });
});

describe("tracestate", () => {
  const many = (count: number): string =>
    Array.from({ length: count }, (_, index) => `k${index}=v`).join(",");
  const long = (key: string, length: number): string => `${key}=${"x".repeat(length - 2)}`;

  test.each([
    ["a=1", "a=1"],
    ["a=1,b=2", "a=1,b=2"],
    [" a=1 \t,\t , ,b=2,", "a=1,b=2"],
    ["a= 1  ", "a= 1"],
    ["0tenant@system/x-y_z*=a:b;c", "0tenant@system/x-y_z*=a:b;c"],
    ["a=1,b=2,a=3", "a=1,b=2"],
    [many(32), many(32)],
    [`${"k".repeat(256)}=v`, `${"k".repeat(256)}=v`],
    [
      [long("a", 129), long("b", 128), long("c", 128), long("d", 128)].join(","),
      [long("b", 128), long("c", 128), long("d", 128)].join(","),
    ],
    [
      Array.from("abcdef", (key) => long(key, 100)).join(","),
      Array.from("abcde", (key) => long(key, 100)).join(","),
    ],
  ])("%j is kept as %j", (header, kept) => expect(findTraceState(header)).toBe(kept));

  test.each([
    null,
    "",
    " , ",
    "a",
    "a=",
    "=1",
    "A=1",
    "a=1=2",
    "a=ü",
    "a=\u0001",
    "_a=1",
    many(33),
    `${"k".repeat(257)}=v`,
    `a=${"v".repeat(257)}`,
    "a=1,b",
  ])("%j is dropped", (header) => expect(findTraceState(header)).toBeUndefined());
});

describe("pairs of a variable", () => {
  test("are decoded, with blanks around them ignored", () => {
    const pairs = findPairs(" a = 1%2C%20%C3%BC , b==,", () => true);
    expect([...(pairs ?? [])]).toEqual([
      ["a", "1, ü"],
      ["b", "="],
    ]);
  });

  test.each([
    "a",
    "=1",
    "a=%",
    "a=%ff",
    "a b=1",
    "a=",
    "a=%0d%0a",
    "a=ü",
    "Content-Type=x",
    "host=x",
  ])("%j is no header", (text) => expect(findHeaders(text)).toBeUndefined());
});
