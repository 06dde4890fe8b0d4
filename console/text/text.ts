/**
 * The texts of the console in the user's language. English is the source and part of the first view; a page loads
 * another language before it imports the modules that use `t`, so that their constants may use it.
 */

import type { ComponentChildren } from "preact";
import { keep, recall } from "../state/storage.ts";
import { en } from "./en.ts";
import type { Language, PluralForms } from "./table.ts";
import type { Foreign, Texts } from "./take.ts";

const others: Readonly<Record<Exclude<Language, "en">, () => Promise<Texts & Foreign>>> = {
  de: async () => (await import("./de.ts")).de,
  fr: async () => (await import("./fr.ts")).fr,
  es: async () => (await import("./es.ts")).es,
};

/** Those that the user can choose, in their own words. */
export const languages = {
  de: "Deutsch",
  en: "English",
  es: "Español",
  fr: "Français",
} as const satisfies Record<Language, string>;

const offered = Object.keys(languages) as Language[];

const KEY = "language";

const isOf = (tag: string, language: string): boolean =>
  tag === language || tag.startsWith(`${language}-`);

/** The one that the user chose, else the first of the browser that is offered here. */
function chooseLanguage(): Language {
  const wanted = [recall("localStorage", KEY), ...navigator.languages].map(String);
  return wanted.map((tag) => offered.find((each) => isOf(tag, each))).find(Boolean) ?? "en";
}

/** The type is that of English, so that the compiler knows the placeholders. */
export let t: Texts = en;

/** What the errors of the API mean, and the faults of plants and files. In English, `src/` says it. */
export let { errors, faults }: Partial<Foreign> = {};

export let language: Language = "en";

/** For Intl: with the region of the browser, such as en-GB, if it is of the same language. */
export let locale = "en";

const createIntl = () => ({
  counts: new Intl.NumberFormat(locale),
  and: new Intl.ListFormat(locale, { type: "conjunction" }),
  rules: new Intl.PluralRules(locale),
});

let intl = createIntl();

export async function loadTexts(): Promise<void> {
  const wanted = chooseLanguage();
  try {
    if (wanted !== "en") ({ errors, faults } = t = await others[wanted]());
    language = wanted;
  } catch {
    // Without its script the page is still of use, in English.
  }
  locale = navigator.languages.find((tag) => isOf(tag, language)) ?? language;
  intl = createIntl();
}

/** Reloads the page. Drafts are kept. */
export function setLanguage(next: Language): void {
  keep("localStorage", KEY, next);
  location.reload();
}

/** `{name}` in a text. */
type Names<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Names<Rest>
  : never;

type Values<Name extends string, Value> = Readonly<Record<Name, Value>>;

const PLACEHOLDER = /\{(\w+)\}/;

/** At odd places are the values. */
const weave = <Value>(text: string, values: Readonly<Record<string, Value>>): (Value | string)[] =>
  text.split(PLACEHOLDER).map((piece, at) => {
    const value = at % 2 === 0 ? piece : (values[piece] as Value);
    return typeof value === "number" ? intl.counts.format(value) : value;
  });

/** Numbers are formatted as counts. Ids are not counts: pass them as text. */
export const fill = <Text extends string>(
  text: Text,
  values: Values<Names<Text>, string | number>,
): string => weave(text, values).join("");

/** The same with elements, such as links, as values. */
export const rich = <Text extends string>(
  text: Text,
  values: Values<Names<Text>, ComponentChildren>,
): ComponentChildren => weave(text, values);

type Plural = PluralForms & { readonly one: string };

type OtherNames<Forms extends Plural> = Exclude<Names<Forms["one" | "other"]>, "count">;

/** "this and that". */
export const join = (parts: readonly string[]): string => intl.and.format(parts);

/** For the journal, the same for everyone. */
export const pluralInEnglish: typeof plural = (forms, count, ...[values]) =>
  fill(count === 1 ? forms.one : forms.other, {
    count: count.toLocaleString("en"),
    ...(values as object),
  } as never);

export function plural<Forms extends Plural>(
  forms: Forms,
  count: number,
  ...[values]: OtherNames<Forms> extends never ? [] : [Values<OtherNames<Forms>, string | number>]
): string {
  const { [intl.rules.select(count)]: form = forms.other }: Plural = forms;
  return fill(form, { count, ...(values as object) } as never);
}
