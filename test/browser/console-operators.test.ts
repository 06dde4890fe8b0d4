/** What operators do in the console: tokens, webhooks, and health. */

import { expect } from "bun:test";
import type { Page, Route } from "playwright-core";
import type { Scope } from "../../src/domain/token.ts";
import type { Webhook } from "../../src/domain/webhook.ts";
import { createToken, describeInBrowser, startJourneys } from "../support/browser.ts";
import { limits } from "../support/limits.ts";
import { type Received, startReceiver, verify } from "../support/receiver.ts";
import { send } from "../support/service.ts";
import { hold, press, untilSo } from "../support/steps.ts";

const backups = {
  everyMs: 900_000,
  made: 1,
  failed: 2,
  /** As long ago however late it is asked for. */
  get last() {
    return { atMs: Date.now() - 300_000, bytes: 6_170_000 };
  },
  get loggedAtMs() {
    return Date.now() - 120_000;
  },
};
const { it, test } = await startJourneys(
  { PLANTSTORE_WEBHOOKS_PRIVATE: "true", ...limits({ sampleSeconds: 0.2 }) },
  undefined,
  { backups },
);

describeInBrowser("tokens in the console", () => {
  it("are made, shown once and revoked", async (visit) => {
    const token = await createToken(visit.service, { name: "admin" });
    const { page, service, announceFailure } = await visit.open({
      token,
      at: "#/tokens",
    });
    const name = "Anna Müller";
    await page.getByRole("button", { name: "New token" }).click();
    await page.getByRole("dialog", { name: "New token" }).waitFor();
    announceFailure("/tokens", 400);
    await page.getByLabel("Name").fill("PLANTSTORE_TOKEN");
    const refuse = await hold(page, "**/tokens", "POST");
    await page.getByRole("button", { name: "Create token" }).click();
    // The button is disabled meanwhile, and cannot have the focus.
    await untilSo(page, "!document.activeElement.matches('button')");
    refuse();
    await page.getByText("name: expected 1 to 64 characters").waitFor();
    await untilSo(page, "document.activeElement.closest('dialog') !== null");
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("Change plants").uncheck();
    await page.getByLabel("Expires").selectOption({ label: "In 90 days" });
    await page.getByRole("button", { name: "Create token" }).click();
    const field = page.getByLabel("The new token");
    const made = await field.inputValue();
    await page.getByRole("button", { name: "Copy" }).click();
    await page.locator(".toast", { hasText: "Copied" }).waitFor();
    expect(await page.evaluate<string>("navigator.clipboard.readText()")).toBe(made);
    const sent = { headers: { authorization: `Bearer ${made}` } };
    expect(await (await send(service, "GET", "/token", sent)).json()).toMatchObject({
      name,
      scopes: ["plants:read"],
    });
    // It is shown once, so it cannot be lost by a key, a click beside it, or Back.
    await press(page, "Escape", "Escape");
    await page.mouse.click(2, 2);
    await page.evaluate("location.hash = '#/plants'");
    await page.getByRole("dialog", { name: "Copy this now" }).waitFor();
    expect(await field.inputValue()).toBe(made);
    await page.getByRole("button", { name: "Done" }).click();
    await field.waitFor({ state: "detached" });
    await page.getByRole("link", { name: "Tokens" }).click();
    const row = page.getByRole("row", { name: new RegExp(name) });
    await row.getByText("Read plants").waitFor();

    await page.getByRole("button", { name: `Revoke ${name}` }).click();
    await page.getByRole("dialog", { name: `Revoke “${name}”?` }).waitFor();
    const release = await hold(page, "**/tokens/*");
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    // The answer comes late, and leaves the next dialog open.
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "New token" }).click();
    release();
    await page.locator("tr", { hasText: name }).waitFor({ state: "detached" });
    await page.getByRole("dialog", { name: "New token" }).waitFor();
    await page.keyboard.press("Escape");
    // The token of the environment manages tokens too, so even one's own can go.
    await page.getByRole("button", { name: "Revoke admin" }).click();
    await page.getByText("You are signed in with it now.").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });

  test("that were just made stay, although an earlier list comes late", async (visit) => {
    const { page } = await visit.open();
    const gate = Promise.withResolvers<void>();
    const late = async (route: Route): Promise<void> => {
      const response = await route.fetch();
      await gate.promise;
      await route.fulfill({ response });
    };
    await page.route(/\/tokens\?/, late, { times: 1 });
    const asked = page.waitForRequest(/\/tokens\?/);
    await page.getByRole("link", { name: "Tokens" }).click();
    const earlier = await asked;
    await page.getByRole("button", { name: "New token" }).click();
    await page.getByLabel("Name").fill("newest");
    await page.getByRole("button", { name: "Create token" }).click();
    const row = page.getByRole("row", { name: /newest/ });
    await row.waitFor();
    gate.resolve();
    await (await earlier.response())?.finished();
    await page.evaluate("new Promise(requestAnimationFrame)");
    expect(await row.count()).toBe(1);
  });

  test("and health are for those who may manage tokens; for others there is a way to what they may do", async (visit) => {
    const openAs = async (name: string, scope: Scope, at = ""): Promise<Page> => {
      const token = await createToken(visit.service, { name, scopes: [scope] });
      return (await visit.open({ token, at })).page;
    };
    const reader = await openAs("reader", "plants:read", "#/tokens");
    await reader.getByRole("heading", { name: "Not allowed with this token" }).waitFor();
    for (const name of ["Tokens", "Health"])
      expect(await reader.getByRole("navigation").getByText(name).count()).toBe(0);
    await reader.getByRole("button", { name: "Signed in as reader" }).click();
    await reader.getByRole("link", { name: "Health of the store" }).click();
    await reader.getByRole("heading", { name: "Health" }).waitFor();

    const manager = await openAs("manager", "tokens:manage");
    await manager.getByRole("link", { name: "Go to Tokens" }).click();
    await manager.getByRole("heading", { name: "Tokens", exact: true }).waitFor();
    await manager.getByRole("button", { name: "Signed in as manager" }).click();
    await manager.locator(".facts", { hasText: "Manage tokens" }).waitFor();
  });
});

describeInBrowser("in the console,", () => {
  it("webhooks in the console are added, tested, changed and deleted", async (visit) => {
    using receiver = startReceiver();
    const { page, service, announceFailure } = await visit.open({ at: "#/webhooks" });
    const choose = async (label: string): Promise<void> => {
      await page.getByRole("button", { name: "Actions for shop" }).click();
      await page.getByRole("button", { name: label }).click();
    };
    await page.getByRole("button", { name: "New webhook" }).click();
    await page.getByLabel("URL").fill("ftp://shop");
    announceFailure("/webhooks", 400);
    await page.getByRole("button", { name: "Add webhook" }).click();
    await page.getByText("That didn't work").waitFor();
    await page.getByLabel("URL").fill(receiver.url);
    await page.getByLabel("Name (optional)").fill("shop");
    await page.getByLabel("Deleted plants").uncheck();
    await page.getByRole("button", { name: "Add webhook" }).click();
    const secret = await page.getByLabel("The secret of the webhook").inputValue();
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByText("added, changed").waitFor();

    receiver.answers.push(new Response("no", { status: 503 }));
    await choose("Send a test");
    await page.locator(".toast", { hasText: "The receiver answered 503" }).waitFor();
    verify(receiver.received[0] as Received, secret);
    await page.locator("summary", { hasText: "503" }).click();
    await page.locator("details", { hasText: /test: 503 after .* ms no/ }).waitFor();
    await choose("Pause");
    await page
      .getByText(/^Paused/)
      .first()
      .waitFor();
    await choose("Resume");
    await page.getByText("Active").waitFor();
    await choose("Send changes again");
    announceFailure("/replay", 400);
    await page.getByLabel("After change number").fill("x");
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("That didn't work").waitFor();
    await page.getByLabel("After change number").fill("");
    await page.getByRole("button", { name: "Send again" }).click();
    await page.locator(".toast", { hasText: "resumes from there" }).waitFor();
    await service.create('{"id":77,"name":"Fern"}');
    const [shop] = (await service.store.listWebhooks()) as [Webhook];
    await service.store.putWebhook({ ...shop, failures: 2, version: crypto.randomUUID() }, shop);
    await page.reload();
    await page.getByText("2 failed attempts").waitFor();
    await choose("Skip the failed change");
    await page.locator(".toast", { hasText: "Skipped change" }).waitFor();
    await page.getByText("Active").waitFor();
    await page.getByRole("button", { name: "Actions for shop" }).click();
    await page.keyboard.press("Escape");
    await choose("Delete");
    await page.getByRole("dialog", { name: "Delete “shop”?" }).waitFor();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("No webhooks yet").waitFor();
  });

  it("health shows values and failures", async (visit) => {
    await visit.service.create('{"id":1,"name":"Rose"}');
    const headers = { "x-request-id": "lost" };
    await send(visit.service, "GET", "/plants/404", { headers });
    const { page } = await visit.open({ at: "#/health" });
    await page.getByText("5 minutes ago, 6.2 MB, 2 failed").waitFor();
    const failed = page.getByRole("row", { name: /lost/ });
    await failed.getByText("GET /plants/404").waitFor();
    await failed.getByText("404 plant not found").waitFor();
    await failed.getByText("PLANTSTORE_TOKEN").waitFor();

    // A pointer, a finger and the keys pick a moment in all charts.
    const requests = page.getByRole("slider", { name: "Requests: moment" });
    const units = page.locator("figcaption > .faint");
    await page
      .locator(".chart svg")
      .first()
      .hover({ position: { x: 3, y: 50 } });
    await page.locator(".chart-picked").nth(5).waitFor();
    expect(await units.first().textContent()).toMatch(/^\d\d:\d\d$/);
    await page.mouse.move(0, 0);
    await units.first().filter({ hasText: "per second" }).waitFor();
    await requests.focus();
    await page.keyboard.press("ArrowLeft");
    expect(await requests.inputValue()).toBe("59");
    expect(await requests.getAttribute("aria-valuetext")).toMatch(
      /^\d\d:\d\d: 2xx .*, 4xx .*, 5xx /,
    );
    await page.keyboard.press("End");
    expect(await requests.inputValue()).toBe("60");
  });
});
