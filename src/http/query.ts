/** From the query of a URL to what is asked of the store. Everything unknown, repeated or odd is refused by name. */

import { Refusal } from "../domain/error.ts";
import { INT64_MAX, INT64_MIN } from "../domain/int64.ts";
import { type Order, orders, type PlantQuery } from "../domain/page.ts";
import { isStorable } from "../domain/plant.ts";

export const LIMIT_DEFAULT = 100;
export const LIMIT_MAX = 1000;

const parameters = ["limit", "after", "tag", "name", "order"] as const;
type Parameter = (typeof parameters)[number];
type Parameters = Partial<Record<Parameter, string>>;

const SHOWN_CHARACTERS_MAX = 40;

/** One way of writing each integer, so that each plant has one URL. */
const PLAIN_INTEGER = /^(0|-?[1-9]\d{0,18})$/;

export function findPlainInt64(text: string): bigint | undefined {
  if (!PLAIN_INTEGER.test(text)) return undefined;
  const value = BigInt(text);
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}

export function parsePlantQuery(url: string): PlantQuery {
  return parseQuery(url, LIMIT_DEFAULT, parseLimit);
}

/** A stream has no pages, and so no limit. */
export function parseStreamQuery(url: string): PlantQuery {
  return parseQuery(url, LIMIT_MAX, refuseLimit);
}

type Parse<Value> = (text: string) => Value | Fault;

/** What is wrong with a parameter. All are collected, so that one answer names every one of them. */
class Fault {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}

function parseQuery(url: string, limitDefault: number, parseItsLimit: Parse<number>): PlantQuery {
  const { given, faults } = parseParameters(url);
  const take = <Value>(text: string | undefined, parse: Parse<Value>, fallback: Value): Value => {
    const value = text === undefined ? fallback : parse(text);
    if (!(value instanceof Fault)) return value;
    faults.push(value.message);
    return fallback;
  };
  const query: PlantQuery = {
    limit: take(given.limit, parseItsLimit, limitDefault),
    after: take<bigint | undefined>(given.after, parseAfter, undefined),
    tag: given.tag,
    name: given.name,
    order: take<Order>(given.order, parseOrder, "asc"),
  };
  if (faults.length > 0) throw new Refusal("invalid_query", faults.join("; "));
  return query;
}

/** The query of the page that begins behind this id. */
export function formatNextQuery(query: PlantQuery, after: bigint): string {
  const next = new URLSearchParams();
  next.set("after", String(after));
  next.set("limit", String(query.limit));
  if (query.order !== "asc") next.set("order", query.order);
  if (query.tag !== undefined) next.set("tag", query.tag);
  if (query.name !== undefined) next.set("name", query.name);
  return next.toString();
}

function parseParameters(url: string): { given: Parameters; faults: string[] } {
  const start = url.indexOf("?");
  const given: Parameters = {};
  const faults: string[] = [];
  for (const pair of start === -1 ? [] : url.slice(start + 1).split("&")) {
    if (pair === "") continue;
    const equals = pair.includes("=") ? pair.indexOf("=") : pair.length;
    const rawName = pair.slice(0, equals);
    const name = decode(rawName);
    const value = decode(pair.slice(equals + 1));
    if (name === undefined || !isParameter(name))
      faults.push(
        `${JSON.stringify((name ?? rawName).slice(0, SHOWN_CHARACTERS_MAX))}: unknown; known are ${parameters.join(", ")}`,
      );
    else if (value === undefined)
      faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (given[name] !== undefined) faults.push(`${name}: given more than once`);
    else given[name] = value;
  }
  return { given, faults };
}

const isParameter = (name: string): name is Parameter => parameters.includes(name as Parameter);

/** The platform's own parser would replace invalid bytes in silence. */
function decode(text: string): string | undefined {
  try {
    const decoded = decodeURIComponent(text.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}

function parseLimit(text: string): number | Fault {
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= LIMIT_MAX) return limit;
  return fault("limit", `an integer from 1 to ${LIMIT_MAX}`, text);
}

function refuseLimit(): Fault {
  return new Fault("limit: not with a stream, which has no pages");
}

function parseAfter(text: string): bigint | Fault {
  return (
    findPlainInt64(text) ?? fault("after", `an integer from ${INT64_MIN} to ${INT64_MAX}`, text)
  );
}

function parseOrder(text: string): Order | Fault {
  return orders.find((known) => known === text) ?? fault("order", orders.join(" or "), text);
}

function fault(name: string, expected: string, came: string): Fault {
  const shown = JSON.stringify(came.slice(0, SHOWN_CHARACTERS_MAX));
  return new Fault(`${name}: expected ${expected}, got ${shown}`);
}
