/** What the browser keeps, for a service that shares its host with others. */

import { afterAll, expect, test } from "bun:test";

/** As in a browser, the keys are the members. */
class Area {
  [key: string]: unknown;
  getItem = (key: string): unknown => this[key] ?? null;
  setItem = (key: string, value: string): void => void (this[key] = value);
  removeItem = (key: string): void => void delete this[key];

  constructor(kept: Readonly<Record<string, string>>) {
    for (const name of ["getItem", "setItem", "removeItem"])
      Object.defineProperty(this, name, { enumerable: false });
    Object.assign(this, kept);
  }
}

const draft = { name: "Rosa", tag: undefined, etag: '"a"' };
const names = ["document", "sessionStorage", "localStorage"] as const;
const before = names.map((name) => Object.getOwnPropertyDescriptor(globalThis, name));
const set = (name: string, value: unknown): void =>
  void Object.defineProperty(globalThis, name, { value, configurable: true });

set("document", { baseURI: "https://host.example/plants/#/plants" });
set(
  "sessionStorage",
  new Area({
    "plantstore.drafts": JSON.stringify({ 7: draft }),
    "plantstore.job /other/": '"theirs"',
    unrelated: "1",
  }),
);
set("localStorage", new Area({ "plantstore.shortcuts": '"off"' }));

const { findDraft, forgetTrail, hasShortcuts, keep, keepDraft, recall, setShortcuts } =
  await import("../../console/state/storage.ts");

afterAll(() => {
  for (const [index, name] of names.entries()) {
    const { [index]: descriptor } = before;
    if (descriptor === undefined) Reflect.deleteProperty(globalThis, name);
    else Object.defineProperty(globalThis, name, descriptor);
  }
});

test("drafts and settings of version 1.0 are found, and then kept for this service", () => {
  expect(findDraft(7n)).toEqual(draft);
  expect(Object.keys(sessionStorage)).toContain("plantstore.drafts /plants/");
  expect(Object.keys(sessionStorage)).not.toContain("plantstore.drafts");
  expect(hasShortcuts.value).toBe(false);
  setShortcuts(true);
  expect(recall("localStorage", "shortcuts")).toBe("on");
  // Another service of the host has yet to take it over.
  expect(Object.keys(localStorage)).toEqual([
    "plantstore.shortcuts",
    "plantstore.shortcuts /plants/",
  ]);
});

test("each key has the path of its service, and forgetting leaves others alone", () => {
  keepDraft("new", draft);
  keep("sessionStorage", "place #/plants?q=a", "1");
  expect(recall("sessionStorage", "job")).toBeUndefined();
  forgetTrail();
  expect(Object.keys(sessionStorage)).toEqual(["plantstore.job /other/", "unrelated"]);
});
