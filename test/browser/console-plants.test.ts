/** Plants in the console: found, added, corrected, removed and brought back, by clicking and by keys. */

import { expect } from "bun:test";
import type { Page, Route } from "playwright-core";
import { change, describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { send, sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";

// A search looks at few plants at a time here, as it does among a million with the default.
const { it, test } = await startJourneys(limits({ scanRowsMax: 500 }), async (service) => {
  await storePlants(service, 3000, (index) => ({
    id: 1000 + index,
    name: `Plant ${index}`,
    ...[{ tag: "fern" }, { tag: "Ivy" }, {}][index % 3],
  }));
  await sendPlant(service.url, { id: 5000n, name: "Needle in a haystack", tag: "rare" });
});

const LARGEST = "9223372036854775807";

describeInBrowser("the list", () => {
  it("draws only the rows in sight, and loads the others as one scrolls", async (visit) => {
    const { page, user } = await visit.open();
    expect(await page.locator("#plants [role=row][id]").count()).toBeLessThan(60);
    await user.see({ text: "3,001 plants" });
    await page.getByRole("grid").focus();
    while (!(await page.getByText("End of list").isVisible())) await page.keyboard.press("End");
    await user.press("End", { row: "Needle in a haystack" });
    expect(await page.locator("#plants [role=row][id]").count()).toBeLessThan(60);
    expect(await page.getByRole("grid").getAttribute("aria-rowcount")).toBe("3002");
  });

  it("is walked by keys, which also open and close a plant", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants" });
    const findPlace = () => page.locator(".scroller").boundingBox();
    const before = await findPlace();
    await user.press("/ ArrowDown ArrowDown ArrowDown ArrowUp Enter", { shown: "Plant 1" });
    await user.untilAt("#/plants/1001");
    // The list neither moves nor narrows. On a phone the plant has the screen.
    if (!visit.isPhone) expect(await findPlace()).toEqual(before);
    // The open plant follows, and Back leads to the list.
    await user.press("ArrowDown", { shown: /^Plant 2$/ });
    await page.goBack();
    await user.untilAt("#/plants");
    // The list has the focus again.
    await user.press("Enter Escape", { element: "#plants:focus" });
    const active = (row: number) => ({ element: `#plants[aria-activedescendant=row-${row}]` });
    await user.press("End", active(99));
    await user.press("PageUp PageDown", active(99));
    await user.press("Home", active(0));
    await user.untilAt("#/plants");
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.press("?", { dialog: "Keyboard shortcuts" });
    await user.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  });

  test("stays at its first row after Home, although more rows load", async (visit) => {
    const { page, user } = await visit.open();
    const release = await user.hold("**/plants?*after=*");
    await page.getByRole("grid").focus();
    const loading = page.waitForRequest(/after=/);
    await user.press("End");
    const request = await loading;
    await page.locator("#plants[aria-activedescendant=row-99]").waitFor();
    // On a slow machine the rows load before the scroll event.
    const stop = `addEventListener("scroll", (event) => event.stopImmediatePropagation(), true)`;
    await page.evaluate(stop);
    const top = `document.querySelector(".scroller").scrollTop`;
    await user.press("Home");
    await user.untilSo(`${top} === 0`);
    release();
    await (await request.response())?.finished();
    await page.evaluate("new Promise((end) => requestAnimationFrame(() => setTimeout(end)))");
    expect(await page.evaluate<number>(top)).toBe(0);
  });

  it("searches through many pages, and the address can be shared", async (visit) => {
    const { page, user, service } = await visit.open();
    await user.search("NEEDLE", { row: "Needle in a haystack", text: "End of list" });
    expect(page.url()).toBe(`${service.url}/#/plants?q=NEEDLE`);

    await user.search("no such plant");
    await user.see({ text: "No plant has “no such plant” in the name or tag." });
    await user.click("Show all plants", { firstRow: "Plant 0" });
    expect(await page.getByRole("searchbox").inputValue()).toBe("");
  });

  it("keeps the tag that was clicked, order, panel and place through Back, a reload and another view", async (visit) => {
    const rowHeight = visit.isPhone ? 64 : 36;
    const { page, user } = await visit.open({ at: "#/plants" });
    const row = user.row("Plant 3").first();
    // A list this narrow has the tag as a button in the panel only.
    if (visit.isPhone) await row.getByRole("link").click();
    const part = visit.isPhone ? page.locator(".panel") : row;
    await part.getByRole("button", { name: "fern" }).click();
    await user.uncover();
    await user.untilAt("#/plants?tag=fern");
    await user.see({ text: "1,000 of" });
    await page.getByLabel("Order").selectOption("Highest id first");
    await user.see({ row: "Plant 2997" });
    await page.getByRole("grid").focus();
    await user.press("End");
    await user.untilSo(`document.querySelector(".grid-body").offsetHeight > ${rowHeight * 400}`);
    const scroller = page.locator(".scroller");
    await scroller.evaluate((element, top) => element.scrollTo(0, top), rowHeight * 300);
    await user.see({ row: "Plant 2094" });
    await user.openRow("Plant 2094", { shown: "Plant 2094" });
    await user.reload({ shown: "Plant 2094", row: "Plant 2094" });
    await user.untilAt("#/plants/3094?tag=fern&order=desc");
    await user.uncover();
    await user.follow("Import", { heading: "Import" });
    await page.goBack();
    const top = `document.querySelector(".scroller")?.scrollTop`;
    await user.untilSo(`Math.abs(${top} - ${rowHeight * 300}) < ${rowHeight}`);
    await page.goForward();
    await user.see({ heading: "Import" });
    await page.reload();
    await user.follow("Plants", { row: "Plant 2094" });
    await user.untilAt("#/plants?tag=fern&order=desc");
    for (let step = visit.isPhone ? -1 : 0; step < 3; step++) await page.goBack();
    await user.untilAt("#/plants?tag=fern&order=desc");
    await page.goBack();
    await user.untilAt("#/plants?tag=fern");
    await user.see({ firstRow: "Plant 0" });
  });

  it("is exported as it is filtered", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants?tag=rare" });
    for (const [label, content] of [
      ["as CSV", 'id,name,tag\r\n5000,"Needle in a haystack","rare"\r\n'],
      ["as Excel CSV", '\ufeffid,name,tag\r\n5000,"Needle in a haystack","rare"\r\n'],
      ["as NDJSON", '{"id":5000,"name":"Needle in a haystack","tag":"rare"}\n'],
      ["as Excel workbook", '"id","name","tag"\n5000,"Needle in a haystack","rare"\n'],
    ] as const) {
      await user.click("Export the list");
      expect((await user.saveFile(page.getByText(label))).text).toBe(content);
    }
  });

  /** As behind a proxy that speaks HTTP/1.0: the end of a stream that was cut looks like any other. */
  const cutStreams = (page: Page, onRest: (route: Route) => Promise<void>): Promise<unknown> =>
    page.route("**/plants?*", async (route) => {
      const request = route.request();
      if (request.headers()["accept"] === "application/json")
        return request.url().includes("limit=1000") ? onRest(route) : route.fallback();
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).slice(0, 2_000) });
    });

  for (const [label, accept] of [
    ["as CSV", "text/csv"],
    ["as NDJSON", "application/x-ndjson"],
  ] as const)
    test(`is exported whole ${label}, even where the stream was cut`, async (visit) => {
      const filter = "tag=fern&order=desc";
      const { page, user, service } = await visit.open({ at: `#/plants?${filter}` });
      await cutStreams(page, (route) => route.fallback());
      await user.click("Export the list");
      const { text } = await user.saveFile(page.getByText(label));
      const whole = await send(service, "GET", `/plants?${filter}`, { headers: { accept } });
      expect(text).toBe(await whole.text());
    });

  test("is not saved where the rest of a cut export cannot be had", async (visit) => {
    const { page, user, announceFailure } = await visit.open();
    announceFailure("/plants", "failed");
    const saved: unknown[] = [];
    page.on("download", (download) => saved.push(download));
    await cutStreams(page, (route) => route.abort());
    await user.click("Export the list");
    await page.getByText("as CSV").click();
    await user.see({ toast: "The export failed." });
    expect(saved).toEqual([]);
  });
});

describeInBrowser("the page", () => {
  /** The box of the first element that the selector finds. */
  const boxOf = async (page: Page, selector: string) => {
    const box = await page.locator(selector).first().boundingBox();
    return box ?? { x: 0, y: 0, width: 0, height: 0 };
  };

  for (const width of [1024, 1200, 1440])
    test(`has no part over another, ${width} pixels wide`, async (visit) => {
      const { page, user } = await visit.open({ viewport: { width, height: 800 } });
      const account = await boxOf(page, ".account");
      const tabs = await page.locator(".tab").all();
      for (const tab of tabs) {
        const { x, width: wide } = (await tab.boundingBox()) ?? { x: 0, width: 0 };
        expect(x + wide).toBeLessThan(account.x);
        const text = await tab.locator("span").boundingBox();
        expect((text?.x ?? 0) + (text?.width ?? 0)).toBeLessThan(x + wide);
      }
      await page
        .getByRole("checkbox", { name: /^Select “/ })
        .first()
        .check();
      const field = await boxOf(page, "#selection-tag");
      const remove = await page.getByRole("button", { name: "Remove tag" }).boundingBox();
      expect(field.width).toBeGreaterThan(100);
      expect(Math.abs((remove?.y ?? 0) - field.y)).toBeLessThan(4);
      await user.click("Select none");
      // The panel hides neither the tags nor why a list is empty.
      await user.goTo("#/plants/1000", { shown: "Plant 0" });
      const panel = await boxOf(page, ".side > .panel");
      const tag = await boxOf(page, "#plants .row .tag");
      expect(tag.x + tag.width).toBeLessThan(panel.x);
      await user.goTo("#/plants/1000?q=nothing+like+it", { heading: "No match" });
      const [blank, heading] = [await boxOf(page, ".blank"), await boxOf(page, ".blank .button")];
      expect(blank.x + blank.width).toBeLessThanOrEqual(panel.x + 1);
      const middle = blank.x + blank.width / 2;
      expect(Math.abs(heading.x + heading.width / 2 - middle)).toBeLessThan(2);
    });
});

describeInBrowser("a plant", () => {
  it("with the largest id of all is added, found, corrected, deleted and brought back, with every digit", async (visit) => {
    const { page, user, service } = await visit.open();
    await user.follow("Add plant");
    await user.fillNew(LARGEST, "Araucaria");
    await page.getByLabel("Tag (optional)").fill("tree");
    await user.click("Add plant", { toast: "Added “Araucaria”" });
    const plant = { name: "Araucaria", tag: "tree" };
    expect(await service.findPlant(BigInt(LARGEST))).toMatchObject(plant);

    // There is none after the largest.
    await user.untilSo("document.querySelector('#add-id').value === '5001'");

    await user.search("arauc");
    await user.openRow(LARGEST);
    await user.edit("Araucaria araucana");
    await user.click("Save", { toast: "Changed", row: "Araucaria araucana" });
    // The page has heard of its own change too, and has read the plant again.
    await page.locator(".entry", { hasText: "Changed by" }).waitFor();
    await user.click("Delete", { toast: "Deleted", text: "No plant has" });
    expect(await service.findPlant(BigInt(LARGEST))).toBeUndefined();

    await user.press("u", { toast: "Restored", row: LARGEST });
    const corrected = { name: "Araucaria araucana", tag: "tree" };
    expect(await service.findPlant(BigInt(LARGEST))).toMatchObject(corrected);
  });

  it("that a colleague changes meanwhile is not deleted unknowingly", async (visit) => {
    const { user, service, announceFailure } = await visit.open({ at: "#/plants/1600" });
    await user.holdFeed();
    announceFailure("/plants/1600", 412);
    await user.see({ button: "Delete" });
    await change(service, 1600, { name: "Precious" });
    await user.click("Delete", { toast: "changed it. It isn't deleted yet.", shown: "Precious" });
    expect(await service.findPlant(1600n)).toMatchObject({ name: "Precious" });
    // Who has seen it can delete it.
    await user.click("Delete", { toast: "Deleted" });
  });

  it("keeps an empty tag and line breaks that were not touched", async (visit) => {
    await sendPlant(visit.service.url, { id: -5n, name: "Two\nlines", tag: "" });
    const { user, service } = await visit.open({ at: "#/plants/-5" });
    await user.click("Edit", { text: "This plant has an empty tag" });
    await user.field("Name").fill("Three\nlines");
    await user.click("Save", { toast: "Changed" });
    expect(await service.findPlant(-5n)).toMatchObject({ name: "Three\nlines", tag: "" });
  });
});

describeInBrowser("the form for a new plant", () => {
  it("says what is wrong before anything is sent, and who has an id", async (visit) => {
    const { page, user, announceFailure } = await visit.open({ at: "#/plants/new" });
    announceFailure("/plants", 409);
    const id = user.field("Id");
    for (const text of ["9223372036854775808", "-9223372036854775809", "1.5", "twelve", " "]) {
      await id.fill(text);
      await user.click("Add plant");
      const fault = `Enter a whole number from -9223372036854775808 to ${LARGEST}.`;
      await page.locator(".field-fault", { hasText: fault }).waitFor();
      expect(await id.getAttribute("aria-invalid")).toBe("true");
    }
    await id.fill("1.5E3");
    await user.click("Add plant", { text: "The spreadsheet has rounded the id to 1.5E3." });
    await id.fill("1000");
    await user.see({ text: "Already belongs to" });
    await user.field("Name").fill("Another");
    await user.click("Add plant", { text: "Id 1000 already belongs to “Plant 0”" });
    await user.follow("Open that plant", { shown: "Plant 0" });
  });

  it("sends again what got no answer, and nothing is doubled", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants/new" });
    announceFailure("/plants", "failed");
    let lost = 0;
    // It arrives and is stored; the answer does not come back.
    await page.route("**/plants", async (route) => {
      if (route.request().method() !== "POST" || lost === 3) return route.fallback();
      lost++;
      await route.fetch();
      return route.abort("connectionreset");
    });
    await user.fillNew("77", "Twice sent");
    await user.click("Add plant", { text: "Not saved: no connection" });
    await user.see({ toast: "Added “Twice sent”" });
    expect(lost).toBe(3);
    expect(await service.findPlant(77n)).toMatchObject({ name: "Twice sent" });
  });

  it("counts on from the last one, keeps its tag, and mentions a namesake", async (visit) => {
    await sendPlant(visit.service.url, { id: 8_001n, name: "Taken", tag: null });
    const { page, user } = await visit.open({ at: "#/plants/new" });
    const id = user.field("Id");
    await user.field("Name").fill("Plant 7");
    await user.see({ link: "Plant 1007" });
    await id.fill("8000");
    await page.getByLabel("Tag (optional)").fill("series");
    await user.click("Add plant", { toast: "Added “Plant 7”" });
    await page.locator("#add-name:focus").waitFor();
    await user.untilSo("document.querySelector('#add-id').value === '8002'");
    // The proposal comes back to a field that was emptied.
    await id.fill("");
    await user.field("Name").focus();
    expect(await id.inputValue()).toBe("8002");
    expect(await page.getByLabel("Tag (optional)").inputValue()).toBe("series");
    await user.within(user.toast("Added “Plant 7”")).click("Open");
    await page.locator(".label", { hasText: "8000" }).waitFor();
  });
});
