/** Signing in to the console: what a token lets staff do, and what happens when it no longer does. */

import { expect } from "bun:test";
import { describeInBrowser, startJourneys, type TestPage } from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const { it, test } = await startJourneys({}, ({ url }) =>
  sendPlant(url, { id: 1n, name: "Rose", tag: "shrub" }),
);

describeInBrowser("signing in to the console", () => {
  it("shows the list, and keeps the token in this tab only, and in no address", async (visit) => {
    const { page, user, service } = await visit.open({ token: null });
    await user.signIn(TEST_TOKEN, { row: "Rose" });
    await user.reload({ row: "Rose" });
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    expect(await page.evaluate<string>("document.cookie")).toBe("");
    expect(page.url()).not.toContain(TEST_TOKEN);

    await user.openTab(service.url, { heading: "Sign in" });
  });

  it("explains a wrong token, an expired one and an empty field, and lets none in", async (visit) => {
    const { page, user, announceFailure } = await visit.open({ token: null });
    announceFailure("/token", 401);
    // Staff have no command line.
    await user.see({ text: "Ask the person who runs the store" });
    expect(await page.locator("code").count()).toBe(0);
    const field = page.getByLabel("Token");
    for (const [token, fault] of [
      ["", "Paste a token"],
      ["pst_mistyped", "not accepted"],
      [await visit.createToken({ name: "old", expiresAtMs: Date.now() - 1000 }), "has expired"],
      ["two words", "not a token"],
    ] as const) {
      await field.fill(token);
      await user.click("Sign in");
      await page.locator(".field-fault", { hasText: fault }).waitFor();
    }
    expect(await field.getAttribute("aria-invalid")).toBe("true");
    expect(await page.getByRole("navigation").count()).toBe(0);
  });

  test("with a pasted token needs no further click", async (visit) => {
    const { page, user } = await visit.open({ token: null });
    const header = `" 'Authorization: Bearer ${TEST_TOKEN}' \\\\\\n"`;
    await page.evaluate(`navigator.clipboard.writeText(${header})`);
    await page.getByLabel("Token").focus();
    await user.press("ControlOrMeta+v", { row: "Rose" });
  });

  it("by the link of the first start leaves no token in the address or the history", async (visit) => {
    const at = `#token=${TEST_TOKEN}`;
    const { page, user, service, announceFailure } = await visit.open({ token: null, at });
    await user.untilAt(`${service.url}/`);
    await user.click("Continue as “PLANTSTORE_TOKEN”", { heading: "Overview" });
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    await page.goBack();
    expect(page.url()).not.toContain("token");
    await page.goForward();
    // The link of the one who is signed in asks nothing.
    await page.evaluate(`location.hash = "token=${TEST_TOKEN}"`);
    await user.untilSo(`location.href === "${service.url}/"`);
    await user.see({ row: "Rose" });
    await user.signOut();
    announceFailure("/token", 401);
    await user.goTo("#token=pst_wrong");
    await page.getByRole("alert").getByText("not accepted").waitFor();
    await user.click("Sign in with a token", { element: "#token" });
  });

  it("by a link can be for the device, and asks whom to continue as if someone is signed in", async (visit) => {
    const anna = await visit.createToken({ name: "Anna Müller" });
    const { page, user } = await visit.open({ token: null, at: `#token=${TEST_TOKEN}` });
    await page.getByLabel("Stay signed in on this device").check();
    await user.click(/^Continue as/, { heading: "Overview" });
    await user.goTo("#/plants", { row: "Rose" });
    await user.openRow("Rose");
    await user.edit("Draft of the first");
    await page.evaluate(`location.hash = "token=${anna}"`);
    await user.see({ text: "You are signed in as “PLANTSTORE_TOKEN”" });
    await user.click("Stay “PLANTSTORE_TOKEN”", { button: "Signed in as PLANTSTORE_TOKEN" });
    await page.evaluate(`location.hash = "token=${anna}"`);
    await user.click("Continue as “Anna Müller”", { button: "Signed in as Anna Müller" });
    // Nothing of the first person is left in this tab; the device is still theirs.
    await user.goTo("#/plants/1", { shown: "Rose" });
    expect(await page.evaluate<number>("localStorage.length")).toBe(1);
  });

  it("for this device holds in new tabs and the reference, until one tab signs out", async (visit) => {
    const { page, user, service } = await visit.open({ token: null });
    await page.getByLabel("Stay signed in on this device").check();
    await user.signIn(TEST_TOKEN);
    const another = await user.openTab(service.url, { heading: "Overview" });
    await another.page.goto(`${service.url}/docs`);
    await another.untilSo(`document.querySelector("#token")?.value === "${TEST_TOKEN}"`);
    const reference = await user.openTab(`${service.url}/docs`);
    await another.page.goto(service.url);
    await another.see({ heading: "Overview" });
    await user.signOut();
    expect(await page.evaluate<number>("sessionStorage.length")).toBe(0);
    await user.reload({ heading: "Sign in" });
    await reference.untilSo(`document.querySelector("#token").value === ""`);
    await another.see({ heading: "Sign in" });
    expect(await another.page.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
  });
});

describeInBrowser("a token that may not do everything", () => {
  it("offers no adding, changing or importing where it may only read", async (visit) => {
    const as = { name: "window", scopes: ["plants:read"] as const };
    const { page, user } = await visit.open({ as });
    await user.openRow("Rose", { shown: "Rose" });
    for (const name of ["Add plant", "Edit", "Delete", "Import"])
      expect(await page.getByText(name, { exact: true }).count()).toBe(0);
    await user.press("n");
    expect(page.url()).not.toContain("new");
    await user.goTo("#/plants/new", { row: "Rose" });
    expect(await page.getByRole("heading", { name: "Add a plant" }).count()).toBe(0);
    await user.goTo("#/import", { heading: "Not allowed with this token" });
  });

  it("offers a form and no list where it may only write", async (visit) => {
    const as = { name: "till", scopes: ["plants:write"] as const };
    const { page, user, service, announceFailure } = await visit.open({ as });
    announceFailure("/plants", 409);
    expect(await page.getByRole("grid").count()).toBe(0);
    for (const name of ["Changes", "Health"])
      expect(await page.getByRole("link", { name }).count()).toBe(0);
    await user.fillNew("1", "Tulip");
    await user.click("Add plant", { text: "Id 1 already belongs to another plant" });
    await user.field("Id").fill("2");
    await user.click("Add plant", { toast: "Added" });
    expect(await service.findPlant(2n)).toMatchObject({ name: "Tulip" });
  });
});

/** The list follows the changes, so it notices by itself: the stream is cut off, and the next one refused. */
async function untilSignedOut(view: TestPage, reason: string): Promise<void> {
  const { user, announceFailure, allowFailure } = view;
  announceFailure("/changes", "failed", 401);
  // A page that was just opened looks for running jobs.
  allowFailure("/jobs", 401);
  await user.see({ heading: "Sign in", text: reason });
}

describeInBrowser("a token that ends while somebody works", () => {
  it("by being revoked leads back to signing in, and from there to the same view", async (visit) => {
    const token = await visit.createToken({ name: "lost phone" });
    const view = await visit.open({ token: null, at: "#/plants?tag=shrub" });
    const { page, user } = view;
    await page.getByLabel("Stay signed in on this device").check();
    await user.signIn(token, { row: "Rose" });
    await visit.revoke("lost phone");
    await untilSignedOut(view, "no longer accepted");
    // The device still has the token, and the page says the same of it.
    await user.reload({ text: "no longer accepted" });
    await user.signIn(TEST_TOKEN, { row: "Rose" });
    await user.untilAt("#/plants?tag=shrub");
  });

  it("by expiring says so", async (visit) => {
    const as = { name: "short", expiresAtMs: Date.now() + 3_600_000 };
    const view = await visit.open({ as });
    const expire = `UPDATE tokens SET expires_at_ms = ${Date.now()} WHERE name = 'short'`;
    await visit.service.database.run(expire);
    await untilSignedOut(view, "Your token has expired");
  });
});
