/** Finding plants with a scanner and by keys: codes, tags, orders, and counts that are right. */

import { expect } from "bun:test";
import { change, describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { limits } from "../support/limits.ts";
import { sendPlant } from "../support/service.ts";
import type { User } from "../support/steps.ts";

const CODE = "4006381333931";
const OTHER_CODE = "4006381333948";
/** As in scanner.ts. */
const SLOW_MS = 300;
const UNKNOWN_CODE = "4006381333955";

const { it, test } = await startJourneys(limits({ scanRowsMax: 500 }), async (service) => {
  await storePlants(service, 1500, (index) => ({
    id: index + 1,
    name: `Plant ${1500 - index}`,
    tag: ["orchid", "Fern", "fernwood"][index % 3],
  }));
  await sendPlant(service.url, { id: BigInt(CODE), name: "Scanned once", tag: null });
  await sendPlant(service.url, { id: BigInt(OTHER_CODE), name: "Scanned twice", tag: "orchid" });
});

async function scanBoth(user: User): Promise<void> {
  await user.scan(CODE, { shown: "Scanned once" });
  await user.scan(OTHER_CODE, { shown: "Scanned twice" });
}

const lookupOf = (code: string): RegExp => new RegExp(`after=${BigInt(code) - 1n}&limit=1`);

/** A lookup is slow only when the test says so, and not when this machine is. */
const SLOW_CLOCK = `{
  const { setTimeout } = window;
  window.passSlow = [];
  window.setTimeout = (run, ms, ...values) =>
    ms === ${SLOW_MS} ? -passSlow.push(run) : setTimeout(run, ms, ...values);
}`;

const idsInSight = `Array.from(document.querySelectorAll("#plants [role=row][id] .row-id"), (cell) => cell.textContent)`;

describeInBrowser("a scanner", () => {
  it("finds one plant after the other, from a fresh page and with a panel open", async (visit) => {
    const { page, user } = await visit.open();
    await scanBoth(user);
    expect(await page.locator("#search").inputValue()).toBe(OTHER_CODE);
    await page.getByRole("button", { name: "Delete" }).focus();
    await scanBoth(user);
  });

  test("finds plants from another view, from the list, and with a menu open", async (visit) => {
    const { page, user } = await visit.open({ at: "#/health" });
    await user.see({ heading: "Health" });
    await scanBoth(user);
    await user.untilAt(`#/plants/${OTHER_CODE}?q=${OTHER_CODE}`);
    await user.press("Escape");
    await user.click("Export the list");
    await scanBoth(user);
    for (const target of [page.getByRole("grid"), page.getByLabel("Order")]) {
      await target.focus();
      await scanBoth(user);
    }
    await user.goTo("#/health");
    await page.getByRole("slider", { name: "Requests: moment" }).focus();
    await scanBoth(user);
  });

  test("scans again before the first answer came, and the last code counts", async (visit) => {
    const { page, user } = await visit.open({ prelude: SLOW_CLOCK });
    const first = lookupOf(CODE);
    const release = await user.hold(first);
    const releaseOther = await user.hold(lookupOf(OTHER_CODE));
    await user.scan(CODE);
    await user.scan(OTHER_CODE);
    await page.evaluate("passSlow[0]()");
    releaseOther();
    await user.see({ shown: "Scanned twice" });
    const answered = page.waitForResponse(first);
    release();
    await (await answered).finished();
    await user.untilAt(`#/plants/${OTHER_CODE}?q=${OTHER_CODE}`);
  });

  test("opens the plant although a part of its code was searched for meanwhile", async (visit) => {
    const { page, user } = await visit.open({ prelude: SLOW_CLOCK });
    const release = await user.hold(lookupOf(CODE));
    await page.getByRole("grid").focus();
    await page.evaluate("keyGapMs = 10");
    await page.keyboard.type(CODE.slice(0, 6));
    await user.untilAt(`#/plants?q=${CODE.slice(0, 6)}`);
    await page.keyboard.type(CODE.slice(6));
    await user.press("Enter");
    await user.untilAt("#/plants");
    release();
    await user.see({ shown: "Scanned once" });
  });

  it("who scans an unknown code sees it: the open plant closes, and one can be added", async (visit) => {
    const { page, user, service } = await visit.open({ at: `#/plants/${CODE}` });
    await page.locator(".shown-name").waitFor();
    await user.scan(UNKNOWN_CODE);
    await user.see({ heading: `No plant has the id ${UNKNOWN_CODE}` });
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.follow(`Add a plant with id ${UNKNOWN_CODE}`);
    await user.untilSo(`document.querySelector("#add-id")?.value === "${UNKNOWN_CODE}"`);
    await user.field("Name").fill("New to us");
    await user.press("Enter", { toast: "Added “New to us”" });
    expect(await service.findPlant(BigInt(UNKNOWN_CODE))).toMatchObject({ name: "New to us" });
    await user.see({ row: "New to us" });
    await change(service, Number(UNKNOWN_CODE));
  });
});

describeInBrowser("an id that is searched for", () => {
  it("is the first row, before plants that have it in their name", async (visit) => {
    const { page, user, service } = await visit.open();
    await user.search("150", { row: "Plant 1351", text: "End of list" });
    // The others are plants 1500, 1150 and 150 by name.
    await user.see({ text: /^4 of 1,502 plants/ });
    expect(await page.evaluate<string[]>(idsInSight)).toEqual(["150", "1", "351", "1351"]);
    await user.press("ArrowDown ArrowDown Home Enter", { shown: "Plant 1351" });
    await user.press("Escape");
    // It is part of everything that is done to the list.
    await user.selectAll({ text: "All 4 selected" });
    await user.click("Select none");
    await change(service, 150, { name: "Renamed by a colleague" });
    await user.see({ row: "Renamed by a colleague" });
    await change(service, 150, { name: "Plant 1351", tag: "fernwood" });
  });

  test("is offered for a new plant beside plants that only have it in their name", async (visit) => {
    await sendPlant(visit.service.url, { id: 2000n, name: "Model 7777", tag: null });
    const { page, user, service } = await visit.open({ at: "#/plants?q=7777" });
    await user.see({ row: "Model 7777", link: "Add a plant with id 7777" });
    await sendPlant(service.url, { id: 7777n, name: "By a colleague", tag: null });
    await user.see({ row: "By a colleague" });
    await page.getByRole("link", { name: "Add a plant with id" }).waitFor({ state: "detached" });
    await change(service, 7777);
    await change(service, 2000);
  });
});

describeInBrowser("the tag filter", () => {
  it("picks a tag by its first letters and Enter, and forgets what it does not pick", async (visit) => {
    const { page, user } = await visit.open();
    const filter = page.getByRole("combobox", { name: "Filter by tag" });
    const tags = page.getByRole("listbox", { name: "Tags in use" });
    await filter.click();
    await tags.getByRole("option", { name: /^orchid 501$/ }).waitFor();
    await page.keyboard.type("orc");
    await tags.getByRole("option", { name: /fern/i }).first().waitFor({ state: "detached" });
    await user.press("Enter");
    await user.untilAt("#/plants?tag=orchid");
    expect(await filter.inputValue()).toBe("orchid");
    await tags.getByRole("option").waitFor({ state: "detached" });

    // An exact tag is before those that only begin like it, whatever its case.
    await filter.fill("fern");
    await tags.getByRole("option", { name: /^fernwood/ }).waitFor();
    await page.locator("[role=option][aria-selected=true]", { hasText: /^Fern/ }).waitFor();
    await user.press("ArrowDown Enter");
    await user.untilAt("#/plants?tag=fernwood");

    await filter.fill("fer");
    await tags.getByRole("option", { name: /^fernwood/ }).waitFor();
    await user.press("Escape");
    expect(await filter.inputValue()).toBe("fernwood");
    await filter.fill("fer");
    await page.getByRole("searchbox").focus();
    expect(await filter.inputValue()).toBe("fernwood");

    await filter.click();
    await tags.getByRole("option", { name: /^orchid/ }).click();
    await user.untilAt("#/plants?tag=orchid");
    await user.click("Any tag");
    await user.untilAt("#/plants");
    await page.locator("#tag-filter:focus").waitFor();
    // A tag that is not in use can be typed in full.
    await filter.fill("nowhere");
    await user.press("Enter", { text: "No plant has the tag “nowhere”." });
  });

  it("chooses the plants without a tag, by pointer, keys and typing", async (visit) => {
    const { page, user } = await visit.open();
    const filter = page.getByRole("combobox", { name: "Filter by tag" });
    const tags = page.getByRole("listbox", { name: "Tags in use" });
    await filter.click();
    await tags.getByRole("option", { name: "without a tag" }).click();
    await user.untilAt("#/plants?tagged=false");
    // A tag takes its place.
    await filter.click();
    await tags.getByRole("option", { name: /^orchid/ }).click();
    await user.untilAt("#/plants?tag=orchid");
    await user.click("Any tag");
    await user.untilAt("#/plants");
    await filter.click();
    await tags.getByRole("option", { name: /^orchid/ }).waitFor();
    await user.press("ArrowDown Enter");
    await user.untilAt("#/plants?tagged=false");
    await user.click("Any tag");
    await user.untilAt("#/plants");
    await filter.fill("without");
    await user.press("Enter");
    await user.untilAt("#/plants?tagged=false");
    await user.click("Any tag");
    await user.untilAt("#/plants");
  });

  test("picks a tag by its first letters although the tags come late", async (visit) => {
    const { page, user } = await visit.open();
    const release = await user.hold("**/tags/counts*");
    await page.getByRole("combobox", { name: "Filter by tag" }).focus();
    const asked = page.waitForRequest("**/tags/counts*");
    await user.scan("orc");
    await asked;
    release();
    await user.untilAt("#/plants?tag=orchid");
  });
});

describeInBrowser("the list", () => {
  it("is sorted by name and tag, as the service does, and follows changes", async (visit) => {
    const { page, user, service } = await visit.open();
    await page.getByLabel("Order").selectOption("Names A to Z");
    await user.untilAt("#/plants?sort=name");
    await user.see({ firstRow: "Plant 1" });
    await user.untilSo(`${idsInSight}.slice(0, 3).join() === "1500,1491,1401"`);
    await sendPlant(service.url, { id: 3000n, name: "Plant 1.5", tag: "a" });
    await user.see({ row: "Plant 1.5" });
    await user.untilSo(`${idsInSight}.slice(0, 3).join() === "1500,3000,1491"`);
    await change(service, 3000, { name: "Aloe", tag: "a" });
    await user.untilSo(`${idsInSight}[0] === "3000"`);
    await page.getByLabel("Order").selectOption("Tags Z to A");
    await user.untilAt("#/plants?sort=tag&order=desc");
    await user.untilSo(`${idsInSight}.slice(0, 2).join() === "1,4"`);
    // Moved out of the loaded part, and back.
    await change(service, 1, { name: "Plant 1500", tag: "a" });
    await user.untilSo(`${idsInSight}[0] === "4"`);
    await change(service, 1, { name: "Plant 1500", tag: "orchid" });
    await user.untilSo(`${idsInSight}[0] === "1"`);
    // Without a tag: at the end in either direction.
    for (const order of ["asc", "desc"]) {
      await user.goTo(`#/plants?q=scanned&sort=tag&order=${order}`);
      await user.untilSo(`${idsInSight}.join() === "${OTHER_CODE},${CODE}"`);
    }
    await change(service, 3000);
  });

  test("is sorted by a click on the head of a column, and again the other way round", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants?tag=orchid" });
    const head = page.getByRole("columnheader", { name: "Name" });
    await head.getByRole("button").click();
    await page.locator("[role=columnheader][aria-sort=ascending]", { hasText: "Name" }).waitFor();
    await user.untilSo(`${idsInSight}[0] === "499"`);
    await head.getByRole("button").click();
    await user.untilAt("#/plants?tag=orchid&sort=name&order=desc");
    await user.untilSo(`${idsInSight}[0] === "${OTHER_CODE}"`);
    await page.getByRole("columnheader", { name: "Id" }).getByRole("button").click();
    await user.untilAt("#/plants?tag=orchid");
  });

  test("has the last change of every plant, and is sorted by it, the newest first, by keyboard too", async (visit) => {
    const { page, user, service } = await visit.open();
    await page.locator("#plants [role=row][id] .row-changed", { hasText: /\d/ }).nth(20).waitFor();
    await change(service, 700, { name: "Plant 801", tag: "orchid" });
    const head = page.getByRole("columnheader", { name: "Last changed" });
    await head.getByRole("button").press("Enter");
    await user.untilAt("#/plants?sort=changed&order=desc");
    await page.locator("[role=columnheader][aria-sort=descending]", { hasText: "Last" }).waitFor();
    await user.untilSo(`${idsInSight}[0] === "700"`);
    await change(service, 5, { name: "Plant 1496", tag: "orchid" });
    await user.untilSo(`${idsInSight}.slice(0, 2).join() === "5,700"`);
    await user.reload({ firstRow: "Plant 1496" });
    await head.getByRole("button").click();
    await user.untilAt("#/plants?sort=changed");
    // Another test changes the first plant.
    await user.untilSo(`["1", "2"].includes(${idsInSight}[0])`);
  });
});

describeInBrowser("the number of plants", () => {
  it("follows one's own actions, before the service counts again", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/new" });
    await user.see({ exactText: "1,502 plants" });
    // Only the first count is answered.
    await page.route("**/plants/count*", () => undefined);
    await user.add("9000", "Counted", { toast: "Added “Counted”", exactText: "1,503 plants" });
    await user.within(user.toast("Added")).click("Undo", { toast: "Deleted “Counted”" });
    await user.see({ exactText: "1,502 plants" });
  });
});

describeInBrowser("the form for a new plant", () => {
  it("asks before it adds a plant without a name, or with a scan as its name", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/new" });
    const [id, name] = [page.locator("#add-id"), user.field("Name")];
    await id.fill("9100");
    await user.scan("");
    await name.press("Enter");
    await user.see({ text: "The name is empty. Add the plant anyway?" });
    await name.fill("9100");
    await name.press("Enter");
    await user.see({ text: "The name is the same as the id. Add the plant anyway?" });
    // Enter is no answer: some scanners send it twice.
    await name.press("Enter");
    expect(await service.findPlant(9100n)).toBeUndefined();
    // A code that was pasted, or typed by a slow scanner.
    await name.fill(UNKNOWN_CODE);
    await name.press("Enter");
    await user.see({ text: "The name looks like a scanned code. Add the plant anyway?" });
    await user.click("Use it as the id");
    expect(await id.inputValue()).toBe(UNKNOWN_CODE);
    await page.locator("#add-name:focus").waitFor();
    await user.press("Enter");
    await user.click("Add anyway", { toast: `Added plant ${UNKNOWN_CODE}` });
    expect(await service.findPlant(BigInt(UNKNOWN_CODE))).toMatchObject({ name: "" });
    await change(service, Number(UNKNOWN_CODE));
  });

  test("marks what is required and what is optional", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/new" });
    await page.locator("#add-id").waitFor();
    const read = `Array.from(document.querySelectorAll(".panel label"),
      (label) => label.textContent.trim() + getComputedStyle(label, "::after").content).join()`;
    const marks = /^Id" \(required\)".*,Name" \(required\)".*,Tag \(optional\)none$/;
    expect(await page.evaluate<string>(read)).toMatch(marks);
  });
});

describeInBrowser("messages", () => {
  it("count what was done, have one undo for all, and do not move the list", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/new" });
    const before = await page.locator(".scroller").boundingBox();
    for (const id of ["9201", "9202", "9203"]) {
      await user.fillNew(id, `Added ${id}`);
      await user.press("Enter", { toast: id === "9201" ? "Added “Added 9201”" : "plants." });
    }
    await user.see({ toast: "Added 3 plants." });
    expect(await page.locator(".toast").count()).toBe(1);
    // On a phone the form has the screen, and the toast stands below it.
    if (!visit.isPhone) expect(await page.locator(".scroller").boundingBox()).toEqual(before);
    await user.click("Undo", { toast: "Deleted 3 plants." });
    expect(await service.findPlant(9202n)).toBeUndefined();
    await user.click("Undo", { toast: "Restored 3 plants." });
    expect(await service.findPlant(9202n)).toMatchObject({ name: "Added 9202" });
    for (const id of [9201, 9202, 9203]) await change(service, id);
  });

  test("undo a change, and the undo, on the condition that nobody changed the plant since", async (visit) => {
    const { user, service, announceFailure } = await visit.open({ at: "#/plants/1300" });
    await user.edit("Corrected");
    await user.click("Save", { toast: "Changed “Corrected”." });
    await user.within(user.toast("Changed")).click("Undo", { shown: "Plant 201" });
    expect(await service.findPlant(1300n)).toMatchObject({ name: "Plant 201", tag: "orchid" });
    await user
      .within(user.toast("Changed “Plant 201” back."))
      .click("Undo", { shown: "Corrected" });
    announceFailure("/plants/1300", 412);
    await change(service, 1300, { name: "Theirs", tag: "orchid" });
    await user.within(user.toast("Changed “Corrected”.")).click("Undo");
    await user.see({ toast: "Couldn't change “Corrected” back. Someone else changed it." });
    expect(await service.findPlant(1300n)).toMatchObject({ name: "Theirs" });
    await change(service, 1300, { name: "Plant 201", tag: "orchid" });
  });

  test("undo no plant that someone else changed since", async (visit) => {
    const { user, service } = await visit.open({ at: "#/plants/new" });
    await user.add("9300", "Mine", { toast: "Added “Mine”" });
    await change(service, 9300, { name: "Theirs" });
    await user.within(user.toast("Added")).click("Undo");
    await user.see({ toast: "Couldn't delete “Mine”. Someone else changed it." });
    expect(await service.findPlant(9300n)).toMatchObject({ name: "Theirs" });
    await change(service, 9300);
  });

  test("leave the focus in the page when they go, and so does every button that disappears", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/1400" });
    const hasFocus = `document.activeElement !== document.body`;
    await user.click("Delete");
    await user.within(user.toast("Deleted")).click("Undo", { toast: "Restored" });
    await user.untilSo(hasFocus);
    await user.search("nothing like it");
    await user.click("Show all plants", { row: "Plant 1500" });
    await user.untilSo(hasFocus);
    await page.getByRole("checkbox", { name: "Select “Plant 1500”" }).check();
    await user.click("Select none", { element: "#plants:focus" });
    await user.openRow("Plant 1499");
    await user.click(["Edit", "Cancel"]);
    await user.untilSo(hasFocus);
  });
});
