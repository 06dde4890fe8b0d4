/** What operators do in the console: tokens, webhooks, and health. */

import { expect } from "bun:test";
import type { Webhook } from "../../src/domain/webhook.ts";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { limits } from "../support/limits.ts";
import { type Received, startReceiver, verify } from "../support/receiver.ts";
import { send } from "../support/service.ts";
import type { Seen } from "../support/steps.ts";

const backups = {
  place: "/mnt/backups",
  loggedSinceMs: 0,
  currentSinceMs: 0,
  provenSinceMs: 0,
  loggedChanges: 0,
  countChanges: () => 0,
  proofs: 1,
  damaged: 0,
  proofsFailed: 0,
  problem: "The folder /mnt/backups does not exist.",
  get proven() {
    return { atMs: Date.now() - 240_000, change: 1, copies: 48, oldestAtMs: 0 };
  },
  everyMs: 900_000,
  made: 1,
  failed: 2,
  /** As long ago however late it is asked for. */
  get last() {
    return { atMs: Date.now() - 300_000, bytes: 6_170_000, sinceMs: 0 };
  },
  get loggedAtMs() {
    return Date.now() - 120_000;
  },
};
const settings = { PLANTSTORE_WEBHOOKS_PRIVATE: "true", ...limits({ sampleSeconds: 0.2 }) };
const { it, test } = await startJourneys(settings, undefined, { backups });

describeInBrowser("tokens in the console", () => {
  it("for some tags see no refusal, and make others for the same tags", async (visit) => {
    const as = { name: "indoors", tags: ["bulbs", "indoor"] };
    const { page, user, service } = await visit.open({
      as,
      at: "#/overview",
    });
    await service.store.createPlants([
      { id: 7_001n, name: "Fern", tag: "indoor" },
      { id: 7_002n, name: "Orchid", tag: "breeding" },
    ]);
    await user.see({ heading: "Overview" });
    expect(await page.getByRole("link", { name: "Health" }).count()).toBe(0);
    await user.follow("Tokens");
    await user.click("New token", { dialog: "New token" });
    await page.getByLabel("Name").fill("till");
    const tags = page.getByLabel("Only plants with these tags");
    expect(await tags.inputValue()).toBe("bulbs, indoor");
    await tags.fill("indoor, ");
    await user.click("Create token");
    await user.see({ text: "Change plants, only plants tagged “indoor”." });
    const made = await page.getByLabel("The new token").inputValue();
    const sent = { headers: { authorization: `Bearer ${made}` } };
    expect(await (await send(service, "GET", "/token", sent)).json()).toMatchObject({
      tags: ["indoor"],
    });
    await user.click("Done");
    await page.getByRole("row", { name: /till/ }).getByText("indoor", { exact: true }).waitFor();
    await user.follow("Plants");
    await user.see({ text: "Fern" });
    expect(await page.getByText("Orchid").count()).toBe(0);
  });

  it("are made, shown once and revoked", async (visit) => {
    const as = { name: "admin" };
    const { page, user, service, announceFailure } = await visit.open({ as, at: "#/tokens" });
    const name = "Anna Müller";
    await user.click("New token", { dialog: "New token" });
    announceFailure("/tokens", 400);
    await page.getByLabel("Name").fill("PLANTSTORE_TOKEN");
    const refuse = await user.hold("**/tokens", "POST");
    await user.click("Create token");
    // The button is disabled meanwhile, and cannot have the focus.
    await user.untilSo("!document.activeElement.matches('button')");
    refuse();
    await user.see({ text: "name: expected 1 to 64 characters" });
    await user.untilSo("document.activeElement.closest('dialog') !== null");
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("Change plants").uncheck();
    await page.getByLabel("Expires").selectOption({ label: "In 90 days" });
    await user.click("Create token");
    const field = page.getByLabel("The new token");
    const made = await field.inputValue();
    await user.click("Copy The new token");
    // A toast would be behind the dialog, and dimmed.
    await page.getByRole("dialog").getByText("Copied.").waitFor();
    expect(await page.evaluate<string>("navigator.clipboard.readText()")).toBe(made);
    // A link and its code sign a colleague in.
    await user.see({ text: `Anyone who opens it works as ${name}, with: Read plants.` });
    await page.getByRole("img", { name: "QR code of the sign-in link" }).waitFor();
    const link = await page
      .getByLabel("Sign-in link", { exact: true })
      .and(page.locator("textarea"))
      .inputValue();
    expect(link).toBe(`${service.url}/#token=${made}`);
    const colleague = await user.openTab(link);
    await colleague.see({ button: `Continue as “${name}”` });
    const sent = { headers: { authorization: `Bearer ${made}` } };
    const identity: unknown = await (await send(service, "GET", "/token", sent)).json();
    expect(identity).toMatchObject({ name, scopes: ["plants:read"] });
    // It is shown once, so it cannot be lost by a key, a click beside it, or Back.
    await user.press("Escape Escape");
    await page.mouse.click(2, 2);
    await page.evaluate("location.hash = '#/plants'");
    await user.see({ dialog: "Copy this now" });
    expect(await field.inputValue()).toBe(made);
    await user.click("Done");
    await field.waitFor({ state: "detached" });
    expect(await page.locator(".link-code").count()).toBe(0);
    await user.follow("Tokens");
    const row = page.getByRole("row", { name: new RegExp(name) });
    await row.getByText("Read plants").waitFor();

    await user.click(`Revoke ${name}`, { dialog: `Revoke “${name}”?` });
    const release = await user.hold("**/tokens/*");
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    // The answer comes late, and leaves the next dialog open.
    await user.press("Escape");
    await user.click("New token");
    release();
    await page.locator("tr", { hasText: name }).waitFor({ state: "detached" });
    await user.see({ dialog: "New token" });
    await user.press("Escape");
    // The token of the environment manages tokens too, so even one's own can go.
    await user.click("Revoke admin", { text: "You are signed in with it now." });
    await user.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });

  test("that were just made stay, although an earlier list comes late", async (visit) => {
    const { page, user } = await visit.open();
    const release = await user.holdAnswer(/\/tokens\?/, "GET", 1);
    const asked = page.waitForRequest(/\/tokens\?/);
    await user.follow("Tokens");
    const earlier = await asked;
    await user.click("New token");
    await page.getByLabel("Name").fill("newest");
    await user.click("Create token");
    const row = page.getByRole("row", { name: /newest/ });
    await row.waitFor();
    release();
    await (await earlier.response())?.finished();
    await page.evaluate("new Promise(requestAnimationFrame)");
    expect(await row.count()).toBe(1);
  });

  test("show the way to what each may do, and to nothing else", async (visit) => {
    const readOnly = { name: "reader", scopes: ["plants:read"] as const };
    const { user: reader } = await visit.open({ as: readOnly, at: "#/tokens" });
    await reader.see({ heading: "Not allowed with this token" });
    for (const name of ["Tokens", "Health"])
      expect(await reader.page.getByRole("navigation").getByText(name).count()).toBe(0);
    await reader.click("Signed in as reader");
    await reader.follow("Health of the store", { heading: "Health" });

    const managing = { name: "manager", scopes: ["tokens:manage"] as const };
    const { user: manager } = await visit.open({ as: managing });
    await manager.follow("Go to Tokens", { heading: /^Tokens$/ });
    await manager.click("Signed in as manager");
    await manager.page.locator(".facts", { hasText: "Manage tokens" }).waitFor();
  });
});

describeInBrowser("in the console,", () => {
  it("webhooks in the console are added, tested, changed and deleted", async (visit) => {
    using receiver = startReceiver();
    const { page, user, service } = await visit.open({ at: "#/webhooks" });
    const choose = (label: string, seen: Seen = {}): Promise<void> =>
      user.click(["Actions for shop", label], seen);
    await user.click("New webhook");
    await page.getByLabel("URL").fill("ftp://shop");
    await user.click("Add webhook", { text: "It begins with https:// or http://." });
    await page.getByLabel("URL").fill(receiver.url);
    await page.getByLabel("Name (optional)").fill("shop");
    await page.getByLabel("Deleted plants").uncheck();
    await user.click("Add webhook");
    const secret = await page.getByLabel("The secret of the webhook").inputValue();
    await user.click("Done", { text: "added, changed" });

    receiver.answers.push(new Response("no", { status: 503 }));
    await choose("Send a test", { toast: "The receiver answered 503" });
    verify(receiver.received[0] as Received, secret);
    await page.getByRole("img", { name: "0 of the last 1 attempt delivered." }).waitFor();
    await page.locator("summary", { hasText: "503" }).click();
    await page.locator("details", { hasText: /test: 503 after .* ms no/ }).waitFor();
    // A new secret signs at once, and the old one for a day.
    await choose("New secret", { dialog: "New secret for “shop”?" });
    await user.click("Make a new secret");
    const renewed = await page.getByLabel("The new secret of the webhook").inputValue();
    expect(renewed).not.toBe(secret);
    await user.click("Done");
    await choose("Send a test", { toast: "The receiver answered 204" });
    for (const each of [secret, renewed]) verify(receiver.received[1] as Received, each);
    await choose("Pause");
    await user.see({ firstText: /^Paused/ });
    await user.within(user.toast("Paused")).click("Undo");
    await user.see({ toast: "Resumed “shop”.", text: "Active" });
    await choose("Send changes again");
    await page.getByLabel("After change number").fill("x");
    await user.click("Send again", { text: "Enter the number of a change, or nothing." });
    await page.getByLabel("After change number").fill("");
    await user.click("Send again", { toast: "resumes from there" });
    await service.create('{"id":77,"name":"Fern"}');
    const [shop] = (await service.store.listWebhooks()) as [Webhook];
    await service.store.putWebhook({ ...shop, failures: 2, version: crypto.randomUUID() }, shop);
    await user.reload({ text: "2 failed attempts" });
    await choose("Skip the failed change", { toast: "Skipped change", text: "Active" });
    await user.click("Actions for shop");
    await user.press("Escape");
    await choose("Delete", { dialog: "Delete “shop”?" });
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await user.see({ text: "No webhooks yet" });
  });

  it("health shows values and recent requests", async (visit) => {
    const name = (id: string) => ({ headers: { "x-request-id": id } });
    await send(visit.service, "POST", "/plants", {
      ...name("made"),
      body: '{"id":1,"name":"Rose"}',
    });
    await send(visit.service, "GET", "/plants/404", name("lost"));
    const { page, user } = await visit.open({ at: "#/health" });
    await user.see({ text: "5 minutes ago, 6.2 MB, 2 failed" });
    await user.see({ text: "48 copies; restored and compared 4 minutes ago" });
    await user.see({ text: "The folder /mnt/backups does not exist." });
    const failed = page.getByRole("row", { name: /lost/ });
    const facts = ["GET /plants/404", "404 plant not found", "PLANTSTORE_TOKEN"];
    await user.within(failed).see({ text: facts });

    // The filters: status, part of the path, token.
    const created = page.getByRole("row", { name: /made/ });
    await user.within(created).see({ text: ["200", "POST /plants", "PLANTSTORE_TOKEN", / ms$/] });
    await page.getByLabel("Status").selectOption({ label: "Failed" });
    await created.waitFor({ state: "detached" });
    await failed.waitFor();
    await page.getByLabel("Status").selectOption({ label: "Any status" });
    await created.waitFor();
    await user.field("Path").fill("/404");
    await user.press("Enter");
    await created.waitFor({ state: "detached" });
    await failed.waitFor();
    await user.field("Token").fill("nobody");
    await user.press("Enter", { text: "None of the recent requests matches." });
    await user.field("Token").fill("PLANTSTORE_TOKEN");
    await user.press("Enter");
    await failed.waitFor();

    // A pointer, a finger and the keys pick a moment in all charts.
    const requests = page.getByRole("slider", { name: "Requests: moment" });
    const units = page.locator("figcaption > .faint");
    const [chart] = await page.locator(".chart svg").all();
    await chart?.hover({ position: { x: 3, y: 50 } });
    await page.locator(".chart-picked").nth(5).waitFor();
    expect(await units.first().textContent()).toMatch(/^\d\d:\d\d$/);
    await page.mouse.move(0, 0);
    await units.first().filter({ hasText: "per second" }).waitFor();
    await requests.focus();
    await user.press("ArrowLeft");
    expect(await requests.inputValue()).toBe("59");
    const picked = await requests.getAttribute("aria-valuetext");
    expect(picked).toMatch(/^\d\d:\d\d: 2xx .*, 4xx .*, 5xx /);
    await user.press("End");
    expect(await requests.inputValue()).toBe("60");
  });
});
