/** The texts of the console: each language has every text with its placeholders, and each text is used. */

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { de } from "../../console/text/de.ts";
import { en } from "../../console/text/en.ts";
import { es } from "../../console/text/es.ts";
import { fr } from "../../console/text/fr.ts";

const folder = join(import.meta.dir, "../../console");
const files = [...new Glob("**/*.{ts,tsx}").scanSync(folder)].filter(
  (file) => !file.startsWith("text/"),
);
const sources = files.map((file) => readFileSync(join(folder, file), "utf8"));

type Texts = Readonly<{ [key: string]: string | Texts }>;

/** The texts by their paths, such as `shell.signOut`. The forms of a plural are one text. */
function listTexts(texts: Texts, path = ""): [path: string, forms: readonly string[]][] {
  return Object.entries(texts).flatMap(([key, value]) => {
    const place = path === "" ? key : `${path}.${key}`;
    if (typeof value === "string") return [[place, [value]]];
    if ("other" in value) return [[place, Object.values(value) as string[]]];
    return listTexts(value, place);
  });
}

/** A plural may say its number in words, as in "the only plant". */
const listPlaceholders = (forms: readonly string[]): string[] => {
  const names = forms.flatMap((form) => form.match(/\{\w+\}/g) ?? []);
  return [...new Set(names)].toSorted();
};

const english = listTexts(en);

test("every text is used", () => {
  const used = new Set(
    sources.flatMap((source) =>
      [...source.matchAll(/\b(?:t|en|texts)((?:\s*\.\s*\w+)+)/g)].map(([, path = ""]) =>
        path.replaceAll(/\s/g, "").slice(1),
      ),
    ),
  );
  // A path that ends at a group uses all of it, as `t.shell.views[view]` does.
  const isUsed = (path: string): boolean =>
    path.split(".").some((_, at, keys) => at > 0 && used.has(keys.slice(0, at + 1).join(".")));
  expect(english.map(([path]) => path).filter((path) => !isUsed(path))).toEqual([]);
});

/** An attribute, a sentence or the content of an element. */
const OUTSIDE =
  /(?:aria-label|title|label|placeholder|text|hint|caption)="[^"]*[A-Z][a-z][^"]*"|"[A-Z][a-z]+ [a-z]+[^"]*"|>\s*[A-Z][a-z]+(?:[ ,.][^<>{}=;()]*)?<\//g;

test("every text is in the catalogue", () => {
  const found = sources.flatMap((source, at) =>
    (source.replaceAll(/\/\*[^]*?\*\/|\/\/ .*$/gm, "").match(OUTSIDE) ?? []).map(
      (text) => `${files[at]}: ${text.replaceAll(/\s+/g, " ")}`,
    ),
  );
  expect(found.filter((text) => !/> ?Plant Store ?<\/$/.test(text))).toEqual([]);
});

/** Without the errors of the API, which the service words in English. */
const others = Object.entries<Texts>({ de, fr, es }).map(
  ([language, texts]) => [language, { ...texts, errors: {} }] as const,
);

test.each(others)("%s has the texts of English, and no others", (_, texts) => {
  const paths = (list: ReturnType<typeof listTexts>): string[] => list.map(([path]) => path);
  expect(paths(listTexts(texts)).toSorted()).toEqual(paths(english).toSorted());
});

test("French punctuation stays on the line of its word", () => {
  const breaks = listTexts(fr).filter(([, forms]) => /\S [:;?!%»]|« /.test(forms.join("\n")));
  expect(breaks).toEqual([]);
});

test.each(others)("%s has the placeholders of English", (_, texts) => {
  const forms = new Map(listTexts(texts));
  for (const [path, source] of english)
    expect([path, listPlaceholders(forms.get(path) ?? [])]).toEqual([
      path,
      listPlaceholders(source),
    ]);
});
