/** Several plants at once: selected, tagged, deleted and exported, with undo, and nothing of others overwritten. */

import { expect } from "bun:test";
import { change, describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { limits } from "../support/limits.ts";
import { sendPlant, type TestService } from "../support/service.ts";
import type { Seen, User } from "../support/steps.ts";
import { until } from "../support/until.ts";

const COUNT = 2_041;
/** The undo of more plants has no preview. */
const settings = limits({ revertPlantsMax: 2_000 });
const { it, test } = await startJourneys(settings, (service) =>
  storePlants(service, COUNT, (index) => ({
    id: index + 1,
    name: `Plant ${index + 1}`,
    tag: index < 40 ? "few" : "many",
  })),
);

const check = (user: User, id: number, modifiers: "Shift"[] = []): Promise<void> =>
  user.page.getByRole("checkbox", { name: `Select “Plant ${id}”` }).click({ modifiers });

/** From the first to the last. */
async function checkRange(user: User, first: number, last: number, seen: Seen = {}): Promise<void> {
  await check(user, first);
  await check(user, last, ["Shift"]);
  await user.see(seen);
}

async function setTag(user: User, tag: string, seen: Seen): Promise<void> {
  await user.page.getByLabel("Tag for the selected plants").fill(tag);
  await user.click("Set tag", seen);
}

async function exportSelected(user: User): Promise<string> {
  await user.click("Export the selection");
  return (await user.saveFile(user.page.getByRole("button", { name: /as NDJSON/ }))).text;
}

const tagsOf = (service: TestService, ...ids: readonly number[]): Promise<unknown[]> =>
  Promise.all(ids.map(async (id) => (await service.findPlant(BigInt(id)))?.tag));

/** Answers the question, and closes the page while the service is at its first block. */
async function closeInTheMiddle(user: User, service: TestService, name: string): Promise<void> {
  const { page } = user;
  const { store } = service;
  const writePlants = store.writePlants.bind(store);
  const begun = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  store.writePlants = async (...given) => {
    begun.resolve();
    await closed.promise;
    return writePlants(...given);
  };
  await user.within(page.getByRole("dialog", { name: `${name}?` })).click(name);
  await user.see({ exactText: "It continues if you close the page." });
  await begun.promise;
  await page.goto("about:blank");
  store.writePlants = writePlants;
  closed.resolve();
}

describeInBrowser("the list by keyboard alone", () => {
  test("selects all by Ctrl+A, and deletes what is selected, not the plant that is open", async (visit) => {
    const { page, user } = await visit.open();
    await page.getByRole("grid").focus();
    await user.press("ControlOrMeta+a", { text: /^All [\d,]+ selected$/ });
    await user.press("Delete", { dialog: /^Delete [\d,]+ plants\?$/ });
    await user.press("Escape Escape");
    await user.press("Home Enter", { button: "Edit" });
    await page.getByRole("grid").focus();
    await user.press("ArrowDown Space ArrowUp", { text: "1 selected" });
    await user.press("Delete", { toast: "Deleted 1 plant." });
    await user.see({ button: "Edit" });
    await user.click("Undo");
    await user.click("Undo 1 plant", { toast: "Undone: 1 plant." });
  });
});

describeInBrowser("a list of many plants", () => {
  test("is sorted as a whole, and its selection is exported", async (visit) => {
    const { user } = await visit.open({ at: "#/plants?tag=many&sort=name&order=desc" });
    await user.see({ exactText: "2,001 of 2,041 plants", firstRow: "Plant 999" });
    await user.selectAll();
    const lines = (await exportSelected(user)).trim().split("\n");
    expect(lines).toHaveLength(2_001);
    // In the order of the list.
    const names = lines.map((line) => (JSON.parse(line) as { readonly name: string }).name);
    expect(names).toEqual(names.toSorted().toReversed());
  });
});

describeInBrowser("plants with or without a tag", () => {
  it("are named in an empty list", async (visit) => {
    const { user } = await visit.open({ at: "#/plants?tagged=false" });
    await user.see({ text: "Every plant has a tag." });
    await user.search("plant", { text: "No plant has “plant” in the name or tag and no tag." });
  });

  it("are named in the question about all of them", async (visit) => {
    const { user } = await visit.open({ at: "#/plants?tagged=true" });
    await user.see({ firstRow: "Plant 1" });
    await user.selectAll();
    await user.click("Delete", { text: "These are all plants that have a tag." });
    await user.press("Escape");
  });
});

describeInBrowser("several plants", () => {
  it("are tagged, deleted and brought back, but for those that someone else changed", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?tag=few" });
    await checkRange(user, 2, 5, { text: "4 selected" });
    await setTag(user, "moved", { toast: "Changed 4 plants." });
    expect(await tagsOf(service, 1, 2, 5, 6)).toEqual(["few", "moved", "moved", "few"]);
    await user.within(user.toast("Changed")).click("Undo");
    const dialog = page.getByRole("dialog", { name: "Undo “Tag 4 plants as moved”?" });
    await user.within(dialog).click("Undo 4 plants", { toast: "Undone: 4 plants." });
    expect(await tagsOf(service, 2)).toEqual(["few"]);
    await user.see({ firstRow: "Plant 2" });

    await check(user, 3);
    await user.click("Delete", { toast: "Deleted 1 plant." });
    expect(await service.findPlant(BigInt(3))).toBeUndefined();
    await user.press("u");
    await user.click("Undo 1 plant", { toast: "Undone: 1 plant.", firstRow: "Plant 3" });

    await user.holdFeed();
    await checkRange(user, 10, 12);
    await change(service, 11, { name: "Theirs", tag: "few" });
    await setTag(user, "mine", {
      toast: "2 plants. 1 skipped. “Plant 11”: Someone else changed it.",
    });
    expect(await tagsOf(service, 10, 11, 12)).toEqual(["mine", "few", "mine"]);
    // It stays selected as it is now, so a second try is a decision.
    await user.see({ text: "1 selected" });
    await setTag(user, "mine", { toast: "Changed 1 plant." });
    expect(await service.findPlant(11n)).toMatchObject({ name: "Theirs", tag: "mine" });
  });

  it("are all that match but some, exported", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants?q=plant+many" });
    // The whole cell is the target.
    const [head] = await page.getByRole("columnheader").all();
    await head?.click({ position: { x: 4, y: 4 } });
    await check(user, 41);
    await user.see({ text: "All 2,001 but 1 selected" });
    const exported = (await exportSelected(user)).trim().split("\n");
    expect(exported.length).toBe(2_000);
    expect(exported[0]).toContain("Plant 42");
  });

  test("of any number are changed by the service, though the page is closed, and brought back", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants?tag=many" });
    // More than are previewed.
    announceFailure("/changes/revert", 409);
    await user.selectAll();
    await user.see({ text: "All 2,001 selected" });
    await setTag(user, "moved", {});
    const inDialog = user.within(page.getByRole("dialog", { name: "Tag 2,001 plants as moved?" }));
    const sent = page.waitForRequest(/\/plants\?tag=many&batch=/);
    await inDialog.click("Tag 2,001 plants as moved");
    await sent;
    await page.goto("about:blank");
    const count = async (tag: string) => (await service.store.countPlants({ tag })).count;
    await until("all are changed", async () => (await count("moved")) === 2_001);
    // The next page of the tab continues what was begun, and offers its undo.
    await page.goto(`${service.url}/#/plants?tag=moved`);
    await user.within(user.toast("Changed 2,001 plants.")).click("Undo");
    await user.click("Undo all", { toast: "Undone: 2,001 plants." });
    expect(await tagsOf(service, 41, COUNT)).toEqual(["many", "many"]);
  });

  test("are changed after the page is closed, until another page, which shows the progress, stops it", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?tag=many" });
    const { store } = service;
    const writePlants = store.writePlants.bind(store);
    const gate = Promise.withResolvers<void>();
    let blocks = 0;
    store.writePlants = async (...given) => {
      if (++blocks > 1) await gate.promise;
      return writePlants(...given);
    };
    const read = async () =>
      (await store.listJobs()).find(({ name }) => name.startsWith("Remove the tag"));
    const untilState = (state: string): Promise<void> =>
      until(state, async () => (await read())?.state === state);
    await user.selectAll();
    await user.click("Remove tag");
    const dialog = page.getByRole("dialog", { name: "Remove the tag of 2,001 plants?" });
    await user.within(dialog).click("Remove the tag of 2,001 plants");
    await user.see({ progressbar: "Changing" });
    await user.see({ exactText: "It continues if you close the page." });
    await untilState("running");
    await page.goto("about:blank");
    const next = await visit.open({ at: "#/changes" });
    await next.user.see({ text: "Changing… 1,000" });
    await next.user.click("Stop");
    await untilState("stopping");
    // The block that was held back is not stored.
    gate.resolve();
    await next.user.see({ toast: "Stopped. Changed 1,000 plants." });
    store.writePlants = writePlants;
    expect((await read())?.report).toMatchObject({ replaced: 1_000, complete: false });
    // The tab that started it says so, and offers the rest.
    await page.goto(`${service.url}/#/plants`);
    await user.see({ toast: "Not finished. Changed 1,000 plants so far. The job was stopped" });
    await next.user.within(next.user.toast("Stopped.")).click("Undo");
    await next.user.click("Undo 1,000 plants", { toast: "Undone: 1,000 plants." });
    expect((await store.countPlants({ tag: "many" })).count).toBe(2_001);
  });

  test("are continued on request after the service lost them", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants?tag=many" });
    // More than are previewed.
    announceFailure("/changes/revert", 409);
    const { store } = service;
    await user.selectAll();
    await setTag(user, "moved", {});
    const dialog = page.getByRole("dialog", { name: "Tag 2,001 plants as moved?" });
    await dialog.waitFor();
    const readPlants = store.readPlants.bind(store);
    store.readPlants = async (query, form) => {
      if (query.charactersMax === undefined) return readPlants(query, form);
      throw new Refusal("internal");
    };
    await user.within(dialog).click("Tag 2,001 plants as moved");
    await user.see({ toast: "Not finished." });
    store.readPlants = readPlants;
    await user
      .within(user.toast("Not finished."))
      .click("Continue", { toast: "Changed 2,001 plants." });
    await user.within(user.toast("Changed")).click("Undo");
    await user.click("Undo all", { toast: "Undone: 2,001 plants." });
  });

  test("are all of the store but some, though the page is closed in the middle", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants" });
    // More than are previewed.
    announceFailure("/changes/revert", 409);
    await user.see({ exactText: "2,041 plants" });
    await user.selectAll();
    await check(user, 1);
    await setTag(user, "all", {});
    await closeInTheMiddle(user, service, "Tag 2,040 plants as all");
    const count = async () => (await service.store.countPlants({ tag: "all" })).count;
    await until("all but one are changed", async () => (await count()) === 2_040);
    expect(await tagsOf(service, 1, 2, COUNT)).toEqual(["few", "all", "all"]);
    await page.goto(`${service.url}/#/plants`);
    await user.within(user.toast("Changed 2,040 plants.")).click("Undo");
    await user.click("Undo all", { toast: "Undone: 2,040 plants." });
    expect(await tagsOf(service, 2, COUNT)).toEqual(["few", "many"]);
  });

  test("are more than a page that were picked, though the page is closed in the middle", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants" });
    await check(user, 1);
    await page.getByRole("grid").hover();
    const last = page.getByRole("checkbox", { name: "Select “Plant 150”" });
    await until("the plant is loaded", async () => {
      await page.mouse.wheel(0, 400);
      return last.isVisible();
    });
    await last.click({ modifiers: ["Shift"] });
    await user.see({ text: "150 selected" });
    await user.click("Delete");
    await closeInTheMiddle(user, service, "Delete 150 plants");
    const count = async () => (await service.store.countPlants()).count;
    await until("all are gone", async () => (await count()) === COUNT - 150);
    await page.goto(`${service.url}/#/plants`);
    await user.within(user.toast("Deleted 150 plants.")).click("Undo");
    await user.click("Undo 150 plants", { toast: "Undone: 150 plants." });
    expect(await tagsOf(service, 1, 150)).toEqual(["few", "many"]);
  });

  it("are asked about with their number and filter, if they are more than a page", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?tag=many&q=plant+5" });
    await user.selectAll();
    await check(user, 50);
    await user.see({ text: /^All [\d,]+ but 1 selected$/ });
    // An empty field is no tag to set.
    expect(await page.getByRole("button", { name: "Set tag" }).isDisabled()).toBe(true);
    await page.getByLabel("Tag for the selected plants").press("Enter");
    await user.click("Remove tag");
    const dialog = page.getByRole("dialog", { name: /^Remove the tag of [\d,]{3,} plants\?$/ });
    const what = "These are all plants that have the tag “many” and match “plant 5”, except 1.";
    await user.within(dialog).see({ text: what });
    await user.within(dialog).click("Cancel");
    expect(await tagsOf(service, 51)).toEqual(["many"]);
    await user.click("Delete", { dialog: /^Delete [\d,]{3,} plants\?$/ });
    await user.press("Escape", { text: /^All [\d,]+ but 1 selected$/ });
    expect(await service.findPlant(51n)).toBeDefined();
  });

  it("continue after a reload on any page, and are undone after another", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?q=plant+70" });
    await checkRange(user, 700, 706, { text: "7 selected" });
    await user.hold("**/plants/batch*");
    await setTag(user, "reloaded", { text: "Changing… 0 of 7" });
    await user.follow("Changes");
    page.once("dialog", (dialog) => void dialog.accept());
    await page.reload();
    // The request of the first page was lost, or is answered now. Either way each plant is changed once.
    await page.context().unrouteAll();
    await user.see({ toast: "Changed 7 plants." });
    expect(await tagsOf(service, 700, 706)).toEqual(["reloaded", "reloaded"]);
    await page.reload();
    await user.click(["Undo Tag 7 plants as reloaded", "Undo 7 plants"]);
    await user.see({ toast: "Undone: 7 plants." });
    expect(await tagsOf(service, 700, 706)).toEqual(["many", "many"]);
  });

  it("can be stopped, and what was not reached stays selected", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants?tag=few" });
    // The request was not sent yet.
    announceFailure("/jobs", 404);
    await user.hold(/plants\?tag=few&batch=/, "DELETE");
    await user.selectAll();
    await user.click(["Delete", /^Delete \d+ plants$/], { progressbar: "Deleting" });
    await user.click("Stop", { toast: "Stopped. Deleted 0 plants." });
    await user.see({ text: /^All \d+ selected$/ });
    await page.context().unrouteAll();
    expect(await tagsOf(service, 20)).toEqual(["few"]);
  });

  test("are selected by keys, and a checkbox that has the focus is the one meant", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants?tag=many" });
    await page.getByRole("grid").focus();
    await user.press("Control+a", { text: "All 2,001 selected" });
    // One key leads from the list to the actions.
    await user.press("Tab");
    await user.untilSo("document.activeElement.closest('.selection') !== null");
    await user.press("Escape");
    await check(user, 45);
    await user.see({ exactText: "1 selected" });
    await user.press("Space");
    await page.getByText("selected").waitFor({ state: "detached" });
    // A checkbox takes no letters.
    await user.press("/", { element: "#search:focus" });
  });

  test("stay selected as one changes the list, and their undo outlasts other messages", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?tag=many" });
    await check(user, 45);
    await sendPlant(service.url, { id: -1n, name: "At the top", tag: "many" });
    await user.see({ row: "At the top" });
    await check(user, 48, ["Shift"]);
    await user.see({ text: "4 selected" });
    await user.openRow("Plant 46");
    await user.edit("Mine");
    await user.press("Enter", { toast: "Changed “Mine”" });
    await user.openRow("Plant 47");
    await page.locator(".panel").getByRole("button", { name: "Delete" }).click();
    await user.see({ text: "3 selected" });
    // What others do is no surprise later: the list shows it.
    await change(service, 45);
    await user.see({ text: "2 selected" });
    await change(service, 48, { name: "Theirs", tag: "many" });
    await user.see({ row: "Theirs" });
    expect(await exportSelected(user)).toMatch(/^.*"Mine".*\n.*"Theirs".*\n$/);
    await user.within(page.locator(".selection")).click("Delete");
    await user.click("Delete 2 plants", { toast: "Deleted 2 plants." });
    for (const id of [60, 61, 62]) {
      await user.openRow(`Plant ${id}`);
      await page.locator(".panel").getByRole("button", { name: "Delete" }).click();
      await user.row(`Plant ${id}`).waitFor({ state: "detached" });
    }
    await user.toast("Deleted 2 plants.").getByRole("button", { name: "Undo" }).waitFor();
  });
});

describeInBrowser("a job on several plants", () => {
  test("leaves a list that was opened meanwhile as it is", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?q=plant+190" });
    await user.holdFeed();
    const release = await user.hold("**/plants/batch*");
    await checkRange(user, 1901, 1909, { text: "9 selected" });
    await change(service, 1901, { name: "Plant 1901", tag: "theirs" });
    await setTag(user, "moved", { progressbar: "Changing" });
    await user.search("plant 1901");
    await user.row("Plant 1909").waitFor({ state: "detached" });
    await user.see({ row: "Plant 1901" });
    release();
    await user.see({ toast: "Changed 8 plants. 1 skipped." });
    expect(await page.getByText("1 selected").count()).toBe(0);
  });
});

describeInBrowser("the first page of a long list", () => {
  test("has what is added again at its end, and gives way to the next", async (visit) => {
    const { service } = visit;
    const { page, user } = await visit.open({ at: "#/plants?order=desc&tag=many" });
    const untilLong = (rows: number): Promise<void> =>
      page.locator(`.grid-body[style*='height: ${rows * 36}px']`).waitFor();
    const last = COUNT - 99;
    await untilLong(100);
    await change(service, last);
    await untilLong(99);
    await sendPlant(service.url, { id: BigInt(last), name: "Again", tag: "many" });
    await untilLong(100);

    await user.setHidden(true);
    await Promise.all(Array.from({ length: 100 }, (_, index) => change(service, last + index)));
    await user.setHidden(false, { row: `Plant ${last - 1}` });
  });
});
