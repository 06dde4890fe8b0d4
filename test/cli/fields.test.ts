/** Flags that are parameters of the API. */

import { expect, test } from "bun:test";
import { Command } from "commander";
import { addFields, fieldsOf, parseFields } from "../../src/cli/fields.ts";

test.each(["namePrefix", "name_prefix"])("the parameter %s is the flag --name-prefix", (name) => {
  const fields = { [name]: fieldsOf.bulk.tagged };
  const parse = (text: string) => {
    const command = addFields(new Command(), fields).parse(["--name-prefix", text], {
      from: "user",
    });
    return parseFields(command.opts(), fields);
  };
  expect(parse("true")).toEqual({ [name]: true });
  expect(() => parse("maybe")).toThrow(
    '--name-prefix: "maybe" is not allowed; expected true or false',
  );
});
