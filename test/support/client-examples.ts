/** The examples in the comments of client/, by what they are examples of. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";

const folder = join(import.meta.dir, "../../client");
const COMMENT =
  /^ *\/\*\*\n((?: *\*(?!\/).*\n)*?) *\* @example\n((?: *\*(?!\/).*\n)+) *\*\/\n *(?:async )?\*?(?:export type )?(\w+)/gm;

export const clientExamples: ReadonlyMap<string, string> = new Map(
  [...new Glob("*.ts").scanSync(folder)].flatMap((file) =>
    [...readFileSync(join(folder, file), "utf8").matchAll(COMMENT)].map(
      ([, , lines = "", name = ""]) => [name, lines.replaceAll(/^ *\* ?/gm, "")] as const,
    ),
  ),
);
