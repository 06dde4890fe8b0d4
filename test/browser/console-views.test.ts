/** Every view of the console, in both themes: accessible, and within the width of a small phone. */

import { expect } from "bun:test";
import { nameBatch } from "../../src/domain/change.ts";
import { change, describeInBrowser, startJourneys } from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const { test } = await startJourneys({}, async ({ url }) => {
  // Few of them, with long ids: a scan takes as long as the page has elements.
  for (let id = 1n; id <= 12n; id++)
    await sendPlant(url, { id: id * 760_000_000_000_000_000n, name: `Plant ${id}`, tag: "a" });
  await sendPlant(url, { id: 5n, name: "Rose", tag: "shrub" });
});
const shop = await startJourneys({ PLANTSTORE_BASE_PATH: "/shop" });

describeInBrowser("in the console,", () => {
  // The journeys have the other two of the four looks.
  for (const [colorScheme, width, height] of [
    ["dark", 960, 800],
    ["light", 320, 640],
  ] as const)
    test(`every view of the console is accessible and fits: ${colorScheme}, ${width} pixels wide`, async (visit) => {
      const viewport = { width, height };
      // The times of this locale are the longest, and fields are larger for a finger.
      const look = { colorScheme, viewport, locale: "en-US", hasTouch: width < 720 };
      const { page, user, service, announceFailure } = await visit.open({
        ...look,
        token: null,
        isJudgedThroughout: true,
      });
      announceFailure("/token", 401);
      announceFailure("/plants", 409);
      announceFailure("/plants/6", 404);
      await user.see({ heading: "Sign in" });
      await page.getByLabel("Token").fill("pst_wrong");
      await user.click("Sign in", { element: ".field-fault" });

      await user.signIn(TEST_TOKEN, { row: "Rose" });
      await page.getByLabel("Filter by tag").click();
      await user.see({ option: "shrub" });
      await user.press("Escape");
      await page.getByRole("checkbox", { name: "Select “Rose" }).check();
      await user.see({ text: "1 selected" });
      // On a phone the actions have the place of the search.
      await user.click("Select none");
      await user.search("5");
      await page.getByRole("row", { name: "Rose" }).waitFor();
      await user.search("12", { link: "Add a plant with id 12" });
      await user.search("", { row: "Rose" });

      await user.click("Export the list");
      const item = page.getByRole("button", { name: /as Excel workbook/ });
      await item.waitFor();
      expect((await item.boundingBox())?.x).toBeGreaterThan(0);
      await user.press("Escape");
      await user.click(/Signed in as/, { text: "API reference" });
      const facts = page.locator(".menu-panel:popover-open dl");
      expect(await facts.innerText()).toMatch(/Expires:\s+never/);
      await page.locator(".menu-panel dd", { hasText: "PLANTSTORE_TOKEN" }).waitFor();
      const excess = `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector(".account span"))`;
      expect(await page.evaluate<number>(`innerWidth > 900 ? 0 : ${excess}`)).toBe(0);
      await user.press("Escape ?");
      await page.getByRole("dialog").waitFor();
      await user.press("Escape");

      await user.openRow("Rose", { element: ".shown-name" });
      await user.edit("Rosa ");
      await change(service, 5, { name: `Rose, changed ${Date.now()}`, tag: "shrub" });
      await page.getByRole("alert").getByText("Yours:").waitFor();
      await user.goTo("#/plants/6", { text: "There is no plant with this id" });
      await user.goTo("#/plants?q=nothing&tag=a", { heading: "No match" });

      await user.goTo("#/plants/new");
      await user.field("Id").fill("99999999999999999999");
      await user.click("Add plant", { element: ".field-fault" });
      await user.field("Id").fill("5");
      await user.click("Add plant", { text: "The name is empty" });
      await user.click("Add anyway", { text: "Id 5 already belongs to" });

      await user.goTo("#/import", { heading: "Drop a file here" });
      const file = "id,name,tag\n71,Oak,tree\nx,Bad,tree\n9223372036854775807,Ash,\n";
      await user.chooseFile("plants.csv", file, { cell: "Oak" });
      const release = await user.hold("**/plants/batch*");
      await user.click("Start import");
      await page.getByRole("progressbar").waitFor();
      release();
      await user.see({ text: /(was|were) refused/ });

      await user.goTo("#/overview", { element: ".tag-bar >> nth=0" });
      await page.locator(".brush").waitFor();
      await page.getByText("As a table").click();
      await user.goTo("#/health", { element: ".chart svg >> nth=0" });
      await user.goTo("#/tokens", { heading: /^Tokens$/ });
      await user.click("New token", { dialog: "New token" });
      await user.press("Escape");

      const tag = "a tag of many words, which is wider than a phone";
      await sendPlant(service.url, { id: 8n, name: "Fern", tag });
      const writer = { token: "Anna Müller", batch: nameBatch("Clean-up") };
      await service.store.removePlant(8n, {}, writer);
      await user.goTo("#/changes");
      // As cards on a phone too.
      await page.getByRole("cell").getByRole("link", { name: "Clean-up" }).first().waitFor();
      await page.getByRole("button", { name: "Undo Clean-up" }).first().click();
      await user.see({ cell: `Fern · ${tag}` });
      await user.press("Escape");
    });

  test("the list beside an open plant shows names that can be read, 1000 pixels wide", async (visit) => {
    const viewport = { width: 1000, height: 700 };
    const { user } = await visit.open({ at: "#/plants/5", viewport });
    await user.see({ element: ".shown-name" });
    // The list is measured once more after it was drawn.
    await user.untilSo(
      `(() => {
        const { x, width } = document.querySelector("#row-1 .row-name").getBoundingClientRect();
        const head = document.querySelector("[role=columnheader]:nth-child(3)");
        return width > 300 && head.textContent === "Name" && head.getBoundingClientRect().x === x;
      })()`,
    );
  });

  test("a finger on a name opens the plant, wherever it touches the name, 320 pixels wide", async (visit) => {
    const viewport = { width: 320, height: 640 };
    const { page, user } = await visit.open({ viewport, hasTouch: true, isMobile: true });
    const [name, tag] = await Promise.all([
      user.row("Rose").getByRole("link").boundingBox(),
      user.row("Rose").getByText("shrub").boundingBox(),
    ]);
    if (name === null || tag === null) throw new Error("The row is not on the page.");
    // The lower edge of the name, above the tag.
    await page.touchscreen.tap(tag.x + 4, name.y + name.height - 2);
    await user.see({ shown: /^Rose/ });
    expect(page.url()).not.toContain("tag=");
  });

  test("a finger selects from here to there, and the list has most of the screen, 320 pixels wide", async (visit) => {
    const viewport = { width: 320, height: 640 };
    const { page, user } = await visit.open({ viewport, hasTouch: true, isMobile: true });
    const checks = page.locator("#plants [role=row][id] .row-check");
    await checks.nth(1).tap();
    await user.click("Select from here to the next one you tick");
    await checks.nth(4).tap();
    await user.see({ text: "4 selected" });
    const scroller = await page.locator(".scroller").boundingBox();
    expect(scroller?.height).toBeGreaterThan(280);
    // The page itself does not scroll beside it.
    await user.untilSo("(({ scrollHeight, clientHeight }) => scrollHeight === clientHeight)(main)");
    await user.click("Select none");
    await user.see({ heading: "Plants" });
  });

  test("a toast covers nothing of an open plant, 320 pixels wide", async (visit) => {
    const viewport = { width: 320, height: 640 };
    const at = "#/plants/5";
    const { page, user } = await visit.open({ at, viewport, hasTouch: true, isMobile: true });
    await user.edit("Rose again");
    await user.click("Save", { toast: "Changed" });
    await user.toast("Changed").getByRole("button", { name: "Undo" }).focus();
    const [panel, toast] = [page.locator(".panel"), user.toast("Changed")];
    const [above, below] = [await panel.boundingBox(), await toast.boundingBox()];
    expect((above?.y ?? 0) + (above?.height ?? 640)).toBeLessThanOrEqual(below?.y ?? 0);
    await user.click("Undo", { shown: "Rose" });
  });

  test("a menu closes when Tab leaves it", async (visit) => {
    const { page, user } = await visit.open();
    const last = page.getByRole("button", { name: /Print/ });
    await user.click("Export the list");
    await last.focus();
    await user.press("Tab");
    await last.waitFor({ state: "hidden" });
    await user.click("Export the list", { button: /Print/ });
    await user.click("Export the list");
    await last.waitFor({ state: "hidden" });
  });

  test("a toast covers no button of the view, 390 pixels wide", async (visit) => {
    await sendPlant(visit.service.url, { id: 7n, name: "Fern", tag: "a" });
    const viewport = { width: 390, height: 700 };
    const { page, user } = await visit.open({ at: "#/plants/7", viewport });
    await user.click("Delete");
    // It stays while it has the focus, however long the scans take.
    await user.toast("Deleted").getByRole("button", { name: "Undo" }).focus();
    await user.goTo("#/import");
    await user.chooseFile("plants.csv", "id,name\n71,Oak\n72,Ash\n73,Elm\n");
    await page.getByRole("cell", { name: "Oak", exact: true }).waitFor();
    const found = await page.evaluate<string>(`(() => {
      const button = document.querySelector("main .button-main");
      button.scrollIntoView({ block: "end" });
      const { x, y, width, height } = button.getBoundingClientRect();
      return document.elementFromPoint(x + width / 2, y + height / 2).textContent;
    })()`);
    expect(found).toBe("Start import");
    const box = await user.toast("Deleted").boundingBox();
    expect(box?.y).toBeGreaterThan(viewport.height / 2);
    await user.see({ toast: "Deleted" });
  });

  test("light or dark is chosen by hand, and stays in this browser", async (visit) => {
    const { page, user } = await visit.open({ colorScheme: "light" });
    const isDark = (value: boolean): Promise<void> =>
      user.untilSo(
        `(getComputedStyle(document.body).backgroundColor === "rgb(20, 24, 19)") === ${value}`,
      );
    await isDark(false);
    await user.click(/Signed in as/);
    await page.getByLabel("Appearance").selectOption("Dark");
    await isDark(true);
    await user.reload({ row: "Rose" });
    await isDark(true);
    await user.click(/Signed in as/);
    await page.getByLabel("Appearance").selectOption("System");
    await isDark(false);
  });

  test("single-key shortcuts can be turned off, and stay off in this browser", async (visit) => {
    const { page, user } = await visit.open();
    await user.press("?");
    await page.getByLabel("Use single-key shortcuts").uncheck();
    await user.press("Escape n / ?");
    await user.reload({ row: "Rose" });
    // The digits of a code are no keys for the search either.
    await user.press("n 1 2");
    expect(await page.locator("#search").inputValue()).toBe("");
    expect(page.url()).not.toContain("new");
    expect(await page.getByRole("dialog").count()).toBe(0);
    await user.click([/Signed in as/, "Keyboard shortcuts"]);
    await page.getByLabel("Use single-key shortcuts").check();
    await user.press("Escape n", { heading: "Add a plant" });
    // Beside the list, letters are keys again.
    await user.press("Escape c", { heading: "Changes" });
    await user.press("m", { text: "API reference" });
    await page.keyboard.press("Tab");
    await user.untilSo("document.activeElement.closest('.menu-panel') !== null");
    await user.press("Escape /", { element: "#search:focus" });
    expect(await page.evaluate<string>(`localStorage.getItem("plantstore.shortcuts /")`)).toBe(
      '"on"',
    );
  });

  test("forced colours keep the marks of the current view, the open plant and what is selected", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/5" });
    await page.emulateMedia({ forcedColors: "active" });
    await page.getByRole("checkbox", { name: "Select “Plant 1”" }).check();
    const marks = await page.evaluate<string[]>(`
      [".tab[aria-current]", ".row[aria-current]", ".row[aria-selected=true]"].map(
        (selector) => getComputedStyle(document.querySelector(selector)).outlineStyle)`);
    expect(marks).toEqual(["solid", "solid", "solid"]);
  });

  shop.it(
    "under a base path, an empty store is accessible, and files, data and worker come from there",
    async (visit) => {
      const { user } = await visit.open({ isJudgedThroughout: true });
      await user.see({ heading: "No plants yet" });
      await user.goTo("#/import");
      await user.chooseFile("one.ndjson", '{"id":1,"name":"Rose"}\n');
      await user.click("Start import", { text: "Import complete" });
    },
  );
});
