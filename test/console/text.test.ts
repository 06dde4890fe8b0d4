/** The texts of the console: each is used, and each language has the placeholders of English. */

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { de } from "../../console/text/de.ts";
import { errors } from "../../console/text/errors.ts";
import { faults } from "../../console/text/faults.ts";
import type { Language, PluralForms, Table } from "../../console/text/table.ts";
import { table } from "../../console/text/take.ts";
import { faultTexts, plantRules } from "../../src/domain/faults.ts";

const folder = join(import.meta.dir, "../../console");
const files = [...new Glob("**/*.{ts,tsx}").scanSync(folder)].filter(
  (file) => !file.startsWith("text/"),
);
const sources = files.map((file) => readFileSync(join(folder, file), "utf8"));

type Text = Readonly<Record<Language, string | PluralForms>>;

/** By their paths, such as `shell.signOut`. */
function listTexts(texts: Table, path = ""): [path: string, text: Text][] {
  return Object.entries(texts).flatMap(([key, value]) => {
    const place = path === "" ? key : `${path}.${key}`;
    return "en" in value ? [[place, value as Text]] : listTexts(value, place);
  });
}

const listForms = (text: string | PluralForms): string[] =>
  typeof text === "string" ? [text] : Object.values(text);

/** A plural may say its number in words, as in "the only plant". */
const listPlaceholders = (text: string | PluralForms): string[] => {
  const names = listForms(text).flatMap((form) => form.match(/\{\w+\}/g) ?? []);
  return [...new Set(names)].toSorted();
};

const texts = listTexts(table);

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
  expect(texts.map(([path]) => path).filter((path) => !isUsed(path))).toEqual([]);
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

test("a page has the texts of its language", () => {
  expect(de.shell.signOut).toBe("Abmelden" as never);
  expect(de.errors.invalid_id).toBe(errors.invalid_id.de);
});

test("every fault is found by something", () => {
  const root = join(import.meta.dir, "../..");
  const code = [...new Glob("{src,console}/**/*.{ts,tsx}").scanSync(root)].map((file) =>
    readFileSync(join(root, file), "utf8"),
  );
  const isFound = (name: string): boolean =>
    name in plantRules || code.some((text) => text.includes(`createFault("${name}"`));
  expect(Object.keys(faultTexts).filter((name) => !isFound(name))).toEqual([]);
});

test("no text is empty", () => {
  const isEmpty = (text: Text): boolean =>
    Object.values(text).some((each) => listForms(each).includes(""));
  expect(texts.filter(([, text]) => isEmpty(text))).toEqual([]);
});

test("French punctuation stays on the line of its word", () => {
  const all = [...texts, ...Object.entries(errors), ...Object.entries(faults)] as [string, Text][];
  const breaks = all.filter(([, { fr }]) => /\S [:;?!%»]|« /.test(listForms(fr).join("\n")));
  expect(breaks).toEqual([]);
});

test.each(["de", "fr", "es"] as const)("%s has the placeholders of English", (language) => {
  for (const [path, text] of texts)
    expect([path, listPlaceholders(text[language])]).toEqual([path, listPlaceholders(text.en)]);
  for (const [name, text] of Object.entries(faults))
    expect([name, listPlaceholders(text[language])]).toEqual([
      name,
      listPlaceholders(faultTexts[name as keyof typeof faults]),
    ]);
});
