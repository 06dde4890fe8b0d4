/** Every filter on plants: its meaning, how it is parsed, and which plants match. */

import type { ListedPlant } from "./plant.ts";

interface RuleOf<Value> {
  readonly meaning: string;
  readonly expected: string;
  /** Whether the value is true or false, not a text. */
  readonly isFlag: boolean;
  /** Undefined if the text is not allowed. */
  readonly find: (text: string) => Value | undefined;
  /** Whether every engine has an index for it, so no plant has to be scanned. */
  readonly isIndexed: boolean;
  readonly match: (value: Value) => (plant: ListedPlant) => boolean;
}

export type FilterRule = RuleOf<string> | RuleOf<boolean>;

const anyText = { expected: "text", isFlag: false, find: (value: string) => value };

const flag = {
  expected: "true or false",
  isFlag: true,
  find: (text: string) => (text === "true" || text === "false" ? text === "true" : undefined),
};

/** More words would be slow with a long name. */
const WORDS_MAX = 16;

const splitWords = (q: string): string[] => q.split(/\s+/u).filter((word) => word !== "");

/** Folded. A word of accents only is none. */
const wordsOf = (q: string): string[] =>
  splitWords(q)
    .map(foldAccents)
    .filter((word) => word !== "");

/** Query parameters, options of `export`, the client's type and the console's URL have exactly these. */
export const filters = {
  tag: {
    meaning: "Exactly this tag.",
    ...anyText,
    isIndexed: true,
    match:
      (value: string) =>
      ({ tag }: ListedPlant) =>
        tag === value,
  },
  name: {
    meaning:
      "A part of the name, in any case: compared after NFC normalisation, in Unicode upper case.",
    ...anyText,
    isIndexed: false,
    match: (value: string) => {
      const part = fold(value);
      return ({ name }: ListedPlant) => isPartOf(part, fold(name));
    },
  },
  q: {
    meaning: `Up to ${WORDS_MAX} words, in any order: each is in the name or in the tag, in any case, with or without accents.`,
    expected: `at most ${WORDS_MAX} words`,
    isFlag: false,
    find: (value: string) => (splitWords(value).length > WORDS_MAX ? undefined : value),
    isIndexed: false,
    match: (value: string) => {
      const words = wordsOf(value);
      return ({ name, tag }: ListedPlant) => {
        const texts = (tag === undefined ? [name] : [name, tag]).map(foldAccents);
        return words.every((word) => texts.some((text) => isPartOf(word, text)));
      };
    },
  },
  tagged: {
    meaning: "`false`: plants without a tag. `true`: plants with one, also an empty one.",
    ...flag,
    isIndexed: false,
    match:
      (value: boolean) =>
      ({ tag }: ListedPlant) =>
        (tag !== undefined) === value,
  },
} satisfies Record<string, FilterRule>;

export type FilterName = keyof typeof filters;
export const filterNames = Object.keys(filters) as readonly FilterName[];

export type Filter = {
  readonly [Name in FilterName]?: Parameters<(typeof filters)[Name]["match"]>[0] | undefined;
};

/** A filter, and the tags that its caller is confined to; undefined for the whole store. */
export interface Selection extends Filter {
  readonly within?: readonly string[] | undefined;
}

/** Whether a plant with this tag, or without one, has one of the tags. */
export const isAmong = (tags: readonly string[], tag: string | undefined): boolean =>
  tag !== undefined && tags.includes(tag);

/** The tags that a plant may have; undefined if it may have any, or none. */
export const tagsOf = ({ within, tag }: Selection): readonly string[] | undefined => {
  if (tag === undefined) return within;
  return within === undefined || isAmong(within, tag) ? [tag] : [];
};

/** Plants without any text. A filter that matches both matches every plant. */
const blankPlants: readonly ListedPlant[] = [undefined, ""].map((tag) => ({
  id: 0n,
  name: "",
  tag,
}));

/**
 * Those that every plant matches are left out: what a filter means decides, not how it is written. Accents alone, for
 * one, fold to nothing.
 */
function rulesOf({ within, ...filter }: Selection) {
  const rules = filterNames.flatMap((name) => {
    const { isIndexed, match } = filters[name] as RuleOf<unknown>;
    if (filter[name] === undefined) return [];
    const matches = match(filter[name]);
    return blankPlants.every(matches) ? [] : [{ isIndexed, matches }];
  });
  if (within === undefined) return rules;
  const matches = ({ tag }: ListedPlant): boolean => isAmong(within, tag);
  return [{ isIndexed: true, matches }, ...rules];
}

export const pickFilter = (value: Filter): Filter =>
  Object.fromEntries(filterNames.map((name) => [name, value[name]]));

/** False if every plant matches. */
export const narrows = (filter: Selection): boolean => rulesOf(filter).length > 0;

export const needsScan = (filter: Selection): boolean =>
  rulesOf(filter).some(({ isIndexed }) => !isIndexed);

export function createFilter(filter: Selection): (plant: ListedPlant) => boolean {
  const rules = rulesOf(filter);
  return (plant) => rules.every(({ matches }) => matches(plant));
}

/** An upper-case ASCII substring: a database can skip a plant whose name and tag are ASCII and lack it. */
export function findHint({ name, q = "" }: Filter): string | undefined {
  const parts = [...wordsOf(q), ...(name === undefined ? [] : [fold(name)])];
  const plain = parts.filter((part) => part !== "" && !BEYOND_ASCII.test(part));
  // The longest is the rarest. Truncated, because a database compares it at every character.
  const longest = plain.toSorted((one, other) => other.length - one.length)[0];
  return longest?.slice(0, SHORT_PART_MAX);
}

/** String.includes takes up to this many steps per character. */
const SHORT_PART_MAX = 8;

/** Linear in the text. With a long part, String.includes would not be. Browsers, which have no Buffer, filter little. */
const isPartOf = (part: string, text: string): boolean =>
  part.length <= SHORT_PART_MAX || !("Buffer" in globalThis)
    ? text.includes(part)
    : Buffer.from(text).includes(part);

const BEYOND_ASCII = /[\u0080-\uffff]/;
/** No letter below these has a composed form with a mark. */
const COMPOSABLE = /[\u0300-\uffff]/;
/** The marks of Latin, Greek and Cyrillic. Those of other scripts tell words apart. */
const ACCENTS = /[\u0300-\u036f]/g;
/** Composing sorts the marks on a letter, in quadratic time. */
const TOO_MANY_MARKS = /\p{M}{32}/u;
/** Composing a longer text would block the thread for milliseconds. */
const COMPOSED_CHARACTERS_MAX = 4_096;

/**
 * Case folding, the same on every engine: NFC, then Unicode upper case, which depends neither on a locale nor, as lower
 * case does for Σ, on the letters around. A name that would be slow to compose is used as it is.
 */
const fold = (text: string): string =>
  (COMPOSABLE.test(text) && isNormalized(text) ? text.normalize("NFC") : text).toUpperCase();

/** The same without accents: É is E. */
function foldAccents(text: string): string {
  const hasAccents = BEYOND_ASCII.test(text) && isNormalized(text);
  return (hasAccents ? text.normalize("NFD").replace(ACCENTS, "") : text).toUpperCase();
}

const isNormalized = (text: string): boolean =>
  text.length <= COMPOSED_CHARACTERS_MAX && !TOO_MANY_MARKS.test(text);
