/** English: the source of every text, and its type. */

import type { ErrorName } from "../../client/client.ts";
import { changes } from "./en/changes.ts";
import { imports } from "./en/imports.ts";
import { operators } from "./en/operators.ts";
import { plants } from "./en/plants.ts";
import { shared } from "./en/shared.ts";
import { shell } from "./en/shell.ts";
import { tools } from "./en/tools.ts";

export const en = { shared, shell, plants, changes, imports, tools, operators } as const;

type Translated<Source> = {
  readonly [Key in keyof Source]: Source[Key] extends string
    ? string
    : Source[Key] extends { readonly other: string }
      ? Readonly<Partial<Record<Intl.LDMLPluralRule, string>> & Record<"other", string>>
      : Translated<Source[Key]>;
};

/** Another language also has the errors of the API, which the service words in English. */
export type Translation = Translated<typeof en> & {
  readonly errors: Readonly<Record<ErrorName, string>>;
};
