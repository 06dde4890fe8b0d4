/** Signing in to the console at an OpenID provider, by Authorization Code with PKCE. */

import { afterAll, expect, test } from "bun:test";
import { describeInBrowser, openConsole, startConsole } from "../support/browser.ts";
import { findFreePort } from "../support/postgres-files.ts";
import { startProvider } from "../support/provider.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import type { Seen, User } from "../support/steps.ts";

const port = findFreePort();
const provider = await startProvider(`http://127.0.0.1:${port}/`);
const service = await startConsole({ PORT: String(port), ...provider.settings });
await sendPlant(service.url, { id: 1n, name: "Rose", tag: "shrub" });

afterAll(() => Promise.all([service, provider].map((each) => each[Symbol.asyncDispose]())));

const { host } = new URL(provider.url);
const otherOrigins = [provider.url, provider.tokenOrigin];
const open = (at = "") => openConsole(service, { token: null, at, otherOrigins });

/** The issuer sends the browser back with this, to a tab that asked for it. */
async function answer(user: User, query: string, seen: Seen): Promise<void> {
  const begun = `'{"state":"STATE","verifier":"v","view":""}'`;
  await user.page.evaluate(`sessionStorage.setItem("plantstore.sign-in /", ${begun})`);
  await user.page.goto(`${service.url}/?${query}`);
  await user.see(seen);
}

describeInBrowser("signing in at the issuer", () => {
  test("leads back to the same view, and leaves no code or token in the address", async () => {
    const { page, user } = await open("#/plants?tag=shrub");
    await user.click(`Sign in with ${host}`, { row: "Rose" });
    await user.untilAt(`${service.url}/#/plants?tag=shrub`);
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    const stored = `JSON.parse(sessionStorage.getItem("plantstore.session /")).token`;
    const token = await page.evaluate<string>(stored);
    const headers = { authorization: `Bearer ${token}` };
    const response = await send(service, "GET", "/token", { headers });
    expect(await response.json()).toMatchObject({ name: "jwt:alice via console" });
    await user.signOut();
    await user.reload({ heading: "Sign in" });
  });

  test.each([
    ["state=other&code=x", "another attempt"],
    ["state=STATE&code=x&iss=https://other.example", "another attempt"],
    ["state=STATE&error=access_denied", "You were not signed in"],
    ["state=STATE&error=server_error", "refused the sign-in (server_error)"],
  ])("explains the answer %s, and tries nothing with it", async (query, says) => {
    const { page, user } = await open();
    await answer(user, query, { text: says });
    await user.untilAt(`${service.url}/`);
    expect(await page.getByRole("navigation").count()).toBe(0);
  });

  test("ignores a code that this tab did not ask for", async () => {
    const { page, user } = await open();
    await page.goto(`${service.url}/?state=x&code=y`);
    await user.see({ heading: "Sign in" });
    expect(await page.locator(".notice").count()).toBe(0);
  });

  test("uses no code after a sign-out, if the user was signed in when it came", async () => {
    const { page, user } = await open();
    await user.signIn(TEST_TOKEN, { heading: "Overview" });
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await answer(user, "state=STATE&code=made-up", { heading: "Overview" });
    await user.signOut();
    await user.signIn(TEST_TOKEN, { heading: "Overview" });
    expect(asked.filter((url) => url.startsWith(provider.url))).toEqual([]);
  });

  test("explains a code that the issuer refuses", async () => {
    const { user, announceFailure } = await open();
    announceFailure("/token", 400);
    await answer(user, "state=STATE&code=made-up", { text: `${host} did not answer as expected` });
  });
});
