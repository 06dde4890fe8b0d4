/** A folder with files in it, and a store beside them. */

import { writeFileSync } from "node:fs";
import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";
import { readPlants } from "./stores.ts";

export interface Workplace extends TemporaryFolder {
  readonly file: (name: string) => string;
  /** Where the store is; made by whoever opens it first. */
  readonly store: string;
  /** What makes it the store of a command. */
  readonly env: Readonly<Record<string, string>>;
}

/** With these files, by name. */
export function makeWorkplace(files: Readonly<Record<string, string>> = {}): Workplace {
  const folder = makeTemporaryFolder();
  const file = (name: string): string => `${folder.path}/${name}`;
  for (const [name, text] of Object.entries(files)) writeFileSync(file(name), text);
  const store = file("plants.db");
  return { ...folder, file, store, env: { DATABASE_URL: `sqlite:${store}` } };
}

/** Plants as NDJSON, with ids from `first` on. */
export const lines = (first: number, count: number): string =>
  Array.from({ length: count }, (_, index) => `{"id":${first + index},"name":"p"}\n`).join("");

export const parseLines = (text: string): unknown[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as unknown);

export const countPlants = (path: string): number => readPlants(path).length;

/** For what another process does, and tells nobody. */
export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await Bun.sleep(10);
}
