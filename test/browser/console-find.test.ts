/** Finding plants with a scanner and by keys: codes, tags, orders, and counts that are right. */

import { expect } from "bun:test";
import type { Page } from "playwright-core";
import {
  change,
  describeInBrowser,
  openConsole,
  openRow,
  rowOf,
  startConsole,
  startJourneys,
  storePlants,
  toastOf,
} from "../support/browser.ts";
import { limits } from "../support/limits.ts";
import { sendPlant } from "../support/service.ts";
import { fillNew, hold, press, untilAt, untilSo } from "../support/steps.ts";

const CODE = "4006381333931";
const OTHER_CODE = "4006381333948";
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

/** As a scanner does it, wherever the focus is. */
async function scan(page: Page, code: string): Promise<void> {
  await page.keyboard.type(code);
  await page.keyboard.press("Enter");
}

const untilShown = (page: Page, name: string): Promise<void> =>
  page.locator(".shown-name", { hasText: name }).waitFor();

async function scanBoth(page: Page): Promise<void> {
  for (const [code, name] of [
    [CODE, "Scanned once"],
    [OTHER_CODE, "Scanned twice"],
  ] as const) {
    await scan(page, code);
    await untilShown(page, name);
  }
}

const idsInSight = `Array.from(document.querySelectorAll("#plants [role=row][id] .row-id"), (cell) => cell.textContent)`;

describeInBrowser("a scanner", () => {
  it("finds one plant after the other, from a fresh page and with a panel open", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Plant 1500").waitFor();
    await scanBoth(page);
    expect(await page.locator("#search").inputValue()).toBe(OTHER_CODE);
    await page.getByRole("button", { name: "Delete" }).focus();
    await scanBoth(page);
  });

  test("finds plants from another view, from the list, and with a menu open", async (visit) => {
    const { page } = await visit.open({ at: "#/health" });
    await page.getByRole("heading", { name: "Health" }).waitFor();
    await scanBoth(page);
    await untilAt(page, `#/plants/${OTHER_CODE}?q=${OTHER_CODE}`);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Export the list" }).click();
    await scanBoth(page);
    for (const target of [page.getByRole("grid"), page.getByLabel("Order")]) {
      await target.focus();
      await scanBoth(page);
    }
    await page.goto(`${visit.service.url}/#/health`);
    await page.getByRole("slider", { name: "Requests: moment" }).focus();
    await scanBoth(page);
  });

  test("scans again before the first answer came, and the last code counts", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Plant 1500").waitFor();
    const first = new RegExp(`after=${BigInt(CODE) - 1n}&limit=1`);
    const release = await hold(page, first);
    await scan(page, CODE);
    await scan(page, OTHER_CODE);
    await untilShown(page, "Scanned twice");
    const answered = page.waitForResponse(first);
    release();
    await (await answered).finished();
    await untilAt(page, `#/plants/${OTHER_CODE}?q=${OTHER_CODE}`);
  });

  it("is told of an unknown code: the open plant closes, and one can be added", async (visit) => {
    const { page, service } = await visit.open({ at: `#/plants/${CODE}` });
    await page.locator(".shown-name").waitFor();
    await scan(page, UNKNOWN_CODE);
    await page.getByRole("heading", { name: `No plant has the id ${UNKNOWN_CODE}` }).waitFor();
    await page.locator(".panel").waitFor({ state: "detached" });
    await page.getByRole("link", { name: `Add a plant with id ${UNKNOWN_CODE}` }).click();
    await untilSo(page, `document.querySelector("#add-id")?.value === "${UNKNOWN_CODE}"`);
    await page.getByLabel("Name", { exact: true }).fill("New to us");
    await page.keyboard.press("Enter");
    await toastOf(page, "Added “New to us”").waitFor();
    expect(await service.findPlant(BigInt(UNKNOWN_CODE))).toMatchObject({ name: "New to us" });
    await rowOf(page, "New to us").waitFor();
    await change(service, Number(UNKNOWN_CODE));
  });
});

describeInBrowser("an id that is searched for", () => {
  it("is the first row, before plants that have it in their name", async (visit) => {
    const { page, service } = await visit.open();
    await page.getByRole("searchbox").fill("150");
    await rowOf(page, "Plant 1351").waitFor();
    await page.getByText("End of list").waitFor();
    // The others are plants 1500, 1150 and 150 by name.
    await page.getByText(/^4 of 1,502 plants/).waitFor();
    expect(await page.evaluate<string[]>(idsInSight)).toEqual(["150", "1", "351", "1351"]);
    await press(page, "ArrowDown", "ArrowDown", "Home", "Enter");
    await untilShown(page, "Plant 1351");
    await page.keyboard.press("Escape");
    // It is part of everything that is done to the list.
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByText("All 4 selected").waitFor();
    await page.getByRole("button", { name: "Select none" }).click();
    await change(service, 150, { name: "Renamed by a colleague" });
    await rowOf(page, "Renamed by a colleague").waitFor();
    await change(service, 150, { name: "Plant 1351", tag: "fernwood" });
  });

  test("is offered for a new plant beside plants that only have it in their name", async (visit) => {
    await sendPlant(visit.service.url, { id: 2000n, name: "Model 7777", tag: null });
    const { page, service } = await visit.open({ at: "#/plants?q=7777" });
    await rowOf(page, "Model 7777").waitFor();
    await page.getByRole("link", { name: "Add a plant with id 7777" }).waitFor();
    await sendPlant(service.url, { id: 7777n, name: "By a colleague", tag: null });
    await rowOf(page, "By a colleague").waitFor();
    await page.getByRole("link", { name: "Add a plant with id" }).waitFor({ state: "detached" });
    await change(service, 7777);
    await change(service, 2000);
  });
});

describeInBrowser("the tag filter", () => {
  it("picks a tag by its first letters and Enter, and forgets what it does not pick", async (visit) => {
    const { page } = await visit.open();
    const filter = page.getByRole("combobox", { name: "Filter by tag" });
    const tags = page.getByRole("listbox", { name: "Tags in use" });
    await filter.click();
    await tags.getByRole("option", { name: /^orchid 501$/ }).waitFor();
    await page.keyboard.type("orc");
    await tags.getByRole("option", { name: /fern/i }).first().waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await untilAt(page, "#/plants?tag=orchid");
    expect(await filter.inputValue()).toBe("orchid");
    await tags.getByRole("option").waitFor({ state: "detached" });

    // An exact tag is before those that only begin like it, whatever its case.
    await filter.fill("fern");
    await tags.getByRole("option", { name: /^fernwood/ }).waitFor();
    await page.locator("[role=option][aria-selected=true]", { hasText: /^Fern/ }).waitFor();
    await press(page, "ArrowDown", "Enter");
    await untilAt(page, "#/plants?tag=fernwood");

    await filter.fill("fer");
    await tags.getByRole("option", { name: /^fernwood/ }).waitFor();
    await page.keyboard.press("Escape");
    expect(await filter.inputValue()).toBe("fernwood");
    await filter.fill("fer");
    await page.getByRole("searchbox").focus();
    expect(await filter.inputValue()).toBe("fernwood");

    await filter.click();
    await tags.getByRole("option", { name: /^orchid/ }).click();
    await untilAt(page, "#/plants?tag=orchid");
    await page.getByRole("button", { name: "Any tag" }).click();
    await untilAt(page, "#/plants");
    await page.locator("#tag-filter:focus").waitFor();
    // A tag that is not in use can be typed in full.
    await filter.fill("nowhere");
    await page.keyboard.press("Enter");
    await page.getByText("No plant has the tag “nowhere”.").waitFor();
  });

  test("picks a tag by its first letters although the tags come late", async (visit) => {
    const { page } = await visit.open();
    const release = await hold(page, "**/tags/counts*");
    await page.getByRole("combobox", { name: "Filter by tag" }).focus();
    const asked = page.waitForRequest("**/tags/counts*");
    await page.keyboard.type("orc");
    await page.keyboard.press("Enter");
    await asked;
    release();
    await untilAt(page, "#/plants?tag=orchid");
  });
});

describeInBrowser("the list", () => {
  it("is sorted by name and tag, numbers by value, and follows changes", async (visit) => {
    const { page, service } = await visit.open();
    await page.getByLabel("Order").selectOption("Names A to Z");
    await untilAt(page, "#/plants?sort=name");
    await rowOf(page, "Plant 1").first().waitFor();
    await untilSo(page, `${idsInSight}.slice(0, 3).join() === "1500,1499,1498"`);
    await sendPlant(service.url, { id: 3000n, name: "Plant 1.5", tag: "a" });
    await rowOf(page, "Plant 1.5").waitFor();
    await untilSo(page, `${idsInSight}.slice(0, 3).join() === "1500,3000,1499"`);
    await change(service, 3000, { name: "Aloe", tag: "a" });
    await untilSo(page, `${idsInSight}[0] === "3000"`);
    await page.getByLabel("Order").selectOption("Tags Z to A");
    await untilAt(page, "#/plants?sort=tag&order=desc");
    await untilSo(page, `${idsInSight}[0] === "${OTHER_CODE}"`);
    // Without a tag: at the end in either direction.
    await page.getByRole("grid").focus();
    await page.keyboard.press("End");
    await rowOf(page, "Scanned once").waitFor();
    await page.reload();
    await rowOf(page, "Scanned once").waitFor();
    await change(service, 3000);
  });

  test("is sorted by a click on the head of a column, and again the other way round", async (visit) => {
    const { page } = await visit.open({ at: "#/plants?tag=orchid" });
    await rowOf(page, "Plant 1500").waitFor();
    const head = page.getByRole("columnheader", { name: "Name" });
    await head.getByRole("button").click();
    await page.locator("[role=columnheader][aria-sort=ascending]", { hasText: "Name" }).waitFor();
    await untilSo(page, `${idsInSight}[0] === "1498"`);
    await head.getByRole("button").click();
    await untilAt(page, "#/plants?tag=orchid&sort=name&order=desc");
    await untilSo(page, `${idsInSight}[0] === "${OTHER_CODE}"`);
    await page.getByRole("columnheader", { name: "Id" }).getByRole("button").click();
    await untilAt(page, "#/plants?tag=orchid");
  });
});

describeInBrowser("a list of more plants than are sorted", () => {
  test("says which of them are sorted", async () => {
    await using own = await startConsole();
    await storePlants(own, 10_002, (index) => ({
      id: index + 1,
      name: `Plant ${index}`,
      tag: index < 10_001 ? "orchid" : "fern",
    }));
    await using view = await openConsole(own, { at: "#/plants?tag=orchid&sort=name" });
    await view.page
      .getByText("The first 10,000 of 10,001 matches by id, sorted by name", { exact: true })
      .waitFor();
    await view.page.getByRole("button", { name: "Any tag" }).click();
    await view.page
      .getByText("The first 10,000 of 10,002 plants by id, sorted by name", { exact: true })
      .waitFor();
  });
});

describeInBrowser("the number of plants", () => {
  it("follows one's own actions, before the service counts again", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/new" });
    await page.getByText("1,502 plants", { exact: true }).waitFor();
    // Only the first count is answered.
    await page.route("**/plants/count*", () => undefined);
    await fillNew(page, "9000", "Counted");
    await page.keyboard.press("Enter");
    await toastOf(page, "Added “Counted”").waitFor();
    await page.getByText("1,503 plants", { exact: true }).waitFor();
    await toastOf(page, "Added").getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Deleted “Counted”").waitFor();
    await page.getByText("1,502 plants", { exact: true }).waitFor();
  });

  test("is exact once a search has ended, where the service stopped counting", async (visit) => {
    const { page } = await visit.open();
    await page.getByText("1,502 plants", { exact: true }).waitFor();
    await page.route("**/plants/count?q=*", (route) =>
      route.fulfill({ contentType: "application/json", body: '{"count":0,"exact":false}' }),
    );
    const release = await hold(page, "**/plants?q=twice&after=*");
    await page.getByRole("searchbox").fill("twice");
    await page.getByText("Searching 1,502 plants…").waitFor();
    release();
    await page.getByText("1 of 1,502 plants").waitFor();
  });

  test("is read again after a failure", async (visit) => {
    const { page, announceFailure } = await visit.open({ at: "#/import" });
    announceFailure("/plants/count", 503);
    await page.route("**/plants/count", (route) => route.fulfill({ status: 503 }), { times: 1 });
    await page.reload();
    await page.getByRole("link", { name: "Plants" }).click();
    await page.getByText("1,502 plants", { exact: true }).waitFor();
  });
});

describeInBrowser("the form for a new plant", () => {
  it("asks before it adds a plant without a name, or with a scan as its name", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/new" });
    const [id, name] = [page.locator("#add-id"), page.getByLabel("Name", { exact: true })];
    await id.fill("9100");
    await scan(page, "");
    await name.press("Enter");
    await page.getByText("The name is empty. Add the plant anyway?").waitFor();
    await name.fill("9100");
    await name.press("Enter");
    await page.getByText("The name is the same as the id. Add the plant anyway?").waitFor();
    // Enter is no answer: some scanners send it twice.
    await name.press("Enter");
    expect(await service.findPlant(9100n)).toBeUndefined();
    // The next scan replaces the name.
    await scan(page, UNKNOWN_CODE);
    await page.getByText("The name looks like a scanned code. Add the plant anyway?").waitFor();
    await page.getByRole("button", { name: "Use it as the id" }).click();
    expect(await id.inputValue()).toBe(UNKNOWN_CODE);
    await page.locator("#add-name:focus").waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Add anyway" }).click();
    await toastOf(page, `Added plant ${UNKNOWN_CODE}`).waitFor();
    expect(await service.findPlant(BigInt(UNKNOWN_CODE))).toMatchObject({ name: "" });
    await change(service, Number(UNKNOWN_CODE));
  });

  test("marks what is required and what is optional", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/new" });
    await page.locator("#add-id").waitFor();
    const marks = await page.evaluate<
      string[]
    >(`Array.from(document.querySelectorAll(".panel label"),
      (label) => label.textContent.trim() + getComputedStyle(label, "::after").content)`);
    expect(marks[0]).toStartWith('Id" (required)"');
    expect(marks[1]).toStartWith('Name" (required)"');
    expect(marks[2]).toBe("Tag (optional)none");
  });
});

describeInBrowser("messages", () => {
  it("count what was done, have one undo for all, and do not move the list", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/new" });
    await rowOf(page, "Plant 1500").waitFor();
    const before = await page.locator(".scroller").boundingBox();
    for (const id of ["9201", "9202", "9203"]) {
      await fillNew(page, id, `Added ${id}`);
      await page.keyboard.press("Enter");
      await toastOf(page, id === "9201" ? "Added “Added 9201”" : "plants.").waitFor();
    }
    await toastOf(page, "Added 3 plants.").waitFor();
    expect(await page.locator(".toast").count()).toBe(1);
    expect(await page.locator(".scroller").boundingBox()).toEqual(before);
    await page.getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Deleted 3 plants.").waitFor();
    expect(await service.findPlant(9202n)).toBeUndefined();
    await page.getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Restored 3 plants.").waitFor();
    expect(await service.findPlant(9202n)).toMatchObject({ name: "Added 9202" });
    for (const id of [9201, 9202, 9203]) await change(service, id);
  });

  test("undo no plant that someone else changed since", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/new" });
    await fillNew(page, "9300", "Mine");
    await page.keyboard.press("Enter");
    await toastOf(page, "Added “Mine”").waitFor();
    await change(service, 9300, { name: "Theirs" });
    await toastOf(page, "Added").getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Couldn't delete “Mine”. Someone else changed it.").waitFor();
    expect(await service.findPlant(9300n)).toMatchObject({ name: "Theirs" });
    await change(service, 9300);
  });

  test("leave the focus in the page when they go, and so does every button that disappears", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/1400" });
    const hasFocus = `document.activeElement !== document.body`;
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "Deleted").getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Restored").waitFor();
    await untilSo(page, hasFocus);
    await page.getByRole("searchbox").fill("nothing like it");
    await page.getByRole("button", { name: "Show all plants" }).click();
    await rowOf(page, "Plant 1500").waitFor();
    await untilSo(page, hasFocus);
    await page.getByRole("checkbox", { name: "Select “Plant 1500”" }).check();
    await page.getByRole("button", { name: "Select none" }).click();
    await page.locator("#plants:focus").waitFor();
    await openRow(page, "Plant 1499");
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await untilSo(page, hasFocus);
  });
});
