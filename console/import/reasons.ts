/**
 * Words the faults of files and rows in the user's language. The reader of files, which the command line shares, words
 * them in English: they are recognised by the English texts of the catalogue. An unknown one stays in English.
 */

import type { ErrorName } from "../../client/client.ts";
import { imports } from "../text/en.ts";

const { reasons: english } = imports;

type Reason = keyof typeof english;

/** Of a language other than English. The page sends them to the worker, which is bundled alone. */
export interface ReasonTexts {
  readonly reasons: Readonly<Record<Reason, string>>;
  /** How the page calls the fields of a plant. */
  readonly fields: Readonly<Record<string, string>>;
  /** What the errors of the API mean. */
  readonly errors: Readonly<Record<ErrorName, string>>;
}

const PLACEHOLDER = /\{(\w+)\}/g;
const SPECIAL = /[.*+?^${}()|[\]\\]/g;

const toPattern = (text: string): RegExp => {
  const escaped = text.split(/\{\w+\}/).map((piece) => piece.replaceAll(SPECIAL, "\\$&"));
  return new RegExp(`^${escaped.join("(.+)")}$`, "s");
};

const patterns = Object.entries(english).map(([reason, text]) => ({
  reason: reason as Reason,
  pattern: toPattern(text),
  names: [...text.matchAll(PLACEHOLDER)].map(([, name = ""]) => name),
}));

const fill = (text: string, values: Readonly<Record<string, string>>): string =>
  text.replaceAll(PLACEHOLDER, (_, name: string) => values[name] ?? "");

const inEnglish = {
  reasons: english,
  fields: {} as Readonly<Record<string, string>>,
  errors: undefined,
};

/** Without texts it is English. */
export function createWording(texts?: ReasonTexts) {
  const { reasons, fields, errors } = texts ?? inEnglish;
  /** Undefined if a fault is unknown. */
  function translate(message: string): string | undefined {
    // A value may have a full stop too, so each is tried as the end of the first fault.
    for (const { index } of message.matchAll(/(?<=\.)(?: |$)/g)) {
      const first = translateOne(message.slice(0, index));
      if (first === undefined) continue;
      if (index === message.length) return first;
      const others = translate(message.slice(index + 1));
      if (others !== undefined) return `${first} ${others}`;
    }
    return undefined;
  }
  function translateOne(message: string): string | undefined {
    for (const { reason, pattern, names } of patterns) {
      const values = pattern.exec(message);
      if (values === null) continue;
      const named = Object.fromEntries(names.map((name, at) => [name, values[at + 1] ?? ""]));
      const { field = "" } = named;
      return fill(reasons[reason], { ...named, field: fields[field] ?? field });
    }
    return undefined;
  }
  return {
    say: (reason: Reason, values: Readonly<Record<string, string>> = {}): string =>
      fill(reasons[reason], values),
    /** What the reader of files says. */
    word: (message: string): string =>
      (texts === undefined ? undefined : translate(message)) ?? message,
    /** What the service says. */
    wordError: (name: ErrorName | undefined, message: string): string => {
      const meaning = name && errors?.[name];
      return meaning === undefined ? message : `${meaning} (${message})`;
    },
  };
}
