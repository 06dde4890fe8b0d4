/** Flags that are parameters of the API, with its names, words and values. */

import { type Command, Option } from "commander";
import { toFlag } from "../config.ts";
import {
  bulkFields,
  changeFields,
  type Fields,
  filterFields,
  plantFields,
  type Values,
} from "../http/field.ts";
import { parseFlag, toMember } from "./command.ts";

/** By command. */
export const fieldsOf = {
  export: { ...filterFields, sort: plantFields.sort },
  bulk: { ...filterFields, except: bulkFields.except },
  changes: { after: changeFields.after },
};

/** Of the words of the API, the first sentence, unless it is a filter. */
export function addFields(command: Command, fields: Fields): Command {
  for (const [name, { schema }] of Object.entries(fields)) {
    const meaning = String(schema["description"]);
    const words = name in filterFields ? meaning : firstOf(meaning);
    const option = new Option(`${toFlag(name)} <${name}>`, words);
    const values = schema["enum"] as readonly string[] | undefined;
    command.addOption(values === undefined ? option : option.choices(values));
  }
  return command;
}

export const firstOf = (text: string): string => /^.*?\.(?=\s|$)/.exec(text)?.[0] ?? text;

/** Throws a usage error that names the flag. */
export const parseFields = <Names extends Fields>(flags: object, fields: Names): Values<Names> =>
  Object.fromEntries(
    Object.entries(fields).map(([name, field]) => {
      const text = (flags as Readonly<Record<string, string>>)[toMember(name)];
      return [name, parseFlag(toFlag(name), text, field) ?? field.fallback];
    }),
  ) as Values<Names>;
