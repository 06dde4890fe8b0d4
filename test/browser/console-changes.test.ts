/** Changes that others make: the list and the open plant follow them, and what was lost is brought back. */

import { expect } from "bun:test";
import type { Route } from "playwright-core";
import { change, describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { grantToken, send, sendPlant, TEST_TOKEN, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";

const annas = new WeakMap<TestService, string>();

/** What someone else's token does. */
async function asAnna(service: TestService, method: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${annas.get(service)}` };
  const sent = body === undefined ? { headers } : { headers, body: JSON.stringify(body) };
  expect((await send(service, method, path, sent)).ok).toBe(true);
}

const { it } = await startJourneys({}, async (service) => {
  annas.set(service, await grantToken(service, undefined, { name: "Anna Müller" }));
  await storePlants(service, 80, (at) => ({ id: 101 + at, name: `Plant ${101 + at}`, tag: "a" }));
});
const untouched = await startJourneys({}, async (service) => {
  await storePlants(service, 250, (at) => ({ id: at + 1, name: `Plant ${at + 1}` }));
  const path = "/plants/batch?upsert=true";
  await storePlants(service, 250, (at) => ({ id: at + 1, name: `Plant No ${at + 1}` }), path);
});
const forgetful = await startJourneys({ PLANTSTORE_CHANGES_DAYS: "0" }, ({ url }) =>
  sendPlant(url, { id: 1n, name: "Rose", tag: null }),
);

describeInBrowser("in the console,", () => {
  it("the list shows what others add, change and delete, and what one reads stays in its place", async (visit) => {
    const rowHeight = visit.isPhone ? 64 : 36;
    const { page, user, service, announceFailure } = await visit.open();
    await sendPlant(service.url, { id: 1n, name: "New at the top", tag: null });
    await user.see({ row: "New at the top" });
    await change(service, 102, { name: "Renamed" });
    await user.see({ row: "Renamed" });
    const time = page.locator(".row-changed", { hasText: /^\d\d?:\d\d/ });
    if (!visit.isPhone)
      for (const name of ["Renamed", "Plant 103"]) await user.row(name).locator(time).waitFor();
    await change(service, 102);
    await user.row("Renamed").waitFor({ state: "detached" });

    const scroller = page.locator(".scroller");
    await scroller.evaluate((element, top) => element.scrollTo(0, top), 20 * rowHeight);
    const inSight = user.row("Plant 125");
    await inSight.waitFor();
    const { y } = (await inSight.boundingBox()) ?? {};
    await sendPlant(service.url, { id: 2n, name: "Second", tag: null });
    await page.locator(`#plants .grid-body[style*='height: ${81 * rowHeight}px']`).waitFor();
    expect((await inSight.boundingBox())?.y).toBe(y as number);
    await scroller.evaluate((element) => element.scrollTo(0, 0));
    await user.see({ row: "Plant 103" });

    // A hidden tab does not follow, and catches up when it is seen.
    const [ended] = await Promise.all([
      page.waitForEvent("requestfailed", (request) => request.url().includes("/changes?after=")),
      user.setHidden(true),
    ]);
    expect(ended.failure()?.errorText).toBe("net::ERR_ABORTED");
    await sendPlant(service.url, { id: 3n, name: "Meanwhile", tag: null });
    await user.setHidden(false, { row: "Meanwhile" });

    // The list is read again if changes are missing.
    announceFailure("/changes", 410);
    await user.setHidden(true);
    await change(service, 103, { name: "Unheard of" });
    const refuse = (route: Route): Promise<void> => route.fulfill({ status: 410 });
    await page.route("**/changes?after=*", refuse, { times: 1 });
    await user.setHidden(false, { row: "Unheard of", toast: "Changes were missed" });
  });

  it("a plant that is open shows what others make of it, and is restored from its history", async (visit) => {
    const id = 110;
    const { page, user, service } = await visit.open({ at: `#/plants/${id}` });
    await user.see({ shown: `Plant ${id}` });
    await change(service, id, { name: "Second version", tag: "b" });
    await user.see({ shown: "Second version" });
    const entries = page.locator(".entry");
    await entries.filter({ hasText: /Changed by \w+ · \d+ \w+ \d{4}.*Second version/ }).waitFor();
    const first = entries.filter({ hasText: "Added by" });
    await user.within(first).click("Restore", { toast: `Restored “Plant ${id}”` });
    expect(await service.findPlant(110n)).toMatchObject({ name: `Plant ${id}`, tag: "a" });
    // What is current needs no button.
    await entries.nth(2).waitFor();
    expect(await page.getByRole("button", { name: "Restore" }).count()).toBe(1);
  });

  it("a conflict names the other person and shows both versions", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants/130" });
    await user.edit("Mine");
    await asAnna(service, "PUT", "/plants/130", { name: "Hers", tag: "hers" });
    const notice = page.getByRole("alert");
    await notice.getByText("Anna Müller changed this plant.").waitFor();
    const [now, mine] = ["Now", "Yours"].map((term) =>
      notice.locator(".facts > div", { hasText: term }).getByRole("definition"),
    );
    expect(await now?.innerText()).toBe("Hers hers");
    expect(await mine?.innerText()).toBe("Mine a");
    await user.within(notice).click("Overwrite with mine", { toast: "Changed “Mine”" });
    expect(await service.findPlant(130n)).toMatchObject({ name: "Mine" });

    // A conflict that the answer tells of, because the page does not follow.
    await user.edit("Mine again");
    await user.holdFeed();
    // By then the page has read the plant again.
    await user.see({ button: "Save" });
    announceFailure("/plants/130", 412);
    await asAnna(service, "PUT", "/plants/130", { name: "Hers again" });
    await user.click("Save");
    await notice.getByText("Anna Müller changed this plant.").waitFor();
    await user.within(notice).click("Discard my edit", { shown: "Hers again" });
  });

  it("an edit of a plant that someone else deleted outlasts Esc, and can be added again", async (visit) => {
    const { user, service, announceFailure } = await visit.open({ at: "#/plants/131" });
    announceFailure("/plants/131", 404);
    await user.edit("Mine");
    await asAnna(service, "DELETE", "/plants/131");
    await user.see({ text: "Anna Müller deleted this plant." });
    await user.field("Name").press("Escape");
    await user.goTo("#/plants/131");
    expect(await user.field("Name").inputValue()).toBe("Mine");
    await user.click("Add it again", { shown: "Mine" });
    expect(await service.findPlant(131n)).toMatchObject({ name: "Mine", tag: "a" });
  });

  it("Changes shows who did what, newest first, and folds an import to one line that can be undone", async (visit) => {
    const { service } = visit;
    const path = "/plants/batch?batch=spring.csv+2026-11-17T10:12:00.000Z";
    await storePlants(service, 1500, (at) => ({ id: 5000 + at, name: `New ${at}` }), path);
    await asAnna(service, "PUT", "/plants/140", { name: "Renamed by her", tag: "a" });
    const { page, user } = await visit.open();
    await user.follow("Changes");
    const rowWith = (text: string) => page.getByRole("row").filter({ hasText: text });
    await user.within(rowWith("Renamed by her")).see({ text: ["Plant 140", "Anna Müller"] });
    const batch = rowWith("spring.csv");
    await batch.getByText("1,500 added").waitFor();
    expect(await batch.count()).toBe(1);
    // What others do appears at once.
    await asAnna(service, "DELETE", "/plants/141");
    await rowWith("Plant 141").getByText("Deleted", { exact: true }).waitFor();

    await batch.getByRole("button", { name: "Undo spring.csv" }).click();
    const dialog = page.getByRole("dialog", { name: "Undo “spring.csv”?" });
    await dialog.getByText("1,500 plants will be as before.").waitFor();
    await user.within(dialog).click("Undo 1,500 plants", { toast: "Undone: 1,500 plants." });
    expect(await service.findPlant(5000n)).toBeUndefined();
    await rowWith("Undo: spring.csv").getByText("1,500 deleted").waitFor();
    await rowWith("1,500 added").getByText("Undone").waitFor();
    // The undo can be undone, after a reload too.
    await page.reload();
    await rowWith("1,500 added").getByText("Undone").waitFor();
    await user.click(["Undo Undo: spring.csv", "Undo 1,500 plants"]);
    await rowWith("Undo: Undo: spring.csv").waitFor();
    expect(await service.findPlant(5000n)).toMatchObject({ name: "New 0" });
  });

  it("Changes of one person, one plant, one kind and one batch are found", async (visit) => {
    const { service } = visit;
    await asAnna(service, "PUT", "/plants/142", { name: "Filtered", tag: "a" });
    await asAnna(service, "DELETE", "/plants/143?batch=Clean-up");
    await sendPlant(service.url, { id: 143n, name: "Back", tag: null });
    const { page, user } = await visit.open({ at: "#/changes" });
    const rows = page.locator("tbody tr");
    const untilShown = async (...texts: readonly string[]): Promise<void> => {
      for (const [at, text] of texts.entries())
        await rows.nth(at).filter({ hasText: text }).waitFor();
      await rows.nth(texts.length).waitFor({ state: "detached" });
    };
    // Changes that arrive meanwhile leave what is being typed.
    await page.getByLabel("Plant id").fill("143");
    const newcomer = await visit.createToken({ name: "Newcomer" });
    await sendPlant(service.url, { id: 144_000n, name: "New", tag: null }, newcomer);
    await rows.filter({ hasText: "Newcomer" }).waitFor();
    await user.press("Enter");
    await untilShown("Back", "Clean-up", "Plant 143");
    await page.getByLabel("Person").fill("Anna Müller");
    await user.press("Enter");
    await untilShown("Clean-up");
    // It was changed since, and the dialog says so.
    await user.click("Undo Clean-up", { text: "Nothing to undo: 1 changed since" });
    // Its name is there.
    await user.within(page.getByRole("dialog")).see({ cell: ["143", "Back", "skipped"] });
    await user.press("Escape");
    await rows.getByRole("link", { name: "Clean-up" }).click();
    await untilShown("Deleted 143");
    await user.follow("All changes");
    await page.getByLabel("Kind").selectOption("Added");
    await rows.nth(1).filter({ hasText: "Back" }).waitFor();
    await page.goBack();
    await rows.filter({ hasText: "Filtered" }).waitFor();
  });

  untouched.test("Changes reads far back, page by page", async (visit) => {
    const { page, user } = await visit.open({ at: "#/changes" });
    const rows = page.locator("tbody tr");
    const more = page.getByRole("button", { name: "Show more" });
    await rows.first().waitFor();
    expect(await rows.count()).toBeLessThanOrEqual(100);
    // If the service is slow, a page ends early.
    await until("all changes are shown", async () => {
      if (await more.isVisible()) await more.click();
      return page.getByText("No older changes are kept.").isVisible();
    });
    // The creates before are one line.
    expect(await rows.count()).toBe(251);
    await rows.last().locator("strong", { hasText: "Added 250 plants" }).waitFor();
    // Only the words that differ are marked, without colour too.
    await rows.first().locator("ins").getByText("No", { exact: true }).waitFor();
    await user.click("Undo Added 250 plants", { text: "Nothing to undo: 250 changed since" });
    await user.press("Escape");
  });

  it("what a filter shows is undone: a person in any case, a kind, and a time", async (visit) => {
    const { service } = visit;
    const since = new Date().toISOString();
    for (const id of [160, 161]) await asAnna(service, "DELETE", `/plants/${id}`);
    await asAnna(service, "PUT", "/plants/162", { name: "Stays", tag: "a" });
    await change(service, 163);
    const { page, user } = await visit.open({ at: `#/changes?from=${since}` });
    const rows = page.locator("tbody tr");
    await rows.nth(3).waitFor();
    await page.getByLabel("Person").fill("anna müller");
    await user.press("Enter");
    await page.getByLabel("Kind").selectOption("Deleted");
    await user.see({ button: "Undo these 2" });
    expect(await page.getByLabel("Person").inputValue()).toBe("Anna Müller");
    await rows.nth(2).waitFor({ state: "detached" });
    await user.click("Undo these 2", { text: "2 plants will be as before." });
    await user.click("Undo 2 plants", { toast: "Undone: 2 plants." });
    expect(await service.findPlant(160n)).toMatchObject({ name: "Plant 160" });
    expect(await service.findPlant(162n)).toMatchObject({ name: "Stays" });
    expect(await service.findPlant(163n)).toBeUndefined();
    const deleted = rows.filter({ hasText: "Plant 160" });
    await deleted.waitFor();
    expect(await deleted.getByRole("button").count()).toBe(0);
    // What was undone is not offered again, after a reload either.
    await user.see({ text: "Nothing of this is left to undo." });
    await user.reload({ text: "Nothing of this is left to undo." });
    expect(await page.getByRole("button", { name: /^Undo these/ }).count()).toBe(0);
  });

  it("what somebody else undoes is said, with the way to it", async (visit) => {
    const { service } = visit;
    await asAnna(service, "PUT", "/plants/165?batch=Sale", { name: "Cheap", tag: "a" });
    const { user } = await visit.open({ at: "#/plants/165" });
    await user.see({ shown: "Cheap" });
    await asAnna(service, "POST", "/changes/revert?batch=Undo: Sale", { batch: "Sale" });
    await user.see({ toast: "Anna Müller undid “Sale”.", shown: "Plant 165" });
    await user.within(user.toast("Anna Müller")).click("See");
    await user.see({ heading: "Changes", text: "Only “Undo: Sale”" });
  });

  it("a change that was undone is not offered again", async (visit) => {
    const { service } = visit;
    await change(service, 164, { name: "Once", tag: "a" });
    const { page, user } = await visit.open({ at: "#/changes?type=replaced" });
    const row = page.getByRole("row").filter({ hasText: "164" }).first();
    await user.within(row).click("Undo");
    await user.click("Undo 1 plant", { toast: "Undone: 1 plant." });
    await row.getByText("Undone", { exact: true }).waitFor();
    expect(await row.getByRole("button").count()).toBe(0);
    expect(await service.findPlant(164n)).toMatchObject({ name: "Plant 164" });
  });

  it("the times of a filter are picked by calendar, and in the chart", async (visit) => {
    const { page, user } = await visit.open({ at: "#/changes" });
    const rows = page.locator("tbody tr");
    await rows.first().waitFor();
    const last = page.locator("input[type=datetime-local]").last();
    await last.fill("2026-01-01T10:05");
    await last.blur();
    await user.see({ text: "No match" });
    expect(page.url()).toContain("to=2026-01-01T");
    await user.follow("All changes");
    // By keys alone, in any locale.
    const first = page.locator("input[type=datetime-local]").first();
    await first.focus();
    await user.press("0 2 0 2 2 0 2 5 ArrowRight 0 9 0 9 a");
    await user.untilSo(
      `decodeURIComponent(location.hash).includes("from=2025-02-02T09:09:00.000Z")`,
    );
    expect(await first.inputValue()).toBe("2025-02-02T09:09");
    // Each is one stop.
    await first.focus();
    await page.keyboard.press("Tab");
    await user.see({ element: ".moment:last-child > input:focus" });
    await page.keyboard.press("Tab");
    await user.see({ element: "a.button:focus" });
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Shift+Tab");
    await user.see({ element: ".moment:first-child > input:focus" });
    await page.keyboard.press("Shift+Tab");
    await user.see({ element: ".filters > select:focus" });
    await user.follow("All changes");
    await page.getByText("Pick a time in the chart").click();
    const brush = page.locator(".brush");
    await brush.waitFor();
    const box = (await brush.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
    await page.mouse.move(box.x + box.width - 2, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.mouse.up();
    await user.see({ button: /^Undo these \d/ });
    expect(page.url()).toMatch(/from=.*&to=|to=.*&from=/);
  });

  it("a plant that was deleted can be restored from Changes and from its own page", async (visit) => {
    const [id, other] = [510, 150];
    await sendPlant(visit.service.url, { id: BigInt(id), name: `Lost ${id}`, tag: "b" });
    await change(visit.service, id);
    const at = "#/changes?type=removed";
    const { page, user, service, announceFailure } = await visit.open({ at });
    await user.click(`Undo Deleted “Lost ${id}”`, { cell: `Lost ${id} · b` });
    await user.click("Undo 1 plant", { toast: "Undone: 1 plant." });
    expect(await service.findPlant(BigInt(id))).toMatchObject({ tag: "b" });

    await change(service, other);
    announceFailure(`/plants/${other}`, 404);
    await user.goTo(`#/plants/${other}`, { text: "There is no plant with this id" });
    await page.getByRole("button", { name: "Restore" }).first().click();
    await user.see({ shown: `Plant ${other}` });
    expect(await service.findPlant(BigInt(other))).toMatchObject({ name: `Plant ${other}` });
  });

  forgetful.it(
    "a service that keeps no changes still shows the list, and has no history",
    async (visit) => {
      const { page, user, announceFailure } = await visit.open({ at: "#/plants/1", token: null });
      announceFailure("/changes", 410);
      await user.signIn(TEST_TOKEN, { row: "Rose", text: "This store keeps no history." });
      await user.goTo("#/changes");
      await page.getByRole("alert").getByText("This store keeps no history.").waitFor();
      // Without a history there is no undo, so one plant is reason enough to ask.
      await user.goTo("#/plants");
      await page.getByRole("checkbox", { name: "Select “Rose”" }).click();
      await user.click("Delete");
      await page.getByRole("dialog").getByText("This can't be undone").waitFor();
      await user.click("Delete 1 plant", { toast: "Deleted 1 plant." });
      expect(await page.getByRole("button", { name: "Undo" }).count()).toBe(0);
    },
  );
});
