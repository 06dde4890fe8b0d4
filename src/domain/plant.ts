/** The plant: parsing it and writing it out. Its rules are in faults.ts. */

import { type Fault, Refusal } from "./errors.ts";
import {
  createFault,
  errorOf,
  expectedOf,
  type Faults,
  findFaults,
  type PlantFault,
  type PlantField,
  type PlantLimits,
  sayFaults,
} from "./faults.ts";
import { clip, describe, findInt64, parseJson, quoteIds, readIdText, toJsonId } from "./json.ts";

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

/** A fraction or an exponent anywhere in the text. JSON.parse rounds before we can check: 1e-400 becomes 0. */
const INEXACT_NOTATION = /\d[.eE]/;

export type Members = Readonly<
  Partial<Record<"id" | "name" | "tag" | "removed" | "ifMatch", unknown>>
>;
/** Every write of a plant passes here, whichever way it came in. */
export function refusePlant({ id, name, tag }: Plant, limits: PlantLimits): Refusal | undefined {
  const faults = findFaults(id, name, tag, limits);
  return faults && refuseFaults(faults, { name, tag }, String(id));
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
  const found = findFaults(exactId, name, tag, undefined);
  if (found === undefined) return { id: exactId, name, tag } as Plant;
  const faults: (Fault | undefined)[] = [
    found.id && explainId(id.trim()),
    name === undefined ? createFault("nameMissing") : found.name,
    found.tag,
  ];
  throw refuseRow(...faults.filter((fault) => fault !== undefined));
}

/** A row that is no plant. */
export const refuseRow = (...faults: readonly Fault[]): Refusal =>
  new Refusal("invalid_plant", sayFaults(faults), undefined, faults);

function explainId(text: string): Fault {
  if (text === "") return createFault("idMissing");
  if (isRounded(text)) return createFault("rounded", { field: "id", value: text });
  if (/^-?\d+$/.test(text)) return createFault("idTooLarge", { id: clip(text) });
  return createFault("idNotInteger", { id: JSON.stringify(clip(text)) });
}

/** 4.00638E+12 is what a spreadsheet leaves of a barcode: all but the first digits are lost. */
const EXPONENT = /^\s*[+-]?\d+([.,]\d*)?e[+-]?\d+\s*$/i;

export const isRounded = (id: string): boolean => EXPONENT.test(id);

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
  const faults = findFaults(id, name, tag, undefined);
  if (faults === undefined && idFault === undefined) return { id, name, tag } as Plant;
  throw refuseFaults(faults, { name, tag }, idText, idFault);
}

export function refuseFaults(
  faults: Faults = {},
  { name, tag }: Members,
  idText: string,
  idFault?: string,
) {
  const received = { id: idText, name: describe(name), tag: describe(tag) };
  const found = Object.entries(faults) as [PlantField, PlantFault][];
  const messages = found
    .filter(([field]) => field !== "id" || idFault === undefined)
    .map(([field, fault]) => `${field}: expected ${expectedOf(fault)}, got ${received[field]}`);
  if (idFault !== undefined) messages.unshift(idFault);
  const named = Object.values(faults);
  const error = idFault === undefined ? errorOf(named) : "invalid_plant";
  return new Refusal(error, messages.join("; "), undefined, named);
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
