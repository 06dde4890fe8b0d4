/** Plants in the console: found, added, corrected, removed and brought back, by clicking and by keys. */

import { expect } from "bun:test";
import type { Page, Route } from "playwright-core";
import { openWorkbook } from "../../src/format/workbook.ts";
import {
  change,
  describeInBrowser,
  holdFeed,
  openRow,
  rowOf,
  startJourneys,
  storePlants,
  toastOf,
  uncover,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { edit, fillNew, press, saveFile, untilAt, untilSo } from "../support/steps.ts";

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
    const { page } = await visit.open();
    await rowOf(page, "Plant 0").first().waitFor();
    expect(await page.locator("#plants [role=row][id]").count()).toBeLessThan(60);
    await page.getByText("3,001 plants").waitFor();
    await page.getByRole("grid").focus();
    while (!(await page.getByText("End of list").isVisible())) await page.keyboard.press("End");
    await page.keyboard.press("End");
    await rowOf(page, "Needle in a haystack").waitFor();
    expect(await page.locator("#plants [role=row][id]").count()).toBeLessThan(60);
    expect(await page.getByRole("grid").getAttribute("aria-rowcount")).toBe("3002");
  });

  it("is walked by keys, and opens and closes a plant by them; a tag in a row filters", async (visit) => {
    const { page } = await visit.open({ at: "#/plants" });
    await rowOf(page, "Plant 0").first().waitFor();
    const before = await page.locator(".scroller").boundingBox();
    await press(page, "/", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Enter");
    await page.locator(".shown-name", { hasText: "Plant 1" }).waitFor();
    await untilAt(page, "#/plants/1001");
    // The list neither moves nor narrows.
    expect(await page.locator(".scroller").boundingBox()).toEqual(before);
    // The open plant follows, and Back leads to the list.
    await page.keyboard.press("ArrowDown");
    await page.locator(".shown-name", { hasText: /^Plant 2$/ }).waitFor();
    await page.goBack();
    await untilAt(page, "#/plants");
    await press(page, "Enter", "Escape");
    // The list has the focus again.
    await page.locator("#plants:focus").waitFor();
    const active = (row: number): Promise<void> =>
      page.locator(`#plants[aria-activedescendant=row-${row}]`).waitFor();
    await page.keyboard.press("End");
    await active(99);
    await press(page, "PageUp", "PageDown");
    await active(99);
    await page.keyboard.press("Home");
    await active(0);
    await untilAt(page, "#/plants");
    await page.locator(".panel").waitFor({ state: "detached" });
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    await rowOf(page, "Plant 4").first().getByRole("button", { name: "Ivy" }).click();
    await untilAt(page, "#/plants?tag=Ivy");
    await page.getByText("1,000 of").waitFor();
  });

  test("stays at its first row after Home, although more rows load", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Plant 0").first().waitFor();
    const gate = Promise.withResolvers<void>();
    await page.route("**/plants?*after=*", (route) => gate.promise.then(() => route.continue()));
    await page.getByRole("grid").focus();
    const loading = page.waitForRequest(/after=/);
    await page.keyboard.press("End");
    const request = await loading;
    await page.locator("#plants[aria-activedescendant=row-99]").waitFor();
    // On a slow machine the rows load before the scroll event.
    await page.evaluate(
      `addEventListener("scroll", (event) => event.stopImmediatePropagation(), true)`,
    );
    const top = `document.querySelector(".scroller").scrollTop`;
    await page.keyboard.press("Home");
    await untilSo(page, `${top} === 0`);
    gate.resolve();
    await (await request.response())?.finished();
    await page.evaluate("new Promise((end) => requestAnimationFrame(() => setTimeout(end)))");
    expect(await page.evaluate<number>(top)).toBe(0);
  });

  it("searches through many pages, and the address can be shared", async (visit) => {
    const { page, service } = await visit.open();
    await page.getByRole("searchbox").fill("NEEDLE");
    await rowOf(page, "Needle in a haystack").waitFor();
    await page.getByText("End of list").waitFor();
    expect(page.url()).toBe(`${service.url}/#/plants?q=NEEDLE`);

    await page.getByRole("searchbox").fill("no such plant");
    await page.getByText("No plant has “no such plant” in its name or tag.").waitFor();
    await page.getByRole("button", { name: "Show all plants" }).click();
    await rowOf(page, "Plant 0").first().waitFor();
    expect(await page.getByRole("searchbox").inputValue()).toBe("");
  });

  it("keeps filter, order, panel and place through Back, a reload and another view", async (visit) => {
    const rowHeight = visit.isPhone ? 64 : 36;
    await using view = await visit.open({ at: "#/plants?tag=fern" });
    const { page } = view;
    await rowOf(page, "Plant 0").first().waitFor();
    await page.getByLabel("Order").selectOption("Highest id first");
    await rowOf(page, "Plant 2997").waitFor();
    await page.getByRole("grid").focus();
    await page.keyboard.press("End");
    await untilSo(page, `document.querySelector(".grid-body").offsetHeight > ${rowHeight * 400}`);
    const scroller = page.locator(".scroller");
    await scroller.evaluate((element, top) => element.scrollTo(0, top), rowHeight * 300);
    await rowOf(page, "Plant 2094").waitFor();
    await openRow(page, "Plant 2094");
    await page.locator(".shown-name", { hasText: "Plant 2094" }).waitFor();
    await page.reload();
    await page.locator(".shown-name", { hasText: "Plant 2094" }).waitFor();
    await rowOf(page, "Plant 2094").waitFor();
    await untilAt(page, "#/plants/3094?tag=fern&order=desc");
    await uncover(page);
    await page.getByRole("link", { name: "Import" }).click();
    await page.getByRole("heading", { name: "Import" }).waitFor();
    await page.goBack();
    const top = `document.querySelector(".scroller")?.scrollTop`;
    await untilSo(page, `Math.abs(${top} - ${rowHeight * 300}) < ${rowHeight}`);
    await page.goForward();
    await page.getByRole("heading", { name: "Import" }).waitFor();
    await page.reload();
    await page.getByRole("link", { name: "Plants" }).click();
    await rowOf(page, "Plant 2094").waitFor();
    await untilAt(page, "#/plants?tag=fern&order=desc");
    for (let step = visit.isPhone ? -1 : 0; step < 3; step++) await page.goBack();
    await untilAt(page, "#/plants?tag=fern&order=desc");
    await page.goBack();
    await untilAt(page, "#/plants?tag=fern");
    await rowOf(page, "Plant 0").first().waitFor();
  });

  it("is exported as it is filtered", async (visit) => {
    const { page } = await visit.open({ at: "#/plants?tag=rare" });
    await rowOf(page, "Needle").waitFor();
    for (const [label, content] of [
      ["as CSV", 'id,name,tag\r\n5000,"Needle in a haystack","rare"\r\n'],
      ["as Excel CSV", '\ufeffid,name,tag\r\n5000,"Needle in a haystack","rare"\r\n'],
      ["as NDJSON", '{"id":5000,"name":"Needle in a haystack","tag":"rare"}\n'],
      ["as Excel workbook", '"id","name","tag"\n5000,"Needle in a haystack","rare"\n'],
    ] as const) {
      await page.getByRole("button", { name: "Export the list" }).click();
      const download = await saveFile(page, page.getByText(label));
      const file = Bun.file(await download.path());
      const isWorkbook = download.suggestedFilename().endsWith(".xlsx");
      const bytes = isWorkbook ? (await openWorkbook(file)).readRows() : file.stream();
      expect(Buffer.from(await new Response(bytes).bytes()).toString()).toBe(content);
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
      const { page, service } = await visit.open({ at: `#/plants?${filter}` });
      await rowOf(page, "Plant 2997").waitFor();
      await cutStreams(page, (route) => route.fallback());
      await page.getByRole("button", { name: "Export the list" }).click();
      const download = await saveFile(page, page.getByText(label));
      const headers = { accept, authorization: `Bearer ${TEST_TOKEN}` };
      const whole = await fetch(`${service.url}/plants?${filter}`, { headers });
      expect(await Bun.file(await download.path()).text()).toBe(await whole.text());
    });

  test("is not saved where the rest of a cut export cannot be had", async (visit) => {
    const { page, announceFailure } = await visit.open();
    announceFailure("/plants", "failed");
    await rowOf(page, "Plant 0").first().waitFor();
    let isSaved = false;
    page.on("download", () => {
      isSaved = true;
    });
    await cutStreams(page, (route) => route.abort());
    await page.getByRole("button", { name: "Export the list" }).click();
    await page.getByText("as CSV").click();
    await toastOf(page, "The export failed.").waitFor();
    expect(isSaved).toBe(false);
  });
});

describeInBrowser("a plant with the largest id of all", () => {
  it("is added, found, corrected, deleted and brought back, with every digit", async (visit) => {
    const { page, service } = await visit.open();
    await page.getByRole("link", { name: "Add plant" }).click();
    await fillNew(page, LARGEST, "Araucaria");
    await page.getByLabel("Tag (optional)").fill("tree");
    await page.getByRole("button", { name: "Add plant" }).click();
    await toastOf(page, "Added “Araucaria”").waitFor();
    expect(await service.findPlant(BigInt(LARGEST))).toMatchObject({
      name: "Araucaria",
      tag: "tree",
    });

    // There is none after the largest.
    await untilSo(page, "document.querySelector('#add-id').value === '5001'");

    await page.getByRole("searchbox").fill("arauc");
    await openRow(page, LARGEST);
    await edit(page, "Araucaria araucana");
    await page.getByRole("button", { name: "Save" }).click();
    await toastOf(page, "Changed").waitFor();
    await rowOf(page, "Araucaria araucana").waitFor();
    // The page has heard of its own change too, and has read the plant again.
    await page.locator(".entry", { hasText: "Changed by" }).waitFor();
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "Deleted").waitFor();
    await page.getByText("No plant has").waitFor();
    expect(await service.findPlant(BigInt(LARGEST))).toBeUndefined();

    await page.keyboard.press("u");
    await toastOf(page, "Restored").waitFor();
    await rowOf(page, LARGEST).waitFor();
    expect(await service.findPlant(BigInt(LARGEST))).toMatchObject({
      name: "Araucaria araucana",
      tag: "tree",
    });
  });
});

describeInBrowser("the form for a new plant", () => {
  it("says what is wrong before anything is sent, and who has an id", async (visit) => {
    const { page, announceFailure } = await visit.open({ at: "#/plants/new" });
    announceFailure("/plants", 409);
    const id = page.getByLabel("Id", { exact: true });
    for (const text of ["9223372036854775808", "-9223372036854775809", "1.5", "twelve", " "]) {
      await id.fill(text);
      await page.getByRole("button", { name: "Add plant" }).click();
      const fault = `Enter a whole number from -9223372036854775808 to ${LARGEST}.`;
      await page.locator(".field-fault", { hasText: fault }).waitFor();
      expect(await id.getAttribute("aria-invalid")).toBe("true");
    }
    await id.fill("1000");
    await page.getByText("Already belongs to").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("Another");
    await page.getByRole("button", { name: "Add plant" }).click();
    await page.getByText("Id 1000 already belongs to “Plant 0”").waitFor();
    await page.getByRole("link", { name: "Open that plant" }).click();
    await page.locator(".shown-name", { hasText: "Plant 0" }).waitFor();
  });

  it("sends again what got no answer, and nothing is doubled", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/new" });
    announceFailure("/plants", "failed");
    let lost = 0;
    // It arrives and is stored; the answer does not come back.
    await page.route("**/plants", async (route) => {
      if (route.request().method() !== "POST" || lost === 3) return route.fallback();
      lost++;
      await route.fetch();
      return route.abort("connectionreset");
    });
    await fillNew(page, "77", "Twice sent");
    await page.getByRole("button", { name: "Add plant" }).click();
    await page.getByText("Couldn't confirm the save. It's safe to try again.").waitFor();
    await page.getByRole("button", { name: "Try again" }).click();
    await toastOf(page, "was already there").waitFor();
    expect(lost).toBe(3);
    expect(await service.findPlant(77n)).toMatchObject({ name: "Twice sent" });
  });
});

describeInBrowser("a series of new plants", () => {
  it("counts on from the last one, keeps its tag, and mentions a namesake", async (visit) => {
    await sendPlant(visit.service.url, { id: 8_001n, name: "Taken", tag: null });
    const { page } = await visit.open({ at: "#/plants/new" });
    const id = page.getByLabel("Id", { exact: true });
    await page.getByLabel("Name", { exact: true }).fill("Plant 7");
    await page.getByRole("link", { name: "Plant 1007" }).waitFor();
    await id.fill("8000");
    await page.getByLabel("Tag (optional)").fill("series");
    await page.getByRole("button", { name: "Add plant" }).click();
    await toastOf(page, "Added “Plant 7”").waitFor();
    await untilSo(page, "document.querySelector('#add-id').value === '8002'");
    // The proposal comes back to a field that was emptied.
    await id.fill("");
    await page.getByLabel("Name", { exact: true }).focus();
    expect(await id.inputValue()).toBe("8002");
    expect(await page.getByLabel("Tag (optional)").inputValue()).toBe("series");
    await toastOf(page, "Added “Plant 7”").getByRole("button", { name: "Open" }).click();
    await page.locator(".label", { hasText: "8000" }).waitFor();
  });
});

describeInBrowser("a plant that a colleague changes meanwhile", () => {
  it("is not deleted unknowingly", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/1600" });
    await holdFeed(page);
    announceFailure("/plants/1600", 412);
    await page.getByRole("button", { name: "Delete" }).waitFor();
    await change(service, 1600, { name: "Precious" });
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "changed it. It isn't deleted yet.").waitFor();
    await page.locator(".shown-name", { hasText: "Precious" }).waitFor();
    expect(await service.findPlant(1600n)).toMatchObject({ name: "Precious" });
    // Who has seen it can delete it.
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "Deleted").waitFor();
  });

  it("keeps an empty tag and line breaks that were not touched", async (visit) => {
    await sendPlant(visit.service.url, { id: -5n, name: "Two\nlines", tag: "" });
    const { page, service } = await visit.open({ at: "#/plants/-5" });
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByText("This plant has an empty tag").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("Three\nlines");
    await page.getByRole("button", { name: "Save" }).click();
    await toastOf(page, "Changed").waitFor();
    expect(await service.findPlant(-5n)).toMatchObject({ name: "Three\nlines", tag: "" });
  });
});
