/** The plant: its rules, parsing it and writing it out. */

import { Refusal } from "./errors.ts";
import {
  clip,
  describe,
  findInt64,
  INT64_MAX,
  INT64_MIN,
  parseJson,
  quoteIds,
  readIdText,
  toJsonId,
} from "./json.ts";

/** A plant as the store holds it. Its id never changes. */
export interface Plant<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag?: string | undefined;
}

/** A plant on a page. The id is a number where that is exact: a BigInt is slower to create and to format. */
export interface ListedPlant extends Plant<bigint | number> {
  /** The time of its last change (ISO 8601), if it was asked for and is known. */
  readonly changed?: string | undefined;
}

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

const textExpected = (actual: unknown): string =>
  typeof actual === "string" ? "text without U+0000 and unpaired surrogates" : "a string";

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
  const { id } = members;
  if (Number.isSafeInteger(id) && !INEXACT_NOTATION.test(text))
    return toPlant(BigInt(id as number), members, "");
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
  const exactId = isRounded(id) ? undefined : findInt64(id.trim());
  const faults = findFaults(exactId, name, tag);
  const messages = [
    faults.id && explainId(id.trim()),
    faults.name && (name === undefined ? NAME_MISSING : `The name is not ${faults.name}.`),
    faults.tag && `The tag is not ${faults.tag}.`,
  ].filter(Boolean);
  if (messages.length > 0) throw new Refusal("invalid_plant", messages.join(" "));
  return { id: exactId, name, tag } as Plant;
}

export const NAME_MISSING = "The name is missing.";

function explainId(text: string): string {
  if (text === "") return "The id is missing.";
  if (isRounded(text)) return explainRounded("id", text);
  if (/^-?\d+$/.test(text)) return `The id is too large: ${clip(text)}.`;
  return `The id is not a whole number: ${JSON.stringify(clip(text))}.`;
}

/** 4.00638E+12 is what a spreadsheet leaves of a barcode: all but the first digits are lost. */
const EXPONENT = /^\s*[+-]?\d+([.,]\d*)?e[+-]?\d+\s*$/i;

export const isRounded = (id: string): boolean => EXPONENT.test(id);

/** The same in CSV, in a workbook and in a form. */
export const explainRounded = (field: string, shown: string): string =>
  `The spreadsheet has rounded the ${field} to ${shown}. Format the column as text, enter it again, and save.`;

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
  // Not Object.keys: every create comes here.
  for (const _ in faults) throw refuseFaults(faults, { name, tag }, idText, idFault);
  if (idFault !== undefined) throw refuseFaults(faults, { name, tag }, idText, idFault);
  return { id, name, tag } as Plant;
}

export function refuseFaults(
  faults: Faults,
  { name, tag }: Members,
  idText: string,
  idFault?: string,
) {
  const { id: idExpected, ...others } = faults;
  const messages = Object.entries(others).map(
    ([field, expected]) =>
      `${field}: expected ${expected}, got ${describe(field === "name" ? name : tag)}`,
  );
  const idMessage = idFault ?? (idExpected && `id: expected ${idExpected}, got ${idText}`);
  if (idMessage !== undefined) messages.unshift(idMessage);
  return new Refusal("invalid_plant", messages.join("; "));
}

/** The schema Plant of the API, which has no id. */
export const formatPlant = ({ name, tag }: Plant): string => JSON.stringify({ name, tag });

/** Writes the id in exact digits. */
export const formatStoredPlant = ({ id, name, tag, changed }: ListedPlant): string =>
  JSON.stringify({ id: toJsonId(id), name, tag, changed });

/** One plant per line. Quotes in a string are escaped, so no string contains the separator. */
export const formatNdjson = (plants: readonly ListedPlant[]): string =>
  plants.length === 0
    ? ""
    : `${formatStoredPlants(plants).slice(1, -1).replaceAll('},{"id":', '}\n{"id":')}\n`;

/** A JSON array. One JSON.stringify call for all plants is faster than one for each. */
export function formatStoredPlants(plants: readonly ListedPlant[]): string {
  const numbered = plants.every(({ id }) => typeof id === "number")
    ? plants
    : plants.map(({ id, name, tag, changed }) => ({ id: Number(id), name, tag, changed }));
  if (numbered.every(({ id }) => Number.isSafeInteger(id))) return JSON.stringify(numbered);
  return `[${plants.map(formatStoredPlant).join(",")}]`;
}

/** What `formatStoredPlants` writes of plants without times, as text or bytes. */
export function parsePlants(page: string | Uint8Array): Plant[] {
  const text = typeof page === "string" ? page : new TextDecoder().decode(page);
  type Parsed = readonly Plant<number | string>[];
  let parsed = JSON.parse(text) as Parsed;
  if (!parsed.every(({ id }) => Number.isSafeInteger(id)))
    parsed = JSON.parse(quoteIds(text)) as Parsed;
  return parsed.map(({ id, name, tag }) => ({ id: BigInt(id), name, tag }));
}

/** A plant without its id. */
export type Content = Pick<Plant, "name" | "tag">;

export const isSame = (one: Plant, other: Plant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

export const isSameState = (one: Plant | undefined, other: Plant | undefined): boolean =>
  one === undefined || other === undefined ? one === other : isSame(one, other);
