/** What the service sends, read without rounding: an id is a bigint here, and never a number. */

import type { Plant } from "../../domain/plant.ts";

/**
 * Every plant begins with its id. Inside a JSON string a quote is escaped, so that these characters can
 * stand nowhere but at the start of a plant: putting the digits into quotes changes nothing else.
 */
const ID_MEMBER = /\{"id":(-?\d+)/g;

interface WirePlant {
  readonly id: string;
  readonly name: string;
  readonly tag?: string;
}

const quoteIds = (text: string): string => text.replaceAll(ID_MEMBER, '{"id":"$1"');

const toPlant = ({ id, name, tag }: WirePlant): Plant => ({ id: BigInt(id), name, tag });

export function parsePlants(text: string): Plant[] {
  return (JSON.parse(quoteIds(text)) as WirePlant[]).map(toPlant);
}

export function parsePlant(text: string): Plant {
  return toPlant(JSON.parse(quoteIds(text)) as WirePlant);
}

/** The address of the next page, from `Link: <…>; rel="next"`. */
export function findNext(headers: Headers): string | undefined {
  return /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
}
