/** What the browser keeps, for a service that shares its host with others. */

import { expect, test } from "bun:test";
import { forgetPerson } from "../../console/state/person.ts";
import {
  findDraft,
  hasShortcuts,
  keep,
  keepDraft,
  recall,
  setShortcuts,
} from "../../console/state/storage.ts";
import { Area, openPage } from "./page.ts";

const draft = { name: "Rosa", tag: undefined, etag: '"a"' };

openPage("https://host.example/plants/#/plants", {
  sessionStorage: new Area({
    "plantstore.drafts": JSON.stringify({ 7: draft }),
    "plantstore.job /other/": '"theirs"',
    unrelated: "1",
  }),
  localStorage: new Area({ "plantstore.shortcuts": '"off"' }),
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
  forgetPerson();
  expect(findDraft("new")).toBeUndefined();
  expect(Object.keys(sessionStorage)).toEqual(["plantstore.job /other/", "unrelated"]);
});
