/** Signing in to the console at an OpenID provider, by Authorization Code with PKCE. */

import { afterAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { describeInBrowser, openConsole, rowOf, startConsole } from "../support/browser.ts";
import { findFreePort } from "../support/postgres-files.ts";
import { startProvider } from "../support/provider.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { signOut, untilAt } from "../support/steps.ts";

const port = findFreePort();
const provider = await startProvider(`http://127.0.0.1:${port}/`);
const service = await startConsole({ PORT: String(port), ...provider.settings });
await sendPlant(service.url, { id: 1n, name: "Rose", tag: "shrub" });

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
});

const { host } = new URL(provider.url);
const open = (at = "") => openConsole(service, { token: null, at, otherOrigin: provider.url });

/** The issuer sends the browser back with this, to a tab that asked for it. */
async function answer(page: Page, query: string): Promise<void> {
  await page.evaluate(
    `sessionStorage.setItem("plantstore.sign-in", '{"state":"STATE","verifier":"v","view":""}')`,
  );
  await page.goto(`${service.url}/?${query}`);
}

describeInBrowser("signing in at the issuer", () => {
  test("leads back to the same view, and leaves no code or token in the address", async () => {
    const { page } = await open("#/plants?tag=shrub");
    await page.getByRole("button", { name: `Sign in with ${host}` }).click();
    await rowOf(page, "Rose").waitFor();
    await untilAt(page, `${service.url}/#/plants?tag=shrub`);
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    const token = await page.evaluate<string>(
      `JSON.parse(sessionStorage.getItem("plantstore.session")).token`,
    );
    const headers = { authorization: `Bearer ${token}` };
    const response = await send(service, "GET", "/token", { headers });
    expect(await response.json()).toMatchObject({ name: "jwt:alice via console" });
    await signOut(page);
    await page.reload();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
  });

  test.each([
    ["state=other&code=x", "another attempt"],
    ["state=STATE&code=x&iss=https://other.example", "another attempt"],
    ["state=STATE&error=access_denied", "You were not signed in"],
    ["state=STATE&error=server_error", "refused the sign-in (server_error)"],
  ])("explains the answer %s, and tries nothing with it", async (query, says) => {
    const { page } = await open();
    await answer(page, query);
    await page.getByText(says).waitFor();
    await untilAt(page, `${service.url}/`);
    expect(await page.getByRole("navigation").count()).toBe(0);
  });

  test("ignores a code that this tab did not ask for", async () => {
    const { page } = await open();
    await page.goto(`${service.url}/?state=x&code=y`);
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await page.locator(".notice").count()).toBe(0);
  });

  test("uses no code after a sign-out, if the user was signed in when it came", async () => {
    const { page } = await open();
    const signInByToken = async (): Promise<void> => {
      await page.getByLabel("Token").fill(TEST_TOKEN);
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await rowOf(page, "Rose").waitFor();
    };
    await signInByToken();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await answer(page, "state=STATE&code=made-up");
    await rowOf(page, "Rose").waitFor();
    await signOut(page);
    await signInByToken();
    expect(asked.filter((url) => url.startsWith(provider.url))).toEqual([]);
  });

  test("explains a code that the issuer refuses", async () => {
    const { page, announceFailure } = await open();
    announceFailure("/token", 400);
    await answer(page, "state=STATE&code=made-up");
    await page.getByText(`${host} did not answer as expected`).waitFor();
  });
});
