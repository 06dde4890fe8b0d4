/** The managers' overview: charts of the journal and the tags, and problems with backups and webhooks. */

import { expect } from "bun:test";
import { describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { makeWebhook } from "../support/receiver.ts";
import { grantToken, send, sendPlant, TEST_TOKEN } from "../support/service.ts";

const { it, test } = await startJourneys(
  { PLANTSTORE_WEBHOOKS_PRIVATE: "true" },
  async (service) => {
    const tags = ["herb", "tree", "herb", undefined];
    await storePlants(service, 40, (at) => ({
      id: at + 1,
      name: `Plant ${at}`,
      tag: tags[at % 4],
    }));
    const anna = await grantToken(service, undefined, { name: "Anna Müller" });
    await sendPlant(service.url, { id: 100n, name: "Hers", tag: "fern" }, anna);
  },
);
const forgetful = await startJourneys({ PLANTSTORE_CHANGES_DAYS: "0" });

describeInBrowser("in the console,", () => {
  it("managers land on the overview, which shows who changed what", async (visit) => {
    const { page, user } = await visit.open({ at: "", token: null });
    await user.signIn(TEST_TOKEN, { heading: "Overview" });
    expect(new URL(page.url()).hash).toBe("#/overview");
    const picture = page.getByRole("figure");
    await picture.getByText("PLANTSTORE_TOKEN 40").waitFor();
    await picture.getByText("Anna Müller 1").waitFor();
    await page.getByRole("img", { name: /^41 changes, last 24 hours/ }).waitFor();
    // The same figures for those who cannot see it.
    await picture.getByText("As a table").click();
    for (const head of ["Added", "Changed", "Deleted", "Anna Müller"])
      await picture.getByRole("columnheader", { name: head }).waitFor();
    // Each person has a fill of their own, which has a pattern besides the colour.
    const fills = await page
      .locator(".stack-bar")
      .evaluateAll((bars) => bars.map((bar) => bar.getAttribute("fill")));
    expect(new Set(fills).size).toBeGreaterThan(1);
  });

  it("a change that others make is in the picture at once", async (visit) => {
    const { page, service } = await visit.open({ at: "#/overview" });
    const image = page.getByRole("img", { name: /changes, last 24 hours/ });
    await image.waitFor();
    const counted = Number.parseInt((await image.getAttribute("aria-label")) ?? "", 10);
    await sendPlant(service.url, { id: 200n + BigInt(counted), name: "New", tag: "fern" });
    await page.getByRole("img", { name: `${counted + 1} changes, last 24 hours` }).waitFor();
  });

  test("what needs care is unknown while the connection is lost, and shown again after it", async (visit) => {
    const { page, user, allowFailure } = await visit.open({ at: "#/overview" });
    const care = page.getByRole("list", { name: "State of the store" });
    await care.waitFor();
    for (const polled of ["/activity", "/webhooks", "/livez", "/changes"])
      allowFailure(polled, "failed");
    await page.route(/\/(activity|webhooks|livez)/, (route) => route.abort());
    await user.see({ text: "The state of the store is unknown" });
    expect(await care.count()).toBe(0);
    await page.unrouteAll();
    await care.waitFor();
  });

  it("plants by tag are bars that lead to the list", async (visit) => {
    const { page, user } = await visit.open({ at: "#/overview" });
    await page.getByRole("link", { name: /in all/ }).waitFor();
    await page.getByRole("link", { name: /^herb/ }).click();
    await user.see({ row: "Plant 0" });
    expect(new URL(page.url()).hash).toBe("#/plants?tag=herb");
  });

  it("plants without a tag are a link to the list of them", async (visit) => {
    const { page, user } = await visit.open({ at: "#/overview" });
    await page.getByRole("link", { name: "10 without a tag" }).click();
    await user.see({ row: "Plant 23" });
    expect(new URL(page.url()).hash).toBe("#/plants?tagged=false");
    await page.getByText("10 of 4").waitFor();
    await page.getByPlaceholder("without a tag").waitFor();
  });

  it("names that occur more than once are links to their plants", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/overview" });
    for (const id of [301n, 302n, 303n])
      await sendPlant(service.url, { id, name: "Twin", tag: "fern" });
    for (const id of [304n, 305n])
      await sendPlant(service.url, { id, name: "Pair & more", tag: "fern" });
    await user.click("Find repeated names");
    await page.getByText("2 names occur more than once.").waitFor();
    await page
      .getByRole("listitem")
      .filter({ hasText: /^Twin3$/ })
      .waitFor();
    await page.getByRole("link", { name: "Pair & more" }).click();
    await user.see({ row: "305" });
    expect(await page.getByRole("row", { name: /Plant/ }).count()).toBe(0);
  });

  it("dragging over the picture, or its sliders, picks the time whose changes are undone", async (visit) => {
    const { page, user } = await visit.open({ at: "#/overview" });
    const brush = page.locator(".brush");
    await brush.scrollIntoViewIfNeeded();
    const { x, y, width, height } = (await brush.boundingBox()) as Record<
      "x" | "y" | "width" | "height",
      number
    >;
    await page.mouse.move(x + width / 2, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + width - 2, y + height / 2);
    await page.mouse.up();
    const see = page.getByRole("link", { name: /^See or undo 4\d changes/ });
    await see.waitFor();
    // The keyboard does the same.
    const from = page.getByRole("slider", { name: "From this bar of the chart" });
    await from.focus();
    await user.press("Home");
    await see.waitFor();
    // In another span all bars are in reach again.
    await page.getByLabel("Time shown").selectOption("Last 7 days");
    const to = page.getByRole("slider", { name: "To this bar of the chart" });
    expect(await to.inputValue()).toBe("28");
    await from.focus();
    await user.press("ArrowRight");
    await see.click();
    await page.getByLabel("From").and(page.locator("input[type=datetime-local]")).waitFor();
    await user.click(/^Undo these 4\d/, { dialog: "Undo these changes?" });
    await page
      .getByRole("dialog")
      .getByText(/plants will be as before/)
      .waitFor();
    await user.press("Escape");
  });

  it("webhooks that fail are named, with the next step", async (visit) => {
    const { store } = visit.service;
    const failing = { failures: 2, paused: undefined, nextAttemptAtMs: Date.now() + 3_600_000 };
    const webhooks = [
      makeWebhook("shop", { paused: "it answered 410", cursor: 1 }),
      makeWebhook("till", failing),
    ];
    for (const webhook of webhooks) expect(await store.putWebhook(webhook, undefined)).toBe(true);
    const { page, user } = await visit.open({ at: "#/overview" });
    await page.getByText("This service makes no backups.").waitFor();
    await page.getByText("The webhook “shop” is paused: it answered 410.").waitFor();
    await page.getByText(/The webhook “till” failed 2 times/).waitFor();
    await page.getByRole("link", { name: "Open the webhooks" }).first().click();
    await user.see({ heading: /^Webhooks$/ });
    for (const webhook of webhooks)
      await send(visit.service, "DELETE", `/webhooks/${webhook.name}`);
  });

  test("staff without a scope to manage begin with the list, and see what happened today", async (visit) => {
    const token = await visit.createToken({
      scopes: ["plants:read", "plants:write"],
      name: "Till",
    });
    const { page, user } = await visit.open({ at: "", token: null });
    await user.signIn(token, { row: "Plant 0" });
    await user.follow("Today", { heading: "Changes today" });
    const row = page.getByRole("row").filter({ hasText: "Till" });
    expect(await row.count()).toBe(0);
    await sendPlant(visit.service.url, { id: 90_001n, name: "Till's own", tag: null }, token);
    await row.getByRole("link", { name: "1" }).waitFor();
    // The state of backups is for those who manage.
    expect(await page.locator(".care").count()).toBe(0);
    await row.getByRole("link", { name: "1" }).click();
    await user.see({ cell: /^Added 90001/ });
  });

  forgetful.test("a store without a history has an overview of its plants", async (visit) => {
    const { page, user, announceFailure } = await visit.open({ at: "#/overview", token: null });
    announceFailure("/changes/counts", 410);
    announceFailure("/changes", 410);
    await user.signIn(TEST_TOKEN, { heading: "Overview" });
    await page.getByText("This store keeps no history.").waitFor();
    await user.see({ heading: "No plants yet", link: "Import a file" });
  });
});
