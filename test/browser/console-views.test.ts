/** Every view of the console, in both themes: accessible, and within the width of a small phone. */

import { afterAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { joinWriter, nameBatch } from "../../src/domain/change.ts";
import {
  change,
  describeInBrowser,
  looks,
  openConsole,
  openRow,
  rowOf,
  signIn,
  startConsole,
  toastOf,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { chooseFile, edit, hold, press, start, untilSo } from "../support/steps.ts";

const service = await startConsole();
// Few of them, with long ids: a scan takes as long as the page has elements.
for (let id = 1n; id <= 12n; id++)
  await sendPlant(service.url, {
    id: id * 760_000_000_000_000_000n,
    name: `Plant ${id}`,
    tag: "a",
  });
await sendPlant(service.url, { id: 5n, name: "Rose", tag: "shrub" });
afterAll(() => service[Symbol.asyncDispose]());

async function visitEveryView(page: Page): Promise<void> {
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.getByLabel("Token").fill("pst_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".field-fault").waitFor();

  await signIn(page, TEST_TOKEN);
  await rowOf(page, "Rose").waitFor();
  await page.getByLabel("Filter by tag").click();
  await page.getByRole("option", { name: "shrub" }).waitFor();
  await page.getByRole("checkbox", { name: "Select “Rose" }).check();
  await page.getByText("1 selected").waitFor();
  await page.getByRole("searchbox").fill("5");
  await page.getByRole("row", { name: "Rose" }).waitFor();
  await page.getByRole("searchbox").fill("12");
  await page.getByRole("link", { name: "Add a plant with id 12" }).waitFor();
  await page.getByRole("searchbox").fill("");
  await rowOf(page, "Rose").waitFor();

  await page.getByRole("button", { name: "Export the list" }).click();
  const item = page.getByRole("button", { name: /as Excel workbook/ });
  await item.waitFor();
  expect((await item.boundingBox())?.x).toBeGreaterThan(0);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /Signed in as/ }).click();
  await page.getByText("API reference").waitFor();
  const facts = page.locator(".menu-panel:popover-open dl");
  expect(await facts.innerText()).toMatch(/Expires:\s+never/);
  await page.locator(".menu-panel dd", { hasText: "PLANTSTORE_TOKEN" }).waitFor();
  const excess = `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector(".account span"))`;
  expect(await page.evaluate<number>(`innerWidth > 900 ? 0 : ${excess}`)).toBe(0);
  await press(page, "Escape", "?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");

  await openRow(page, "Rose");
  await page.locator(".shown-name").waitFor();
  await edit(page, "Rosa ");
  await change(service, 5, { name: `Rose, changed ${Date.now()}`, tag: "shrub" });
  await page.getByRole("alert").getByText("Yours:").waitFor();
  await page.goto(`${service.url}/#/plants/6`);
  await page.getByText("There is no plant with this id").waitFor();
  await page.goto(`${service.url}/#/plants?q=nothing&tag=a`);
  await page.getByRole("heading", { name: "No match" }).waitFor();

  await page.goto(`${service.url}/#/plants/new`);
  await page.getByLabel("Id", { exact: true }).fill("99999999999999999999");
  await page.getByRole("button", { name: "Add plant" }).click();
  await page.locator(".field-fault").waitFor();
  await page.getByLabel("Id", { exact: true }).fill("5");
  await page.getByRole("button", { name: "Add plant" }).click();
  await page.getByText("The name is empty").waitFor();
  await page.getByRole("button", { name: "Add anyway" }).click();
  await page.getByText("Id 5 already belongs to").waitFor();

  await page.goto(`${service.url}/#/import`);
  await page.getByRole("heading", { name: "Drop a file here" }).waitFor();
  const file = "id,name,tag\n71,Oak,tree\nx,Bad,tree\n9223372036854775807,Ash,\n";
  await chooseFile(page, "plants.csv", file);
  await page.getByRole("cell", { name: "Oak" }).waitFor();
  const release = await hold(page.context(), "**/plants/batch*");
  await start(page);
  await page.getByRole("progressbar").waitFor();
  release();
  await page.getByText(/(was|were) refused/).waitFor();

  await page.goto(`${service.url}/#/health`);
  await page.locator(".chart svg").first().waitFor();
  await page.goto(`${service.url}/#/tokens`);
  await page.getByRole("heading", { name: "Tokens", exact: true }).waitFor();
  await page.getByRole("button", { name: "New token" }).click();
  await page.getByRole("dialog", { name: "New token" }).waitFor();
  await page.keyboard.press("Escape");

  await sendPlant(service.url, { id: 8n, name: "Fern", tag: "a" });
  await service.store.removePlant(8n, {}, joinWriter("Anna Müller", nameBatch("Clean-up")));
  await page.goto(`${service.url}/#/changes`);
  await page.getByRole("link", { name: "Clean-up" }).first().waitFor();
  await page.getByRole("button", { name: "Undo Clean-up" }).first().click();
  await page.getByRole("cell", { name: "Fern · a" }).waitFor();
  await page.keyboard.press("Escape");
}

describeInBrowser("in the console,", () => {
  // The journeys have the other two of the four looks.
  test.each([
    ["dark", { width: 960, height: 800 }],
    ["light", { width: 320, height: 640 }],
  ] as const)(
    "every view of the console is accessible and fits: %s, %j",
    async (colorScheme, viewport) => {
      await using view = await openConsole(service, {
        token: null,
        colorScheme,
        viewport,
        isJudgedThroughout: true,
      });
      view.announceFailure("/token", 401);
      view.announceFailure("/plants", 409);
      view.announceFailure("/plants/6", 404);
      await visitEveryView(view.page);
    },
  );

  test("the list beside an open plant shows names that can be read, 1000 pixels wide", async () => {
    const { page } = await openConsole(service, {
      at: "#/plants/5",
      viewport: { width: 1000, height: 700 },
    });
    await page.locator(".shown-name").waitFor();
    await rowOf(page, "Plant 1").first().waitFor();
    // The list is measured once more after it was drawn.
    await untilSo(
      page,
      `(() => {
        const { x, width } = document.querySelector("#row-1 .row-name").getBoundingClientRect();
        const head = document.querySelector("[role=columnheader]:nth-child(3)");
        return width > 300 && head.textContent === "Name" && head.getBoundingClientRect().x === x;
      })()`,
    );
  });

  test("a menu closes when Tab leaves it", async () => {
    const { page } = await openConsole(service);
    const last = page.getByRole("button", { name: /as NDJSON/ });
    const menu = page.getByRole("button", { name: "Export the list" });
    await menu.click();
    await last.focus();
    await page.keyboard.press("Tab");
    await last.waitFor({ state: "hidden" });
    await menu.click();
    await last.waitFor();
    await menu.click();
    await last.waitFor({ state: "hidden" });
  });

  test("a toast covers no button of the view, 390 pixels wide", async () => {
    await sendPlant(service.url, { id: 7n, name: "Fern", tag: "a" });
    const viewport = { width: 390, height: 700 };
    const { page } = await openConsole(service, { at: "#/plants/7", viewport });
    await page.getByRole("button", { name: "Delete" }).click();
    // It stays while it has the focus, however long the scans take.
    await toastOf(page, "Deleted").getByRole("button", { name: "Undo" }).focus();
    await page.goto(`${service.url}/#/import`);
    await chooseFile(page, "plants.csv", "id,name\n71,Oak\n72,Ash\n73,Elm\n");
    await page.getByRole("cell", { name: "Oak", exact: true }).waitFor();
    const found = await page.evaluate<string>(`(() => {
      const button = document.querySelector("main .button-main");
      button.scrollIntoView({ block: "end" });
      const { x, y, width, height } = button.getBoundingClientRect();
      return document.elementFromPoint(x + width / 2, y + height / 2).textContent;
    })()`);
    expect(found).toBe("Start import");
    const box = await toastOf(page, "Deleted").boundingBox();
    expect(box?.y).toBeGreaterThan(viewport.height / 2);
    await toastOf(page, "Deleted").waitFor();
  });

  test("single-key shortcuts can be turned off, and stay off in this browser", async () => {
    const { page } = await openConsole(service);
    await rowOf(page, "Rose").waitFor();
    await page.keyboard.press("?");
    await page.getByLabel("Use single-key shortcuts").uncheck();
    await page.keyboard.press("Escape");
    for (const key of ["n", "/", "?"]) await page.keyboard.press(key);
    await page.reload();
    await rowOf(page, "Rose").waitFor();
    // The digits of a code are no keys for the search either.
    await press(page, "n", "1", "2");
    expect(await page.locator("#search").inputValue()).toBe("");
    expect(page.url()).not.toContain("new");
    expect(await page.getByRole("dialog").count()).toBe(0);
    await page.getByRole("button", { name: /Signed in as/ }).click();
    await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
    await page.getByLabel("Use single-key shortcuts").check();
    await press(page, "Escape", "n");
    await page.getByRole("heading", { name: "Add a plant" }).waitFor();
    expect(await page.evaluate<number>("localStorage.length")).toBe(0);
  });

  test("forced colours keep the marks of the current view, the open plant and what is selected", async () => {
    const { page } = await openConsole(service, { at: "#/plants/5" });
    await page.emulateMedia({ forcedColors: "active" });
    await rowOf(page, "Rose").waitFor();
    await page.getByRole("checkbox", { name: "Select “Plant 1”" }).check();
    const marks = await page.evaluate<string[]>(`
      [".tab[aria-current]", ".row[aria-current]", ".row[aria-selected=true]"].map(
        (selector) => getComputedStyle(document.querySelector(selector)).outlineStyle)`);
    expect(marks).toEqual(["solid", "solid", "solid"]);
  });

  test.each(looks)(
    "under a base path, an empty store is accessible, and files, data and worker come from there: %s",
    async (_, look) => {
      await using shop = await startConsole({ PLANTSTORE_BASE_PATH: "/shop" });
      await using view = await openConsole(shop, { ...look, isJudgedThroughout: true });
      const { page } = view;
      await page.getByRole("heading", { name: "No plants yet" }).waitFor();
      await page.goto(`${shop.url}/#/import`);
      await chooseFile(page, "one.ndjson", '{"id":1,"name":"Rose"}\n');
      await start(page);
      await page.getByText("Import complete").waitFor();
    },
  );
});
