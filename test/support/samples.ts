/** The samples of code in docs/client.md. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

const page = join(import.meta.dir, "../../docs/client.md");

/** The blocks in this language: those about the client itself, or those after them. */
export function readSamples(language: string, part: "client" | "generator"): string {
  const parts = readFileSync(page, "utf8").split("\n## In a browser");
  const text = parts[part === "client" ? 0 : 1] ?? "";
  return [...text.matchAll(/^```(\w*)\n([^]*?)^```$/gm)]
    .filter(([, found]) => found === language)
    .map(([, , block = ""]) => block)
    .join("");
}
