/** Folders that are gone when the test is over. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface TemporaryFolder extends Disposable {
  readonly path: string;
}

export function makeTemporaryFolder(): TemporaryFolder {
  const path = mkdtempSync(join(tmpdir(), "plantstore-test-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

export interface Workplace extends TemporaryFolder {
  readonly file: (name: string) => string;
  /** Where the store is. The first command that opens it makes it. */
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

export const parseLines = (text: string): unknown[] => Bun.JSONL.parse(text);
