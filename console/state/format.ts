/** Counts, sizes, times and names in the user's locale. Ids are not formatted. */

import { type Filter, filterNames } from "../../src/domain/filter.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Scope } from "../../src/domain/token.ts";
import { fill, locale, plural, t } from "../text/text.ts";

const count = new Intl.NumberFormat(locale);
const tenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
const significant = new Intl.NumberFormat(locale, { maximumSignificantDigits: 3 });

export const formatCount = (value: number): string => count.format(value);

/** "3,000", or "20,000+" if there are more. */
export const formatTotal = ({ count: value, exact }: PlantCount): string =>
  count.format(value) + (exact ? "" : "+");

export const formatFigure = (value: number): string =>
  value >= 1000 ? count.format(Math.round(value)) : significant.format(value);

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${(unit === 0 ? count : tenths).format(value)} ${BYTE_UNITS[unit]}`;
}

const roundToTenths = (value: number): number => Math.round(value * 10) / 10;

export function formatSeconds(seconds: number): string {
  if (seconds < 1) return t.shared.lessThanASecond;
  if (seconds < 90) return plural(t.shared.seconds, Math.round(seconds));
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return plural(t.shared.minutes, minutes);
  const hours = roundToTenths(minutes / 60);
  return hours < 48
    ? plural(t.shared.hours, hours)
    : plural(t.shared.days, roundToTenths(minutes / 60 / 24));
}

const time = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });

/** From ISO 8601. */
export const formatTime = (iso: string): string => time.format(new Date(iso));

const moment = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" });

/** With seconds. */
export const formatMoment = (atMs: number): string => moment.format(atMs);

export const timeOfDay = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const day = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });

/** The time of day if it was today, otherwise the day. */
export function formatWhen(iso: string): string {
  const date = new Date(iso);
  const isToday = date.toDateString() === new Date().toDateString();
  return (isToday ? timeOfDay : day).format(date);
}

const NAME_CHARACTERS_MAX = 60;

/** A name to use in a sentence. */
export function formatName({ id, name }: Plant): string {
  if (name.trim() === "") return fill(t.shared.plantWithoutName, { id: String(id) });
  return quote(clipName(name));
}

/** In the quotation marks of the language. */
export const quote = (name: string): string => fill(t.shared.quoted, { name });

export const clipName = (name: string): string =>
  (name.length > NAME_CHARACTERS_MAX
    ? `${name.slice(0, NAME_CHARACTERS_MAX)}…`
    : name
  ).toWellFormed();

/** What matching plants have in common, one text for each filter. */
export const describeFilter = ({ tagged, ...texts }: Filter): string[] =>
  filterNames.flatMap((name) => {
    if (name === "tagged") return tagged === undefined ? [] : t.plants.withWhat.tagged[`${tagged}`];
    const value = texts[name];
    if (value === undefined) return [];
    if (name === "tag" && value === "") return t.plants.withEmptyTag;
    return fill(t.plants.withWhat[name], { value: quote(value) });
  });

const scopeLabels: Readonly<Partial<Record<string, string>>> = t.operators.scopes satisfies Record<
  Scope,
  string
>;

export const describeScopes = (scopes: readonly string[]): string =>
  scopes.map((scope) => scopeLabels[scope] ?? scope).join(", ");

/** What a token may do, and with which plants. */
export function describeAccess({ scopes, tags }: Access): string {
  const may = describeScopes(scopes);
  if (tags === undefined || tags === null) return may;
  return `${may}, ${fill(t.operators.tokens.onlyTagged, { tags: tags.map(quote).join(", ") })}`;
}

interface Access {
  readonly scopes: readonly string[];
  readonly tags?: readonly string[] | null | undefined;
}
