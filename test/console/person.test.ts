/** What a person leaves behind in the page: nothing, if somebody else may be next, and everything, if the token expired. */

import { expect, test } from "bun:test";
import { current } from "../../console/import/state.ts";
import { work } from "../../console/state/action.ts";
import { total } from "../../console/state/plants.ts";
import { follow, route } from "../../console/state/route.ts";
import { saveLater, unsaved, waiting } from "../../console/state/saving.ts";
import { beginSession, endSession, switchSession } from "../../console/state/session.ts";
import { findDraft, keep, keepDraft, trail } from "../../console/state/storage.ts";
import { toast, toasts } from "../../console/state/toasts.ts";
import { noteUndos, undos } from "../../console/state/undo.ts";
import { startPage } from "./page.ts";

startPage("https://host.example/");

const signIn = (name: string) => ({ token: name, identity: { name, scopes: [] } });
const rose = { id: 7n, name: "Rosa", tag: undefined };
let isStopped = false;

/** Something of each kind. */
function leaveTraces(): void {
  beginSession(signIn("Anna"), false);
  keep("sessionStorage", trail.filter, "#/plants?q=secret");
  follow("#/changes");
  keepDraft(7n, { name: "Rose", tag: undefined, etag: '"a"' });
  saveLater(7n, { plant: rose, send: async () => undefined });
  toast("Deleted “Rosa”.");
  noteUndos(["Undo: Sale"]);
  total.value = { count: 3, exact: true };
  current.value = { file: new File([], "stock.csv") };
  isStopped = false;
  work.value = { text: "Exporting…", stop: () => (isStopped = true) };
}

const listTraces = () => ({
  filter: route.value.filter.q,
  draft: findDraft(7n)?.name,
  waiting: waiting.value.size,
  unsaved: unsaved.value,
  toasts: toasts.value.length,
  undos: undos.value.size,
  total: total.value?.count,
  file: current.value?.file.name,
  work: work.value?.text,
  kept: Object.keys(sessionStorage).length,
});

const nothing = {
  filter: undefined,
  draft: undefined,
  waiting: 0,
  unsaved: 0,
  toasts: 0,
  undos: 0,
  total: undefined,
  file: undefined,
  work: undefined,
  kept: 0,
};

test("signing out leaves nothing, and what runs is stopped", () => {
  leaveTraces();
  expect(listTraces()).toMatchObject({ filter: "secret", draft: "Rose", unsaved: 1, undos: 1 });
  endSession("left");
  expect(listTraces()).toEqual(nothing);
  expect(isStopped).toBe(true);
});

test("somebody else who signs in by a link finds nothing but the own session", () => {
  leaveTraces();
  switchSession(signIn("Bernd"), false);
  expect(listTraces()).toEqual({ ...nothing, kept: 1 });
});

test("a token that expires takes nothing that was typed with it", () => {
  leaveTraces();
  endSession("expired");
  expect(listTraces()).toMatchObject({ draft: "Rose", waiting: 1, unsaved: 1, file: "stock.csv" });
});
