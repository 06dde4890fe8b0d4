/** Signing in to the console: what a token lets staff do, and what happens when it no longer does. */

import { expect } from "bun:test";
import {
  createToken,
  describeInBrowser,
  openRow,
  revoke,
  rowOf,
  signIn,
  startJourneys,
  type TestPage,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { edit, fillNew, signOut, untilAt, untilSo } from "../support/steps.ts";

const { it, test } = await startJourneys({}, ({ url }) =>
  sendPlant(url, { id: 1n, name: "Rose", tag: "shrub" }),
);

describeInBrowser("signing in to the console", () => {
  it("shows the list, and keeps the token in this tab only, and in no address", async (visit) => {
    const { page, service } = await visit.open({ token: null });
    await signIn(page, TEST_TOKEN);
    await rowOf(page, "Rose").waitFor();
    await page.reload();
    await rowOf(page, "Rose").waitFor();
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    expect(await page.evaluate<string>("document.cookie")).toBe("");
    expect(page.url()).not.toContain(TEST_TOKEN);

    const another = await page.context().newPage();
    await another.goto(service.url);
    await another.getByRole("heading", { name: "Sign in" }).waitFor();
    await another.close();
  });

  it("explains a wrong token, an expired one and an empty field, and lets none in", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ token: null });
    announceFailure("/token", 401);
    // Staff have no command line.
    await page.getByText("Ask the person who runs the store").waitFor();
    expect(await page.locator("code").count()).toBe(0);
    const field = page.getByLabel("Token");
    for (const [token, fault] of [
      ["", "Paste a token"],
      ["pst_mistyped", "not accepted"],
      [await createToken(service, { name: "old", expiresAtMs: Date.now() - 1000 }), "has expired"],
      ["two words", "not a token"],
    ] as const) {
      await field.fill(token);
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.locator(".field-fault", { hasText: fault }).waitFor();
    }
    expect(await field.getAttribute("aria-invalid")).toBe("true");
    expect(await page.getByRole("navigation").count()).toBe(0);
  });

  test("with a pasted token needs no further click", async (visit) => {
    const { page } = await visit.open({ token: null });
    await page.evaluate(
      `navigator.clipboard.writeText(" 'Authorization: Bearer ${TEST_TOKEN}' \\\\\\n")`,
    );
    await page.getByLabel("Token").focus();
    await page.keyboard.press("ControlOrMeta+v");
    await rowOf(page, "Rose").waitFor();
  });

  it("by the link of the first start leaves no token in the address or the history", async (visit) => {
    const link = `#token=${TEST_TOKEN}`;
    const { page, service, announceFailure } = await visit.open({ token: null, at: link });
    await untilAt(page, `${service.url}/`);
    await page.getByRole("button", { name: "Continue as “PLANTSTORE_TOKEN”" }).click();
    await rowOf(page, "Rose").waitFor();
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
    await page.goBack();
    expect(page.url()).not.toContain("token");
    await page.goForward();
    // The link of the one who is signed in asks nothing.
    await page.evaluate(`location.hash = "token=${TEST_TOKEN}"`);
    await untilSo(page, `location.href === "${service.url}/"`);
    await rowOf(page, "Rose").waitFor();
    await signOut(page);
    announceFailure("/token", 401);
    await page.goto(`${service.url}/#token=pst_wrong`);
    await page.getByRole("alert").getByText("not accepted").waitFor();
    await page.getByRole("button", { name: "Sign in with a token" }).click();
    await page.getByLabel("Token").waitFor();
  });

  it("by a link can be for the device, and asks whom to continue as if someone is signed in", async (visit) => {
    const anna = await createToken(visit.service, { name: "Anna Müller" });
    const { page, service } = await visit.open({ token: null, at: `#token=${TEST_TOKEN}` });
    await page.getByLabel("Stay signed in on this device").check();
    await page.getByRole("button", { name: /^Continue as/ }).click();
    await openRow(page, "Rose");
    await edit(page, "Draft of the first");
    await page.evaluate(`location.hash = "token=${anna}"`);
    await page.getByText("You are signed in as “PLANTSTORE_TOKEN”").waitFor();
    await page.getByRole("button", { name: "Stay “PLANTSTORE_TOKEN”" }).click();
    await page.getByRole("button", { name: "Signed in as PLANTSTORE_TOKEN" }).waitFor();
    await page.evaluate(`location.hash = "token=${anna}"`);
    await page.getByRole("button", { name: "Continue as “Anna Müller”" }).click();
    await page.getByRole("button", { name: "Signed in as Anna Müller" }).waitFor();
    // Nothing of the first person is left in this tab; the device is still theirs.
    await page.goto(`${service.url}/#/plants/1`);
    await page.locator(".shown-name", { hasText: "Rose" }).waitFor();
    expect(await page.evaluate<number>("localStorage.length")).toBe(1);
  });

  it("for this device holds in new tabs and the reference, until one tab signs out", async (visit) => {
    const { page, service } = await visit.open({ token: null });
    await page.getByLabel("Stay signed in on this device").check();
    await signIn(page, TEST_TOKEN);
    const another = await page.context().newPage();
    await another.goto(service.url);
    await rowOf(another, "Rose").waitFor();
    await another.goto(`${service.url}/docs`);
    await untilSo(another, `document.querySelector("#token")?.value === "${TEST_TOKEN}"`);
    const reference = await page.context().newPage();
    await reference.goto(`${service.url}/docs`);
    await another.goto(service.url);
    await rowOf(another, "Rose").waitFor();
    await signOut(page);
    expect(await page.evaluate<number>("sessionStorage.length")).toBe(0);
    await page.reload();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await untilSo(reference, `document.querySelector("#token").value === ""`);
    await reference.close();
    await another.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(await another.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
    await another.close();
  });
});

describeInBrowser("a token that may not do everything", () => {
  it("offers no adding, changing or importing where it may only read", async (visit) => {
    const token = await createToken(visit.service, { name: "window", scopes: ["plants:read"] });
    const { page, service } = await visit.open({ token });
    await openRow(page, "Rose");
    await page.locator(".shown-name", { hasText: "Rose" }).waitFor();
    for (const name of ["Add plant", "Edit", "Delete", "Import"])
      expect(await page.getByText(name, { exact: true }).count()).toBe(0);
    await page.keyboard.press("n");
    expect(page.url()).not.toContain("new");
    await page.goto(`${service.url}/#/plants/new`);
    await rowOf(page, "Rose").waitFor();
    expect(await page.getByRole("heading", { name: "Add a plant" }).count()).toBe(0);
    await page.goto(`${service.url}/#/import`);
    await page.getByRole("heading", { name: "Not allowed with this token" }).waitFor();
  });

  it("offers a form and no list where it may only write", async (visit) => {
    const token = await createToken(visit.service, { name: "till", scopes: ["plants:write"] });
    const { page, service, announceFailure } = await visit.open({ token });
    announceFailure("/plants", 409);
    expect(await page.getByRole("grid").count()).toBe(0);
    for (const name of ["Changes", "Health"])
      expect(await page.getByRole("link", { name }).count()).toBe(0);
    await fillNew(page, "1", "Tulip");
    await page.getByRole("button", { name: "Add plant" }).click();
    await page.getByText("Id 1 already belongs to another plant").waitFor();
    await page.getByLabel("Id", { exact: true }).fill("2");
    await page.getByRole("button", { name: "Add plant" }).click();
    await page.locator(".toast", { hasText: "Added" }).waitFor();
    expect(await service.findPlant(2n)).toMatchObject({ name: "Tulip" });
  });
});

/** The list follows the changes, so it notices by itself: the stream is cut off, and the next one refused. */
async function untilSignedOut({ page, announceFailure }: TestPage): Promise<void> {
  announceFailure("/changes", "failed");
  announceFailure("/changes", 401);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
}

describeInBrowser("a token that ends while somebody works", () => {
  it("by being revoked leads back to signing in, and from there to the same view", async (visit) => {
    const token = await createToken(visit.service, { name: "lost phone" });
    await using view = await visit.open({ token: null, at: "#/plants?tag=shrub" });
    const { page, service } = view;
    await page.getByLabel("Stay signed in on this device").check();
    await signIn(page, token);
    await rowOf(page, "Rose").waitFor();
    await revoke(service, "lost phone");
    await untilSignedOut(view);
    await page.getByText("no longer accepted").waitFor();
    // The device still has the token, and the page says the same of it.
    await page.reload();
    await page.getByText("no longer accepted").waitFor();
    await signIn(page, TEST_TOKEN);
    await rowOf(page, "Rose").waitFor();
    await untilAt(page, "#/plants?tag=shrub");
  });

  it("by expiring says so", async (visit) => {
    const token = await createToken(visit.service, {
      name: "short",
      expiresAtMs: Date.now() + 3_600_000,
    });
    await using view = await visit.open({ token });
    const { page, service } = view;
    await rowOf(page, "Rose").waitFor();
    await service.database.run(
      `UPDATE tokens SET expires_at_ms = ${Date.now()} WHERE name = 'short'`,
    );
    await untilSignedOut(view);
    await page.getByText("Your token has expired").waitFor();
  });
});
