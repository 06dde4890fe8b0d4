/** The client as its users have it: built, in a node_modules folder of its own. */

import { cpSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildClient } from "../../scripts/build-client.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";

const root = join(import.meta.dir, "../..");

/** A folder in which `@plantstore/client` is installed. */
export async function installClient(): Promise<TemporaryFolder> {
  const folder = makeTemporaryFolder();
  const installed = join(folder.path, "node_modules/@plantstore/client");
  mkdirSync(installed, { recursive: true });
  cpSync(join(root, "client/package.json"), join(installed, "package.json"));
  await buildClient(join(installed, "dist"));
  return folder;
}

export const clientScript = (folder: TemporaryFolder): string =>
  join(folder.path, "node_modules/@plantstore/client/dist/client.js");

/** The blocks of docs/client.md in this language: those about the client itself, or those after them. */
export function readSamples(language: string, part: "client" | "generator"): string {
  const parts = readFileSync(join(root, "docs/client.md"), "utf8").split("\n## In a browser");
  const text = parts[part === "client" ? 0 : 1] ?? "";
  return [...text.matchAll(/^```(\w*)\n([^]*?)^```$/gm)]
    .filter(([, found]) => found === language)
    .map(([, , block = ""]) => block)
    .join("");
}
