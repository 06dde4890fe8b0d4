/** Reads the URL and the headers of a request by the fields of its operation, negotiates content, and links pages. */

import { Refusal } from "../domain/errors.ts";
import { applyRules, describeFault, joinFaults } from "../domain/members.ts";
import { isStorable } from "../domain/faults.ts";
import type { Exchange, Input } from "./exchange.ts";
import type { Field, Fields } from "./field.ts";
import { findForwardedPrefix } from "./proxies.ts";

export interface Head {
  readonly path?: Fields | undefined;
  readonly query?: Fields | undefined;
  readonly headers?: Fields | undefined;
  /** The media types of its answers, of which `Accept` chooses; the first is a page. */
  readonly forms?: readonly [string, ...string[]] | undefined;
  /** The fields of the query for all forms but the first. */
  readonly streamQuery?: Fields | undefined;
}

const NOTHING = {};

/** Made once for each operation. Returns what the request says. Throws a Refusal that names every fault of the query. */
export function createHeadParser(
  { path, query = NOTHING, headers = NOTHING, forms, streamQuery = query }: Head,
  { ignoresQuery = false } = {},
): (exchange: Exchange) => Input {
  const readQuery = createQueryReader(query);
  const readStreamQuery = createQueryReader(streamQuery);
  const names = Object.keys(headers);
  // Their faults are told among those of the query. Others are refused after it.
  const joined = names.filter((name) => headers[name]?.refusal === undefined);
  const strict = names.filter((name) => !joined.includes(name));
  return (exchange) => {
    const { request } = exchange;
    const form = forms === undefined ? "" : chooseForm(request.headers.get("accept"), forms);
    const heads: Record<string, unknown> = names.length === 0 ? NOTHING : {};
    const faults = joined.length === 0 ? NO_FAULTS : [];
    for (const name of joined) {
      const field = headers[name] as Field<unknown>;
      heads[name] = field.fallback;
      const sent =
        field.form === undefined || field.form === form ? request.headers.get(name) : null;
      if (sent === null) continue;
      heads[name] = field.find(sent);
      if (heads[name] === undefined)
        (faults as string[]).push(describeFault(name, field, sent, show(sent)));
    }
    const read = forms === undefined || form === forms[0] ? readQuery : readStreamQuery;
    const values = ignoresQuery ? NOTHING : read(request.url, faults);
    const parts = path === undefined ? NOTHING : readPath(path, request.params);
    for (const name of strict)
      heads[name] = readHeader(headers[name] as Field<unknown>, request.headers.get(name));
    return { path: parts, query: values, headers: heads, form, body: undefined };
  };
}

const NO_FAULTS: readonly string[] = [];

function createQueryReader(fields: Fields) {
  const missing: string[] = [];
  const absent = Object.freeze(applyRules(fields, {}, missing, show));
  // Most writes have no query.
  return (url: string, faults: readonly string[]): object =>
    missing.length + faults.length > 0 || url.includes("?")
      ? parseQuery(url, fields, [...faults])
      : absent;
}

function readPath(fields: Fields, params: Readonly<Record<string, string>> = {}): object {
  const values: Record<string, unknown> = {};
  for (const name in fields) {
    const { find, refusal } = fields[name] as Field<unknown>;
    values[name] = find(params[name] ?? "");
    if (values[name] === undefined) throw new Refusal(refusal ?? "path_not_found");
  }
  return values;
}

function readHeader({ find, fallback, refusal }: Field<unknown>, sent: string | null): unknown {
  if (sent === null) return fallback;
  const found = find(sent);
  if (found === undefined) throw new Refusal(refusal ?? "invalid_query");
  return found;
}

/** Throws a Refusal that names every fault, including those passed in. */
function parseQuery(url: string, known: Fields, faults: string[]) {
  const inputs: Record<string, string> = {};
  for (const [name, value, pair] of splitPairs(url))
    if (name === undefined || !Object.hasOwn(known, name))
      faults.push(
        `${quote(name ?? pair.replace(/=.*/s, ""))}: unknown; allowed: ${Object.keys(known).join(", ") || "none"}`,
      );
    else if (value === undefined)
      faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (inputs[name] !== undefined) faults.push(`${name}: given more than once`);
    else inputs[name] = value;
  const values = applyRules(known, inputs, faults, show);
  if (faults.length > 0) throw new Refusal("invalid_query", joinFaults(faults));
  return values;
}

const show = (input: string | undefined): string =>
  input === undefined ? "nothing" : quote(input);

const quote = (input: string): string => JSON.stringify(input.slice(0, 40));

/** The prefix that trusted proxies strip, for links and redirects. */
export const prefixOf = ({ request, service }: Exchange): string =>
  findForwardedPrefix(request.headers, () => service.addressOf(request), service.config);

/** The Link header of the next page (RFC 8288): an absolute path, because not every library resolves relative ones. */
export function linkNext(
  exchange: Exchange,
  limit: number | undefined,
  after: bigint | number | string | undefined,
  name: "after" | "cursor" = "after",
): Readonly<Record<string, string>> {
  if (after === undefined) return {};
  const { url } = exchange.request;
  const others = splitPairs(url)
    .filter(([other]) => other !== name && other !== "limit")
    // An unescaped ">" would end the link.
    .map(([, , pair]) => pair.replaceAll(">", "%3E"));
  const pairs = [`${name}=${encodeURIComponent(String(after))}`, ...others];
  if (limit !== undefined) pairs.splice(1, 0, `limit=${limit}`);
  return { link: `<${prefixOf(exchange)}${pathOf(url)}?${pairs.join("&")}>; rel="next"` };
}

/** Drops the origin and the query. With an odd Host header the URL has no origin. */
export const pathOf = (url: string): string =>
  url.replace(/^[a-z]+:\/\/[^/]*/, "").replace(/[?#].*$/s, "");

type Pair = readonly [name: string | undefined, value: string | undefined, pair: string];

/** Each pair as sent, with its decoded name and value; undefined where decoding fails. */
function splitPairs(url: string): Pair[] {
  const start = url.indexOf("?");
  const pairs = start === -1 ? [] : url.slice(start + 1).split("&");
  return pairs
    .filter((pair) => pair !== "")
    .map((pair): Pair => {
      const equals = pair.includes("=") ? pair.indexOf("=") : pair.length;
      return [decode(pair.slice(0, equals)), decode(pair.slice(equals + 1)), pair];
    });
}

/** URLSearchParams would silently replace invalid bytes. */
function decode(encoded: string): string | undefined {
  try {
    const decoded = decodeURIComponent(encoded.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}

/** RFC 9110, section 12.5.1. Falls back to the first offer if the client has no preference or accepts none. */
function chooseForm(accept: string | null, offers: readonly [string, ...string[]]): string {
  if (accept === null || accept === "*/*") return offers[0];
  const weigh = parseWeights(accept);
  let best = offers[0];
  let bestWeight = 0;
  for (const offer of offers) {
    const weight = weigh(offer, `${offer.split("/")[0]}/*`, "*/*") ?? 0;
    if (weight > bestWeight) [best, bestWeight] = [offer, weight];
  }
  return best;
}

/** RFC 9110, section 12.5.3. */
export const acceptsGzip = (header: string | null): boolean =>
  (parseWeights(header ?? "")("gzip", "x-gzip", "*") ?? 0) > 0;

export type Coding = "zstd" | "gzip";

export interface Choice {
  readonly coding: Coding;
  /** The client refuses an answer without a coding. */
  readonly isRequired: boolean;
}

/** By the same section. Undefined: no coding. zstd only for clients that name it: `*` is older than zstd. */
export function chooseCoding(header: string | null): Choice | undefined {
  if (header === null || header === "identity") return undefined;
  const weigh = parseWeights(header);
  const zstd = weigh("zstd") ?? 0;
  const gzip = weigh("gzip", "x-gzip", "*") ?? 0;
  const best = Math.max(zstd, gzip);
  // An answer without a coding is acceptable unless it is excluded. Unless it has a weight, it is the last choice.
  if (best === 0 || (weigh("identity") ?? 0) > best) return undefined;
  return { coding: zstd === best ? "zstd" : "gzip", isRequired: weigh("identity", "*") === 0 };
}

/** Returns a lookup: the q-value of the first of its names in the header. Pass the most specific name first. */
function parseWeights(header: string): (...names: readonly string[]) => number | undefined {
  const weights = new Map<string, number>();
  for (const element of header.toLowerCase().split(",")) {
    const [name = "", ...parameters] = element.split(";").map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
    weights.set(name, weight === undefined ? 1 : Number(weight) || 0);
  }
  return (...names) =>
    names.map((name) => weights.get(name)).find((weight) => weight !== undefined);
}
