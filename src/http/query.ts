/** From the query of a URL to what is asked of the store. */

import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { type Order, orders, type PlantQuery, type TagQuery } from "../domain/page.ts";
import { Fault, Parameters, type Parse } from "./parameters.ts";

export const LIMIT_DEFAULT = 100;
export const LIMIT_MAX = 1000;

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

function parseQuery(url: string, limitDefault: number, parseItsLimit: Parse<number>): PlantQuery {
  const given = new Parameters(url, ["limit", "after", "tag", "name", "order"]);
  const query: PlantQuery = {
    limit: given.take("limit", parseItsLimit, limitDefault),
    after: given.take<bigint | undefined>("after", parseAfter, undefined),
    tag: given.text("tag"),
    name: given.text("name"),
    order: given.take<Order>("order", parseOrder, "asc"),
  };
  given.requireSound();
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

export function parseTagQuery(url: string): TagQuery {
  const given = new Parameters(url, ["prefix", "after", "limit"]);
  const query: TagQuery = {
    prefix: given.text("prefix") ?? "",
    after: given.text("after"),
    limit: given.take("limit", parseLimit, LIMIT_DEFAULT),
  };
  given.requireSound();
  return query;
}

/** The query of the page that begins behind this tag. */
export function formatNextTagQuery({ prefix, limit }: TagQuery, after: string): string {
  const next = new URLSearchParams();
  next.set("after", after);
  next.set("limit", String(limit));
  if (prefix !== "") next.set("prefix", prefix);
  return next.toString();
}

/** The time behind which activity is asked for; all of it where none is given. */
export function parseSince(url: string): number {
  const given = new Parameters(url, ["since"]);
  const since = given.take("since", parseTime, 0);
  given.requireSound();
  return since;
}

function parseLimit(text: string): number | Fault {
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= LIMIT_MAX) return limit;
  return Fault.of("limit", `an integer from 1 to ${LIMIT_MAX}`, text);
}

function refuseLimit(): Fault {
  return new Fault("limit: not with a stream, which has no pages");
}

function parseAfter(text: string): bigint | Fault {
  return (
    findPlainInt64(text) ?? Fault.of("after", `an integer from ${INT64_MIN} to ${INT64_MAX}`, text)
  );
}

function parseOrder(text: string): Order | Fault {
  return orders.find((known) => known === text) ?? Fault.of("order", orders.join(" or "), text);
}

function parseTime(text: string): number | Fault {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  return Fault.of("since", "milliseconds since 1970", text);
}
