/** What a plant is: how it is read and checked, how it is written, and what a change to it may depend on. */

import { Refusal } from "./errors.ts";
import { clip, describe, findInt64, readIdText, INT64_MAX, INT64_MIN, parseJson } from "./json.ts";

/** A plant as the store holds it. Its id never changes. */
export interface Plant<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag?: string | undefined;
}

/** A plant on a page. Where a number is exact, the id may be one: a BigInt takes more time to make and to format. */
export type ListedPlant = Plant<bigint | number>;

/** How much text a plant holds; none without a plant. */
export const lengthOf = (plant: ListedPlant | undefined): number =>
  plant === undefined ? 0 : plant.name.length + (plant.tag?.length ?? 0);

/** UTF-8 cannot hold an unpaired surrogate, and PostgreSQL cannot hold U+0000. Both engines hold the rest. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

const isText = (value: unknown): value is string => typeof value === "string" && isStorable(value);

/**
 * A number with a fraction or an exponent, somewhere in the text. JSON.parse rounds such a number before
 * we can look (1e-400 becomes the integer 0), so its text has to be read.
 */
const INEXACT_NOTATION = /\d[.eE]/;

type Members = Readonly<Partial<Record<"id" | "name" | "tag", unknown>>>;

/** Parses a NewPlant. Throws a Refusal that names every fault. */
export function parseNewPlant(text: string): Plant {
  const members = parseObject(text);
  const { id, name, tag } = members;
  if (Number.isSafeInteger(id) && isText(name) && (tag === undefined || isText(tag)))
    if (!INEXACT_NOTATION.test(text)) return { id: BigInt(id as number), name, tag };
  const written = readId(text, members);
  const faults = written.id === undefined ? [fault("id", integerExpected, written.text)] : [];
  return toPlant(written.id, members, faults);
}

/** Parses the replacement of the plant with this id: a Plant. It may repeat the id, but not change it. */
export function parseReplacement(text: string, id: bigint): Plant {
  const members = parseObject(text);
  if (members.id === undefined) return toPlant(id, members, []);
  const written = readId(text, members);
  const expected = `${id}, as in the path, or nothing`;
  return toPlant(id, members, written.id === id ? [] : [fault("id", expected, written.text)]);
}

/** Parses a plant from the cells of a spreadsheet row. */
export function parseTexts(id: string, name: string | undefined, tag: string | undefined): Plant {
  const faults: string[] = [];
  const exactId = findInt64(id.trim());
  if (EXPONENT.test(id))
    faults.push(
      `id: the spreadsheet has rounded it to ${id.trim()}; format the column as text, enter the ids again, and save`,
    );
  else if (exactId === undefined) faults.push(fault("id", integerExpected, describe(id)));
  return toPlant(exactId, { name, tag }, faults);
}

/** 4.00638E+12 is what a spreadsheet leaves of a barcode: all but the first digits are lost. */
const EXPONENT = /^\s*[+-]?\d+([.,]\d*)?e[+-]?\d+\s*$/i;

function parseObject(text: string): Members {
  const value = parseJson(text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new Refusal("invalid_plant", `body: expected an object, got ${describe(value)}`);
}

/** The id as the client wrote it. Reads the text once more, so only if a double cannot be trusted. */
function readId(text: string, { id }: Members): { id: bigint | undefined; text: string } {
  if (typeof id !== "number") return { id: undefined, text: describe(id) };
  const written = readIdText(text);
  return { id: findInt64(written), text: clip(written) };
}

function toPlant(id: bigint | undefined, { name, tag }: Members, idFaults: string[]): Plant {
  const faults = [...idFaults];
  if (!isText(name)) faults.push(textFault("name", name));
  if (tag !== undefined && !isText(tag)) faults.push(textFault("tag", tag));
  if (faults.length > 0) throw new Refusal("invalid_plant", faults.join("; "));
  return { id: id as bigint, name: name as string, tag: tag as string | undefined };
}

const integerExpected = `an integer from ${INT64_MIN} to ${INT64_MAX}`;

const fault = (field: string, expected: string, came: string): string =>
  `${field}: expected ${expected}, got ${came}`;

function textFault(field: string, came: unknown): string {
  const expected =
    typeof came === "string" ? "text without U+0000 and unpaired surrogates" : "a string";
  return fault(field, expected, describe(came));
}

/** The shape Plant of the interface, which has no id. */
export function formatPlant({ name, tag }: Plant): string {
  return JSON.stringify({ name, tag });
}

/** With its id as exact digits. */
export function formatStoredPlant({ id, name, tag }: ListedPlant): string {
  // One call of JSON.stringify takes half the time of two.
  if (Number.isSafeInteger(Number(id))) return JSON.stringify({ id: Number(id), name, tag });
  const tagMember = tag === undefined ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}`;
}

/** One a line. Quotes inside a text are escaped, so what separates two plants is in no text. */
export const formatNdjson = (plants: readonly ListedPlant[]): string =>
  plants.length === 0
    ? ""
    : `${formatStoredPlants(plants).slice(1, -1).replaceAll('},{"id":', '}\n{"id":')}\n`;

/** A JSON array. One call of JSON.stringify for all takes a third of the time. */
export function formatStoredPlants(plants: readonly ListedPlant[]): string {
  const numbered = plants.every(({ id }) => typeof id === "number")
    ? plants
    : plants.map(({ id, name, tag }) => ({ id: Number(id), name, tag }));
  if (numbered.every(({ id }) => Number.isSafeInteger(id))) return JSON.stringify(numbered);
  return `[${plants.map(formatStoredPlant).join(",")}]`;
}

/**
 * A strong entity tag: a hash of the content, which is what `formatStoredPlant` writes. There is no version number: an
 * editor who finds the content last seen overwrites nothing unknowingly.
 */
export function entityTagOf(content: string): string {
  return `"${Bun.SHA256.hash(content, "base64").slice(0, 24)}"`;
}

/** Entity tags that a request names: any plant that exists, or one of these. */
export type EntityTags = "any" | readonly string[];

/** What a change depends on. It is data, so the engine judges it in the transaction of the change. */
export interface Condition {
  readonly match?: EntityTags | undefined;
  readonly noneMatch?: EntityTags | undefined;
}

export const isSame = (one: Plant, other: Plant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

/** What becomes of a create if a plant has the id already. */
export const judgeCreate = (plant: Plant, stored: Plant): "replayed" | Refusal =>
  isSame(stored, plant) ? "replayed" : refuseTaken(plant);

export const refuseTaken = ({ id }: Plant): Refusal =>
  new Refusal("id_taken", `A different plant has the id ${id}; nothing was changed.`);

/** The plant that the change is made to. */
export function judgeChange(stored: Plant | undefined, condition: Condition): Plant | Refusal {
  if (stored === undefined) return new Refusal("plant_not_found");
  return holds(condition, stored) ? stored : new Refusal("precondition_failed");
}

function holds({ match, noneMatch }: Condition, plant: Plant): boolean {
  if (match === undefined && noneMatch === undefined) return true;
  const entityTag = entityTagOf(formatStoredPlant(plant));
  return matches(match ?? "any", entityTag) && !matches(noneMatch ?? [], entityTag);
}

export const matches = (tags: EntityTags, entityTag: string): boolean =>
  tags === "any" || tags.includes(entityTag);
