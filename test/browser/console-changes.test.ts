/** Changes that others make: the list and the open plant follow them, and what was lost is brought back. */

import { expect, test } from "bun:test";
import {
  change,
  describeInBrowser,
  looks,
  openConsole,
  rowOf,
  setHidden,
  startConsole,
  startJourneys,
  toastOf,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const { it, test: once } = await startJourneys({}, async ({ url }) => {
  for (let id = 101n; id <= 180n; id++) await sendPlant(url, { id, name: `Plant ${id}`, tag: "a" });
});

describeInBrowser("in the console,", () => {
  it("the list shows what others add, change and delete, and what one reads stays in its place", async (visit) => {
    const rowHeight = visit.isPhone ? 64 : 36;
    const { page, service, announceFailure } = await visit.open();
    await rowOf(page, "Plant 101").waitFor();
    await sendPlant(service.url, { id: 1n, name: "New at the top", tag: null });
    await rowOf(page, "New at the top").waitFor();
    await change(service, 102, { name: "Renamed" });
    await rowOf(page, "Renamed").waitFor();
    await change(service, 102);
    await rowOf(page, "Renamed").waitFor({ state: "detached" });

    const scroller = page.locator(".scroller");
    await scroller.evaluate((element, top) => element.scrollTo(0, top), 20 * rowHeight);
    const inSight = rowOf(page, "Plant 125");
    await inSight.waitFor();
    const { y } = (await inSight.boundingBox()) ?? {};
    await sendPlant(service.url, { id: 2n, name: "Second", tag: null });
    await page.locator(`#plants .grid-body[style*='height: ${81 * rowHeight}px']`).waitFor();
    expect((await inSight.boundingBox())?.y).toBe(y as number);
    await scroller.evaluate((element) => element.scrollTo(0, 0));
    await rowOf(page, "Plant 103").waitFor();

    // A hidden tab does not follow, and catches up when it is seen.
    const [ended] = await Promise.all([
      page.waitForEvent("requestfailed", (request) => request.url().includes("/changes?after=")),
      setHidden(page, true),
    ]);
    expect(ended.failure()?.errorText).toBe("net::ERR_ABORTED");
    await sendPlant(service.url, { id: 3n, name: "Meanwhile", tag: null });
    await setHidden(page, false);
    await rowOf(page, "Meanwhile").waitFor();

    // The list is read again if changes are missing.
    announceFailure("/changes", 410);
    await setHidden(page, true);
    await change(service, 103, { name: "Unheard of" });
    await page.route("**/changes?after=*", (route) => route.fulfill({ status: 410 }), {
      times: 1,
    });
    await setHidden(page, false);
    await rowOf(page, "Unheard of").waitFor();
  });

  it("a plant that is open shows what others make of it, and its history; an edit stays as it is, and says so", async (visit) => {
    const id = 110;
    const { page, service } = await visit.open({ at: `#/plants/${id}` });
    await page.locator(".shown-name", { hasText: `Plant ${id}` }).waitFor();
    await change(service, id, { name: "Theirs" });
    await page.locator(".shown-name", { hasText: "Theirs" }).waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    const name = page.getByLabel("Name", { exact: true });
    await name.fill("Mine");
    await change(service, id, { name: "Theirs again" });
    await page.getByText("Someone else changed this plant. Your edit isn't saved yet.").waitFor();
    expect(await name.inputValue()).toBe("Mine");
    await page.getByRole("button", { name: "Overwrite with mine" }).click();
    await toastOf(page, "Changed “Mine”").waitFor();
    expect(await service.findPlant(BigInt(id))).toMatchObject({ name: "Mine" });

    // An earlier version is brought back from its history.
    await change(service, id + 1, { name: "Second version", tag: "b" });
    await page.goto(`${service.url}/#/plants/${id + 1}`);
    const entries = page.locator(".entry");
    await entries.filter({ hasText: /Changed by \w+ · \d+ \w+ \d{4}.*Second version/ }).waitFor();
    const first = entries.filter({ hasText: "Added by" });
    await first.getByRole("button", { name: "Bring back" }).click();
    await toastOf(page, `Changed “Plant ${id + 1}”`).waitFor();
    expect(await service.findPlant(BigInt(id + 1))).toMatchObject({
      name: `Plant ${id + 1}`,
      tag: "a",
    });
    // What is current needs no button.
    await entries.nth(2).waitFor();
    expect(await page.getByRole("button", { name: "Bring back" }).count()).toBe(1);
  });

  once("an edit of a plant that someone else deleted is not thrown away by Esc", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/120" });
    announceFailure("/plants/120", 404);
    await page.getByRole("button", { name: "Edit" }).click();
    const name = page.getByLabel("Name", { exact: true });
    await name.fill("Mine");
    await change(service, 120);
    await page.getByText("Someone else deleted this plant.").waitFor();
    await name.press("Escape");
    await page.goto(`${service.url}/#/plants/120`);
    await name.waitFor();
    expect(await name.inputValue()).toBe("Mine");
  });

  it("a plant that was deleted can be restored from Recently deleted and from its own page", async (visit) => {
    const [id, other] = [510, 150];
    await sendPlant(visit.service.url, { id: BigInt(id), name: `Lost ${id}`, tag: "b" });
    await change(visit.service, id);
    await using view = await visit.open();
    const { page, service } = view;
    await page.getByRole("link", { name: "Recently deleted" }).click();
    const entry = page.locator(".entry", { hasText: `Lost ${id}` });
    await entry.waitFor();
    await entry.getByRole("button", { name: "Bring back" }).click();
    await toastOf(page, `Restored “Lost ${id}”`).waitFor();
    await entry.getByRole("button").waitFor({ state: "detached" });
    expect(await service.findPlant(BigInt(id))).toMatchObject({ tag: "b" });

    await change(service, other);
    view.announceFailure(`/plants/${other}`, 404);
    await page.goto(`${service.url}/#/plants/${other}`);
    await page.getByText("There is no plant with this id").waitFor();
    await page.getByRole("button", { name: "Bring back" }).first().click();
    await page.locator(".shown-name", { hasText: `Plant ${other}` }).waitFor();
    expect(await service.findPlant(BigInt(other))).toMatchObject({ name: `Plant ${other}` });
  });

  test.each(looks)(
    "a service that keeps no changes still shows the list, and has no history: %s",
    async (_name, look) => {
      await using own = await startConsole({ PLANTSTORE_CHANGES_DAYS: "0" });
      await sendPlant(own.url, { id: 1n, name: "Rose", tag: null });
      await using view = await openConsole(own, { at: "#/plants/1", token: null, ...look });
      const { page } = view;
      view.announceFailure("/changes", 410);
      await page.getByLabel("Token").fill(TEST_TOKEN);
      await page.getByRole("button", { name: "Sign in" }).click();
      await rowOf(page, "Rose").waitFor();
      await page.getByText("This store keeps no history.").waitFor();
    },
  );
});
