/** Folders that are gone when the test is over. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runCommand } from "./command.ts";

export interface TemporaryFolder extends Disposable {
  readonly path: string;
}

export function makeTemporaryFolder(): TemporaryFolder {
  const path = mkdtempSync(join(tmpdir(), "plantstore-test-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

export type Workplace = ReturnType<typeof makeWorkplace>;

/** With these files, by name. */
export function makeWorkplace(files: Readonly<Record<string, string>> = {}) {
  const folder = makeTemporaryFolder();
  const file = (name: string): string => `${folder.path}/${name}`;
  for (const [name, text] of Object.entries(files)) writeFileSync(file(name), text);
  /** The first command that opens it makes it. */
  const store = file("plants.db");
  /** What makes it the store of a command. */
  const env = { DATABASE_URL: `sqlite:${store}` };
  /** A command on the store, in the folder: names of its files are paths. */
  const run = (...args: readonly string[]) => runCommand(args, env, { cwd: folder.path });
  return { ...folder, file, store, env, run };
}

/** Plants as NDJSON, with ids from `first` on. */
export const lines = (first: number, count: number): string =>
  Array.from({ length: count }, (_, index) => `{"id":${first + index},"name":"p"}\n`).join("");

export const parseLines = (text: string): unknown[] => Bun.JSONL.parse(text);
