/** The plant: parsing JSON without rounding ids, validation, serialization, and the preconditions of writes. */

import { Refusal } from "./errors.ts";

/** A plant as the store holds it. Its id never changes. */
export interface Plant<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag?: string | undefined;
}

/** A plant on a page. The id is a number where that is exact: a BigInt is slower to create and to format. */
export type ListedPlant = Plant<bigint | number>;

export const lengthOf = (plant: ListedPlant | undefined): number =>
  plant === undefined ? 0 : plant.name.length + (plant.tag?.length ?? 0);

/** UTF-8 cannot encode an unpaired surrogate, and PostgreSQL cannot store U+0000. Both engines store the rest. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

const isText = (value: unknown): value is string => typeof value === "string" && isStorable(value);

/** A fraction or an exponent anywhere in the text. JSON.parse rounds before we can check: 1e-400 becomes 0. */
const INEXACT_NOTATION = /\d[.eE]/;

type Members = Readonly<Partial<Record<"id" | "name" | "tag" | "removed" | "ifMatch", unknown>>>;
type Faults = Partial<Record<"id" | "name" | "tag", string>>;

/** The rules about a plant, for parsers, tools and forms: what each wrong member was expected to be. */
export function findFaults(id: bigint | undefined, name: unknown, tag: unknown): Faults {
  const faults: Faults = {};
  if (id === undefined) faults.id = `an integer from ${INT64_MIN} to ${INT64_MAX}`;
  if (!isText(name)) faults.name = textExpected(name);
  if (tag !== undefined && !isText(tag)) faults.tag = textExpected(tag);
  return faults;
}

const textExpected = (came: unknown): string =>
  typeof came === "string" ? "text without U+0000 and unpaired surrogates" : "a string";

/** Every write of a plant passes here, whichever way it came in: a rule in `findFaults` holds for all. */
export function refusePlant({ id, name, tag }: Plant): Refusal | undefined {
  const faults = findFaults(id, name, tag);
  for (const _ in faults) return refuseFaults(faults, { name, tag }, String(id));
  return undefined;
}

/** Parses a NewPlant. Throws a Refusal that names every fault. */
export const parseNewPlant = (text: string): Plant => toNewPlant(text, parseObject(text));

/** `members` is what `text` was parsed to. */
export function toNewPlant(text: string, members: Members): Plant {
  const { id, name, tag } = members;
  if (Number.isSafeInteger(id) && isText(name) && (tag === undefined || isText(tag)))
    if (!INEXACT_NOTATION.test(text)) return { id: BigInt(id as number), name, tag };
  const written = readId(text, members);
  return toPlant(written.id, members, written.text);
}

/** Parses the body of PUT. It may repeat the id, but not change it. */
export function parseReplacement(text: string, id: bigint): Plant {
  const members = parseObject(text);
  if (members.id === undefined) return toPlant(id, members, "");
  const written = readId(text, members);
  const other = `id: expected ${id}, as in the path, or nothing, got ${written.text}`;
  return toPlant(id, members, "", written.id === id ? undefined : other);
}

/** Parses a plant from the cells of a spreadsheet row. Says every fault in words. An undefined name is missing. */
export function parseTexts(id: string, name: string | undefined, tag: string | undefined): Plant {
  const exactId = EXPONENT.test(id) ? undefined : findInt64(id.trim());
  const faults = findFaults(exactId, name, tag);
  const said = [
    faults.id && explainId(id.trim()),
    faults.name && (name === undefined ? NAME_MISSING : `The name is not ${faults.name}.`),
    faults.tag && `The tag is not ${faults.tag}.`,
  ].filter(Boolean);
  if (said.length > 0) throw new Refusal("invalid_plant", said.join(" "));
  return { id: exactId, name, tag } as Plant;
}

export const NAME_MISSING = "The name is missing.";

function explainId(text: string): string {
  if (text === "") return "The id is missing.";
  if (EXPONENT.test(text))
    return `The spreadsheet has rounded the id to ${text}. Format the column as text, enter the ids again, and save.`;
  if (/^-?\d+$/.test(text)) return `The id is too large: ${clip(text)}.`;
  return `The id is not a whole number: ${JSON.stringify(clip(text))}.`;
}

/** 4.00638E+12 is what a spreadsheet leaves of a barcode: all but the first digits are lost. */
const EXPONENT = /^\s*[+-]?\d+([.,]\d*)?e[+-]?\d+\s*$/i;

export function parseObject(text: string): Members {
  const value = parseJson(text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new Refusal("invalid_plant", `body: expected an object, got ${describe(value)}`);
}

/** The id as the client wrote it. Parses the text again, so only if the double may be rounded. */
export function readId(text: string, { id }: Members): { id: bigint | undefined; text: string } {
  if (typeof id !== "number") return { id: undefined, text: describe(id) };
  const written = readIdText(text);
  return { id: findInt64(written), text: clip(written) };
}

/** `idText` is the id as received. `idFault` is a fault that the rules do not cover. */
function toPlant(id: bigint | undefined, { name, tag }: Members, idText: string, idFault?: string) {
  const faults = findFaults(id, name, tag);
  if (idFault !== undefined || Object.keys(faults).length > 0)
    throw refuseFaults(faults, { name, tag }, idText, idFault);
  return { id, name, tag } as Plant;
}

export function refuseFaults(
  faults: Faults,
  { name, tag }: Members,
  idText: string,
  idFault?: string,
) {
  const { id: idExpected, ...others } = faults;
  const said = Object.entries(others).map(
    ([field, expected]) =>
      `${field}: expected ${expected}, got ${describe(field === "name" ? name : tag)}`,
  );
  const idSaid = idFault ?? (idExpected && `id: expected ${idExpected}, got ${idText}`);
  if (idSaid !== undefined) said.unshift(idSaid);
  return new Refusal("invalid_plant", said.join("; "));
}

/** The schema Plant of the API, which has no id. */
export const formatPlant = ({ name, tag }: Plant): string => JSON.stringify({ name, tag });

/** Writes the id in exact digits. */
export function formatStoredPlant({ id, name, tag }: ListedPlant): string {
  // One JSON.stringify call takes half the time of two.
  if (Number.isSafeInteger(Number(id))) return JSON.stringify({ id: Number(id), name, tag });
  const tagMember = tag === undefined ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}`;
}

/** One plant per line. Quotes in a string are escaped, so no string contains the separator. */
export const formatNdjson = (plants: readonly ListedPlant[]): string =>
  plants.length === 0
    ? ""
    : `${formatStoredPlants(plants).slice(1, -1).replaceAll('},{"id":', '}\n{"id":')}\n`;

/** A JSON array. One JSON.stringify call for all plants takes a third of the time. */
export function formatStoredPlants(plants: readonly ListedPlant[]): string {
  const numbered = plants.every(({ id }) => typeof id === "number")
    ? plants
    : plants.map(({ id, name, tag }) => ({ id: Number(id), name, tag }));
  if (numbered.every(({ id }) => Number.isSafeInteger(id))) return JSON.stringify(numbered);
  return `[${plants.map(formatStoredPlant).join(",")}]`;
}

/** What `formatStoredPlants` writes, as text or bytes. */
export function parsePlants(page: string | Uint8Array): Plant[] {
  const text = typeof page === "string" ? page : new TextDecoder().decode(page);
  type Parsed = readonly Plant<number | string>[];
  let parsed = JSON.parse(text) as Parsed;
  if (!parsed.every(({ id }) => Number.isSafeInteger(id)))
    parsed = JSON.parse(quoteIds(text)) as Parsed;
  return parsed.map(({ id, name, tag }) => ({ id: BigInt(id), name, tag }));
}

/** A strong ETag: a hash of what `formatStoredPlant` writes. A plant changed and changed back matches again. */
export const entityTagOf = (content: string): string =>
  `"${Bun.SHA256.hash(content, "base64").slice(0, 24)}"`;

/** The ETags of a header: `*` for any existing plant, or a list. */
export type EntityTags = "any" | readonly string[];

/** RFC 9110, section 5.6.1.2. One element at a time: a single regex for the list could backtrack for hours. */
const ELEMENT = /[ \t,]*(?:$|((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$))/y;

/** The value of If-Match: `*`, or one or more entity tags with commas. Undefined for anything else. */
export function findEntityTags(text: string): EntityTags | undefined {
  if (text.trim() === "*") return "any";
  const tags: string[] = [];
  ELEMENT.lastIndex = 0;
  do {
    const [found, tag] = ELEMENT.exec(text) ?? [];
    if (found === undefined) return undefined;
    if (tag !== undefined) tags.push(tag);
  } while (ELEMENT.lastIndex < text.length);
  return tags.length === 0 ? undefined : tags;
}

/** The precondition of a write. Plain data, so the engine checks it in the transaction of the write. */
export interface Condition {
  readonly match?: EntityTags | undefined;
  readonly noneMatch?: EntityTags | undefined;
  /** The state that the writer has seen. Unlike an entity tag, it spares PostgreSQL a look-up. */
  readonly seen?: Content | undefined;
}

/** A plant without its id. */
export type Content = Pick<Plant, "name" | "tag">;

export const isSame = (one: Plant, other: Plant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

export const isSameState = (one: Plant | undefined, other: Plant | undefined): boolean =>
  one === undefined || other === undefined ? one === other : isSame(one, other);

export const refuseTaken = ({ id }: Plant): Refusal =>
  new Refusal("id_taken", `A different plant has the id ${id}; nothing was changed.`);

export function holds({ match, noneMatch, seen }: Condition, plant: Plant): boolean {
  if (seen !== undefined && (seen.name !== plant.name || seen.tag !== plant.tag)) return false;
  if (match === undefined && noneMatch === undefined) return true;
  const entityTag = entityTagOf(formatStoredPlant(plant));
  return matches(match ?? "any", entityTag) && !matches(noneMatch ?? [], entityTag);
}

export const matches = (tags: EntityTags, entityTag: string): boolean =>
  tags === "any" || tags.includes(entityTag);

/** A body of nested brackets parses ten times slower than other text. */
const DEPTH_MAX = 1_000;
/** A small value takes up to 80 bytes once parsed: 1 MB of empty arrays takes 30 MB. Plants are less dense. */
const DENSE_VALUES_MAX = 10_000;
const DENSE_CHARACTERS = 6;

/** Numbers become doubles, possibly rounded. Throws a Refusal if the text is not JSON. */
export function parseJson(text: string): unknown {
  if (text === "") throw new Refusal("invalid_json", "The body is empty; expected a JSON object.");
  if (text.length > 2 * DEPTH_MAX) requireBounds(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new Refusal("invalid_json", explain(text, error), error);
    throw error;
  }
}

function explain(text: string, error: SyntaxError): string {
  // RFC 8259, section 8.1: JSON on the wire has no byte order mark.
  if (text.startsWith("\uFEFF"))
    return "The body begins with a byte order mark (U+FEFF); send JSON without one.";
  return `The body is not valid JSON: ${clip(error.message.replace("JSON Parse error: ", ""))}.`;
}

function requireBounds(text: string): void {
  let depth = 0;
  let values = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') isInString = !isInString;
    else if (isInString) at += character === "\\" ? 1 : 0;
    else if (character === ",") values++;
    else if (character === "[" || character === "{") {
      depth++;
      values++;
    } else if (character === "]" || character === "}") depth--;
    if (depth > DEPTH_MAX)
      throw new Refusal("invalid_json", `The body is nested deeper than ${DEPTH_MAX} levels.`);
  }
  if (values > DENSE_VALUES_MAX && values * DENSE_CHARACTERS > text.length)
    throw new Refusal(
      "invalid_json",
      `The body has ${values} values in ${text.length} characters: beyond ${DENSE_VALUES_MAX} values, each takes at least ${DENSE_CHARACTERS} on average.`,
    );
}

/** A quote after a brace or a comma opens a key: one that closed a string would not be followed by a name. */
const ID_NUMBERS = /([{,]\s*"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*)(-?\d[\d.eE+-]*)/g;

/** Makes every `id` in valid JSON a string of its digits. */
export const quoteIds = (json: string): string => json.replace(ID_NUMBERS, '$1"$2"');

/** The `id` of an object in valid JSON, as written. A reviver takes half a second for 1 MB of small numbers. */
export const readIdText = (json: string): string =>
  (JSON.parse(quoteIds(json)) as { readonly id: string }).id;

/** The types of TypeScript lack it. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** Writes ids in exact digits. */
export const formatJson = (value: unknown, indent?: number): string =>
  JSON.stringify(
    value,
    (_, part: unknown) => (typeof part === "bigint" ? exactJson.rawJSON(String(part)) : part),
    indent,
  );

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

const DIGITS_MAX = 19;
/** Matches only at the first zero of a run: without the lookbehind, inner runs would take quadratic time. */
const TRAILING_ZEROS = /(?<!0)0+$/;
const JSON_NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** In JSON Schema, 1.0 and 1e2 are integers. Takes linear time, however large the exponent. */
export function findInt64(jsonNumber: string): bigint | undefined {
  const match = JSON_NUMBER.exec(jsonNumber);
  if (match === null) return undefined;
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;

  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits === "") return 0n;
  const significant = digits.replace(TRAILING_ZEROS, "");
  const zerosAfter = Number(exponent) - fraction.length + (digits.length - significant.length);
  if (zerosAfter < 0 || significant.length + zerosAfter > DIGITS_MAX) return undefined;

  const value = BigInt(sign + significant + "0".repeat(zerosAfter));
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}

/** Accepts only the canonical form, so each plant has one URL. */
export function findPlainInt64(text: string): bigint | undefined {
  const value = findInt64(text);
  return String(value) === text ? value : undefined;
}

/** The received value, for a message that stays short however large the body was. */
export function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string") return typeof value;
  if (value.includes("\0")) return "a string with U+0000";
  if (!value.isWellFormed()) return "a string with an unpaired surrogate";
  return `the string ${JSON.stringify(clip(value))}`;
}

const DESCRIBED_CHARACTERS_MAX = 40;

export function clip(text: string): string {
  if (text.length <= DESCRIBED_CHARACTERS_MAX) return text;
  return `${text.slice(0, DESCRIBED_CHARACTERS_MAX).toWellFormed()}…`;
}
