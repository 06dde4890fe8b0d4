/** Takes the texts of one language out of the table. The build does it, so that a page loads only its own. */

import { changes } from "./changes.ts";
import { errors } from "./errors.ts";
import { faults } from "./faults.ts";
import { imports } from "./imports.ts";
import { operators } from "./operators.ts";
import { plants } from "./plants.ts";
import { shared } from "./shared.ts";
import { shell } from "./shell.ts";
import type { Language, Table } from "./table.ts";
import { tools } from "./tools.ts";

/** A table in one language. */
type Taken<Source, In extends Language> = {
  readonly [Key in keyof Source]: Source[Key] extends Readonly<Record<In, infer Own>>
    ? Own
    : Taken<Source[Key], In>;
};

const areas = { shared, shell, plants, changes, imports, tools, operators } as const;

/** For those that check it. */
export const table: Table = areas;

export type Texts = Taken<typeof areas, "en">;

/** What `src/` words in English itself. */
export interface Foreign {
  readonly errors: Readonly<Record<keyof typeof errors, string>>;
  readonly faults: Readonly<Record<keyof typeof faults, string>>;
}

function pick(source: object, language: Language): unknown {
  if ("de" in source) return (source as Partial<Record<Language, unknown>>)[language];
  return Object.fromEntries(
    Object.entries(source).map(([key, value]) => [key, pick(value as object, language)]),
  );
}

export const takeEnglish = (): Texts => pick(areas, "en") as Texts;

export const take = (language: Exclude<Language, "en">): Texts & Foreign =>
  pick({ ...areas, errors, faults }, language) as Texts & Foreign;
