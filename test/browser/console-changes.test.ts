/** Changes that others make: the list and the open plant follow them, and what was lost is brought back. */

import { expect, test } from "bun:test";
import {
  change,
  createToken,
  describeInBrowser,
  holdFeed,
  looks,
  openConsole,
  rowOf,
  setHidden,
  signIn,
  startConsole,
  startJourneys,
  storePlants,
  toastOf,
} from "../support/browser.ts";
import { send, sendPlant, TEST_TOKEN, type TestService } from "../support/service.ts";
import { edit } from "../support/steps.ts";
import { until } from "../support/until.ts";

const annas = new WeakMap<TestService, string>();

/** What someone else's token does. */
async function asAnna(service: TestService, method: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${annas.get(service)}` };
  const sent = body === undefined ? { headers } : { headers, body: JSON.stringify(body) };
  expect((await send(service, method, path, sent)).ok).toBe(true);
}

const { it } = await startJourneys({}, async (service) => {
  annas.set(service, await createToken(service, { name: "Anna Müller" }));
  await storePlants(service, 80, (at) => ({ id: 101 + at, name: `Plant ${101 + at}`, tag: "a" }));
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
    if (!visit.isPhone)
      for (const name of ["Renamed", "Plant 103"])
        await rowOf(page, name)
          .locator(".row-changed", { hasText: /^\d\d?:\d\d/ })
          .waitFor();
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

  it("a plant that is open shows what others make of it, and is restored from its history", async (visit) => {
    const id = 110;
    const { page, service } = await visit.open({ at: `#/plants/${id}` });
    await page.locator(".shown-name", { hasText: `Plant ${id}` }).waitFor();
    await change(service, id, { name: "Second version", tag: "b" });
    await page.locator(".shown-name", { hasText: "Second version" }).waitFor();
    const entries = page.locator(".entry");
    await entries.filter({ hasText: /Changed by \w+ · \d+ \w+ \d{4}.*Second version/ }).waitFor();
    const first = entries.filter({ hasText: "Added by" });
    await first.getByRole("button", { name: "Restore" }).click();
    await toastOf(page, `Restored “Plant ${id}”`).waitFor();
    expect(await service.findPlant(110n)).toMatchObject({ name: `Plant ${id}`, tag: "a" });
    // What is current needs no button.
    await entries.nth(2).waitFor();
    expect(await page.getByRole("button", { name: "Restore" }).count()).toBe(1);
  });

  it("a conflict names the other person and shows both versions", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/130" });
    await edit(page, "Mine");
    await asAnna(service, "PUT", "/plants/130", { name: "Hers", tag: "hers" });
    const notice = page.getByRole("alert");
    await notice.getByText("Anna Müller changed this plant.").waitFor();
    const [now, mine] = ["Now", "Yours"].map((term) =>
      notice.locator(".facts > div", { hasText: term }).getByRole("definition"),
    );
    expect(await now?.innerText()).toBe("Hers hers");
    expect(await mine?.innerText()).toBe("Mine a");
    await notice.getByRole("button", { name: "Overwrite with mine" }).click();
    await toastOf(page, "Changed “Mine”").waitFor();
    expect(await service.findPlant(130n)).toMatchObject({ name: "Mine" });

    // A conflict that the answer tells of, because the page does not follow.
    await edit(page, "Mine again");
    await holdFeed(page);
    const save = page.getByRole("button", { name: "Save" });
    // By then the page has read the plant again.
    await save.waitFor();
    announceFailure("/plants/130", 412);
    await asAnna(service, "PUT", "/plants/130", { name: "Hers again" });
    await save.click();
    await notice.getByText("Anna Müller changed this plant.").waitFor();
    await notice.getByRole("button", { name: "Discard my edit" }).click();
    await page.locator(".shown-name", { hasText: "Hers again" }).waitFor();
  });

  it("an edit of a plant that someone else deleted outlasts Esc, and can be added again", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/131" });
    announceFailure("/plants/131", 404);
    await edit(page, "Mine");
    await asAnna(service, "DELETE", "/plants/131");
    await page.getByText("Anna Müller deleted this plant.").waitFor();
    const name = page.getByLabel("Name", { exact: true });
    await name.press("Escape");
    await page.goto(`${service.url}/#/plants/131`);
    expect(await name.inputValue()).toBe("Mine");
    await page.getByRole("button", { name: "Add it again" }).click();
    await page.locator(".shown-name", { hasText: "Mine" }).waitFor();
    expect(await service.findPlant(131n)).toMatchObject({ name: "Mine", tag: "a" });
  });

  it("Changes shows who did what, newest first, and folds an import to one line that can be undone", async (visit) => {
    const { service } = visit;
    const path = "/plants/batch?batch=spring.csv+2026-11-17T10:12:00.000Z";
    await storePlants(service, 1500, (at) => ({ id: 5000 + at, name: `New ${at}` }), path);
    await asAnna(service, "PUT", "/plants/140", { name: "Renamed by her", tag: "a" });
    const { page } = await visit.open();
    await page.getByRole("link", { name: "Changes" }).click();
    const rowWith = (text: string) => page.getByRole("row").filter({ hasText: text });
    await rowWith("Renamed by her").getByText("Plant 140").waitFor();
    await rowWith("Renamed by her").getByText("Anna Müller").waitFor();
    const batch = rowWith("spring.csv");
    await batch.getByText("1,500 added").waitFor();
    expect(await batch.count()).toBe(1);
    // What others do appears at once.
    await asAnna(service, "DELETE", "/plants/141");
    await rowWith("Plant 141").getByText("Deleted", { exact: true }).waitFor();

    await batch.getByRole("button", { name: "Undo spring.csv" }).click();
    const dialog = page.getByRole("dialog", { name: "Undo “spring.csv”?" });
    await dialog.getByText("1,500 plants will be as before.").waitFor();
    await dialog.getByRole("button", { name: "Undo 1,500 plants" }).click();
    await toastOf(page, "Undone: 1,500 plants.").waitFor();
    expect(await service.findPlant(5000n)).toBeUndefined();
    await rowWith("Undo: spring.csv").getByText("1,500 deleted").waitFor();
    await rowWith("1,500 added").getByText("Undone").waitFor();
    // The undo can be undone, after a reload too.
    await page.reload();
    await rowWith("1,500 added").getByText("Undone").waitFor();
    await page.getByRole("button", { name: "Undo Undo: spring.csv" }).click();
    await page.getByRole("button", { name: "Undo 1,500 plants" }).click();
    await rowWith("Undo: Undo: spring.csv").waitFor();
    expect(await service.findPlant(5000n)).toMatchObject({ name: "New 0" });
  });

  it("Changes of one person, one plant, one kind and one batch are found", async (visit) => {
    const { service } = visit;
    await asAnna(service, "PUT", "/plants/142", { name: "Filtered", tag: "a" });
    await asAnna(service, "DELETE", "/plants/143?batch=Clean-up");
    await sendPlant(service.url, { id: 143n, name: "Back", tag: null });
    const { page } = await visit.open({ at: "#/changes" });
    const rows = page.locator("tbody tr");
    const untilShown = async (...texts: readonly string[]): Promise<void> => {
      for (const [at, text] of texts.entries())
        await rows.nth(at).filter({ hasText: text }).waitFor();
      await rows.nth(texts.length).waitFor({ state: "detached" });
    };
    await page.getByLabel("Plant id").fill("143");
    await page.getByLabel("Plant id").press("Enter");
    await untilShown("Back", "Clean-up", "Plant 143");
    await page.getByLabel("Person").fill("Anna Müller");
    await page.getByLabel("Person").press("Enter");
    await untilShown("Clean-up");
    // It was changed since, and the dialog says so.
    await page.getByRole("button", { name: "Undo Clean-up" }).click();
    await page.getByText("Nothing to undo: 1 changed since").waitFor();
    await page.keyboard.press("Escape");
    await rows.getByRole("link", { name: "Clean-up" }).click();
    await untilShown("Deleted 143");
    await page.getByRole("link", { name: "All changes" }).click();
    await page.getByLabel("Kind").selectOption("Added");
    await rows.first().filter({ hasText: "Back" }).waitFor();
    await page.goBack();
    await rows.filter({ hasText: "Filtered" }).waitFor();
  });

  test("Changes reads far back, page by page", async () => {
    await using own = await startConsole();
    await storePlants(own, 250, (at) => ({ id: at + 1, name: `Plant ${at + 1}` }));
    await using view = await openConsole(own, { at: "#/changes" });
    const { page } = view;
    const rows = page.locator("tbody tr");
    const more = page.getByRole("button", { name: "Show more" });
    await rows.first().waitFor();
    expect(await rows.count()).toBeLessThanOrEqual(100);
    // If the service is slow, a page ends early.
    await until("all changes are shown", async () => {
      if (await more.isVisible()) await more.click();
      return page.getByText("No older changes are kept.").isVisible();
    });
    expect(await rows.count()).toBe(250);
  });

  it("a plant that was deleted can be restored from Changes and from its own page", async (visit) => {
    const [id, other] = [510, 150];
    await sendPlant(visit.service.url, { id: BigInt(id), name: `Lost ${id}`, tag: "b" });
    await change(visit.service, id);
    await using view = await visit.open({ at: "#/changes?type=removed" });
    const { page, service } = view;
    await page.getByRole("button", { name: `Undo Deleted “Lost ${id}”` }).click();
    await page.getByRole("cell", { name: `Lost ${id} · b` }).waitFor();
    await page.getByRole("button", { name: "Undo 1 plant" }).click();
    await toastOf(page, "Undone: 1 plant.").waitFor();
    expect(await service.findPlant(BigInt(id))).toMatchObject({ tag: "b" });

    await change(service, other);
    view.announceFailure(`/plants/${other}`, 404);
    await page.goto(`${service.url}/#/plants/${other}`);
    await page.getByText("There is no plant with this id").waitFor();
    await page.getByRole("button", { name: "Restore" }).first().click();
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
      await signIn(page, TEST_TOKEN);
      await rowOf(page, "Rose").waitFor();
      await page.getByText("This store keeps no history.").waitFor();
      await page.locator(".row-changed").first().waitFor({ state: "detached" });
      await page.goto(`${own.url}/#/changes`);
      await page.getByRole("alert").getByText("This store keeps no history.").waitFor();
      // Without a history there is no undo, so one plant is reason enough to ask.
      await page.goto(`${own.url}/#/plants`);
      await page.getByRole("checkbox", { name: "Select “Rose”" }).click();
      await page.getByRole("button", { name: "Delete" }).click();
      await page.getByRole("dialog").getByText("This can't be undone").waitFor();
      await page.getByRole("button", { name: "Delete 1 plant" }).click();
      await toastOf(page, "Deleted 1 plant.").waitFor();
      expect(await page.getByRole("button", { name: "Undo" }).count()).toBe(0);
    },
  );
});
