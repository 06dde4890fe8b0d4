/**
 * What can be wrong with a plant, or with a file of plants. Each fault is a key with values, and has its English words
 * here. Those of the console's other languages are in console/text/faults.ts, which does not compile without one.
 */

import type { ErrorName, Fault } from "./errors.ts";
import { INT64_MAX, INT64_MIN } from "./json.ts";

export const plantFields = ["id", "name", "tag"] as const;
export type PlantField = (typeof plantFields)[number];

interface Rule {
  readonly of: readonly PlantField[];
  /** In English, after "expected" or "is not". `{limit}` is the value of `limit`. */
  readonly expected: string;
  /** The setting or limit that the rule depends on, by its name in the Config. */
  readonly limit?: string;
  /** In place of `invalid_plant`. */
  readonly error?: ErrorName;
  /** `value` has passed the rules above. */
  holds(value: unknown, limit: number): boolean;
}

/** UTF-8 cannot encode an unpaired surrogate, and PostgreSQL cannot store U+0000. Both engines store the rest. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

/**
 * The rules about a plant. Every write passes them in the store, whichever way it came in, and so does what a dry run,
 * a file or a form would write. Parsers ask those that need neither a limit nor an error of their own.
 */
export const plantRules = {
  int64: {
    of: ["id"],
    expected: `an integer from ${INT64_MIN} to ${INT64_MAX}`,
    holds: (id: unknown) => typeof id === "bigint",
  },
  string: {
    of: ["name", "tag"],
    expected: "a string",
    holds: (value: unknown) => typeof value === "string",
  },
  storable: {
    of: ["name", "tag"],
    expected: "text without U+0000 and unpaired surrogates",
    holds: isStorable,
  },
} as const satisfies Record<string, Rule>;

type Rules = typeof plantRules;
type RuleName = keyof Rules;

/** Files and forms depend on the largest body, whatever the rules. */
type LimitOf<One> = One extends { readonly limit: infer Name extends string }
  ? Name
  : "bodyBytesMax";

/** What rules, files and forms depend on. The Config has it, and so has the page of the console. */
export type PlantLimits = Readonly<Record<LimitOf<Rules[RuleName]>, number>>;

export const pickLimits = (config: PlantLimits): PlantLimits => {
  const names = listRules().flatMap(([, { limit }]) => (limit === undefined ? [] : [limit]));
  const values = config as unknown as Readonly<Record<string, number>>;
  return Object.fromEntries(
    ["bodyBytesMax", ...names].map((name) => [name, values[name]]),
  ) as unknown as PlantLimits;
};

const listRules = (): [RuleName, Rule][] => Object.entries<Rule>(plantRules) as [RuleName, Rule][];

/** What the rules do not say about a field, a row or a file. */
const others = {
  idMissing: "The id is missing.",
  nameMissing: "The name is missing.",
  idTooLarge: "The id is too large: {id}.",
  idNotInteger: "The id is not a whole number: {id}.",
  rounded:
    "The spreadsheet has rounded the {field} to {value}. Format the column as text, enter it again, and save.",
  formula:
    "The formula of the {field} has no saved result. Open the file in a spreadsheet and save it.",
  cellError: "The cell of the {field} shows the error {error}.",
  textAfterQuote: "Text follows the closing quote of a cell.",
  cellCount: "Cells in the row: {cells}, in the heading: {heads}.",
  recordTooLarge: "The record is larger than {bytes} bytes.",
  recordNotUtf8: "The record is not valid UTF-8.",
  notInFile: "{member}: expected nothing in a file, got {value}",
  openCell: "The file ends inside a quoted cell, in the row that begins on line {line}.",
  openArray: "The file ends inside its array, in the record that begins on line {line}.",
  afterArray: "Line {line} has more text after the end of the array.",
  noArray:
    "Line {line} does not begin a JSON array. For one plant on each line, the format is ndjson.",
  emptyTable: "The file is empty; expected a heading.",
  emptyArray: "The file is empty; expected a JSON array.",
  inHeading: "The heading:",
  noColumn: "No column is headed {heading}; the columns are {columns}.",
  twoColumns: "More than one column is headed {heading}; the columns are {columns}.",
  notValid: "The file is not valid {encoding}.",
  notUtf8: "The file is not in UTF-8. It seems to be in Windows-1252, as Excel saves plain CSV.",
  archive:
    "The file is a workbook or an archive, not text. Read a workbook (.xlsx) as one, or save it as CSV.",
  oldWorkbook:
    "The file is an old Excel workbook (.xls), or has a password. Save it as .xlsx without a password.",
  picture: "The file is a picture or a video.",
  pdf: "The file is a PDF.",
  askForTable: "Ask for the list as a spreadsheet (.xlsx) or as CSV.",
  compressed: "The file is compressed with gzip. Unpack it and import what is inside.",
  notWorkbook: "The file is damaged, or is not a workbook (.xlsx).",
  noSheet: "No sheet is called {sheet}; there is {sheets}.",
  sheetDamaged: "The sheet {sheet} is damaged, is a chart, or has more than 20 million cells.",
  workbookTooLarge: "The workbook unpacks to more than {bytes} bytes.",
  textMissing:
    "A cell refers to a text that is not in the workbook. Open it in a spreadsheet, save it, and import it again.",
} as const;

type Sentences = typeof others & {
  readonly [Name in RuleName]: `The {field} is not ${Rules[Name]["expected"]}.`;
};

/** Every fault, in English. */
export const faultTexts = {
  ...others,
  ...Object.fromEntries(
    listRules().map(([name, { expected }]) => [name, `The {field} is not ${expected}.`]),
  ),
} as Sentences;

export type FaultName = keyof Sentences;

/** `{name}` in a text. */
type Names<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Names<Rest>
  : never;

type Values<Name extends FaultName> = Readonly<Record<Names<Sentences[Name]>, string | number>>;

export const createFault = <Name extends FaultName>(
  name: Name,
  ...[values]: Names<Sentences[Name]> extends never ? [] : [values: Values<Name>]
): Fault => {
  const texts = Object.entries<string | number>(values ?? {});
  return { name, values: Object.fromEntries(texts.map(([key, value]) => [key, String(value)])) };
};

export const fillFault = (text: string, values: Fault["values"]): string =>
  text.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? "");

export const sayFault = ({ name, values }: Fault): string =>
  fillFault(faultTexts[name as FaultName], values);

export const sayFaults = (faults: readonly Fault[]): string => faults.map(sayFault).join(" ");

function rulesFor(accepts: (rule: Rule) => boolean) {
  const rulesOf = (field: PlantField) =>
    listRules().flatMap(([name, rule]) =>
      rule.of.includes(field) && accepts(rule) ? [{ ...rule, name }] : [],
    );
  return { id: rulesOf("id"), name: rulesOf("name"), tag: rulesOf("tag") };
}

const all = rulesFor(() => true);
const forParsers = rulesFor(({ limit, error }) => limit === undefined && error === undefined);

export type PlantFault = Fault & { readonly name: RuleName };

/** The rule that the value breaks. Without limits, of those that parsers ask: the store asks all. */
export function findFault(
  field: PlantField,
  value: unknown,
  limits: PlantLimits | undefined,
): PlantFault | undefined {
  const values = limits as Readonly<Record<string, number>> | undefined;
  for (const rule of (limits === undefined ? forParsers : all)[field]) {
    const limit = rule.limit === undefined ? undefined : values?.[rule.limit];
    if (rule.holds(value, limit ?? 0)) continue;
    return {
      name: rule.name,
      values: { field, ...(limit !== undefined && { limit: `${limit}` }) },
    };
  }
  return undefined;
}

export type Faults = Partial<Record<PlantField, PlantFault>>;

/** Undefined without any. */
export function toFaults(id?: PlantFault, name?: PlantFault, tag?: PlantFault): Faults | undefined {
  if (id === undefined && name === undefined && tag === undefined) return undefined;
  return { ...(id && { id }), ...(name && { name }), ...(tag && { tag }) };
}

/** Every create comes here twice. A tag may be undefined. */
export function findFaults(
  id: unknown,
  name: unknown,
  tag: unknown,
  limits: PlantLimits | undefined,
): Faults | undefined {
  const ofId = findFault("id", id, limits);
  const ofName = findFault("name", name, limits);
  const ofTag = tag === undefined ? undefined : findFault("tag", tag, limits);
  return toFaults(ofId, ofName, ofTag);
}

/** What was expected, in English. */
export const expectedOf = ({ name, values }: PlantFault): string =>
  fillFault(plantRules[name].expected, values);

/** The rules about a name or a tag as one, as a member of a body or an argument is judged. */
export const contentRule = (field: "name" | "tag") => ({
  expected(value: unknown): string | undefined {
    const fault = findFault(field, value, undefined);
    return fault && expectedOf(fault);
  },
  find: (value: unknown) =>
    findFault(field, value, undefined) === undefined ? (value as string) : undefined,
});

/** The error of faults: that of their rule, if each of them has its own. */
export function errorOf(faults: readonly PlantFault[]): ErrorName {
  const errors = faults.map(({ name }) => (plantRules[name] as Rule).error ?? "invalid_plant");
  const [first = "invalid_plant"] = errors;
  return errors.includes("invalid_plant") ? "invalid_plant" : first;
}
