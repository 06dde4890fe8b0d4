/** Who uses a page, when other tabs of the device sign in and out, without a page. */

import { beforeEach, expect, test } from "bun:test";
import { route } from "../../console/state/route.ts";
import { unsaved } from "../../console/state/saving.ts";
import {
  beginSession,
  endSession,
  identity,
  offered,
  signedOut,
  token,
} from "../../console/state/session.ts";
import { findDraft, keep, keepDraft, keyOf, recall } from "../../console/state/storage.ts";
import { startPage } from "./page.ts";

startPage("https://host.example/");

const as = (name: string, its = name) => ({ token: its, identity: { name, scopes: [] } });

/** Another tab signs in or out for the device. */
function elsewhere(session: ReturnType<typeof as> | undefined): void {
  keep("localStorage", "session", session);
  window.dispatchEvent(Object.assign(new Event("storage"), { key: keyOf("session") }));
}

const edit = (): void => keepDraft(7n, { name: "Mine", tag: undefined, etag: '"a"' });

beforeEach(() => {
  endSession("left");
  beginSession(as("Anna"), true);
});

test("a page without edits goes with its device to the next person", () => {
  elsewhere(as("Bernd"));
  expect([identity.value?.name, token.value]).toEqual(["Bernd", "Bernd"]);
  elsewhere(undefined);
  expect([identity.value, signedOut.value]).toEqual([undefined, "left"]);
});

test("a page with edits stays with its person, and then has a session of its own", () => {
  edit();
  elsewhere(as("Bernd"));
  expect(identity.value?.name).toBe("Anna");
  expect(recall("sessionStorage", "session")).toEqual(as("Anna"));
  elsewhere(undefined);
  expect(identity.value?.name).toBe("Anna");
  expect(unsaved.value).toBe(1);
});

test("edits wait for their person when another tab signs out, and for nobody else", () => {
  edit();
  elsewhere(undefined);
  expect([identity.value, signedOut.value]).toEqual([undefined, "elsewhere"]);
  elsewhere(as("Bernd"));
  expect(identity.value).toBeUndefined();
  elsewhere(as("Anna", "another token"));
  expect([identity.value?.name, token.value]).toEqual(["Anna", "another token"]);
  expect(findDraft(7n)?.name).toBe("Mine");
  elsewhere(undefined);
  beginSession(as("Bernd"), false);
  expect(findDraft(7n)).toBeUndefined();
});

test("a new token of the same person changes nothing else", () => {
  edit();
  elsewhere(as("Anna", "new"));
  expect([token.value, findDraft(7n)?.name]).toEqual(["new", "Mine"]);
});

test("a link with a token is offered once, and leaves the address at once", () => {
  location.hash = "#token=pst_link";
  window.dispatchEvent(new Event("hashchange"));
  expect(offered.value).toBe("pst_link");
  expect(location.hash).toBe("");
  expect(route.value.view).toBe("plants");
  endSession("left");
  expect(offered.value).toBeUndefined();
});
