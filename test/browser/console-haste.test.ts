/** People who are quicker than the answers: nothing that they have typed or opened meanwhile is lost. */

import { expect } from "bun:test";
import type { Page } from "playwright-core";
import { describeInBrowser, openRow, rowOf, startJourneys, toastOf } from "../support/browser.ts";
import { sendPlant } from "../support/service.ts";
import { edit, fillNew, hold, press, untilAt } from "../support/steps.ts";

const { it, test } = await startJourneys({}, async ({ url }) => {
  for (const [index, name] of ["Oak", "Elm", "Rose", "Rosemary", "two\nlines", "Yew"].entries())
    await sendPlant(url, { id: BigInt(index + 1), name, tag: index < 2 ? "tree" : null });
});

/** As a scanner sends them: the browser does nothing between two keys. Resolves to what has the focus then. */
const pressAtOnce = (page: Page, ...keys: readonly string[]): Promise<string> =>
  page.evaluate<string>(`(async () => {
    for (const key of ${JSON.stringify(keys)}) {
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      await undefined;
    }
    return document.activeElement.id;
  })()`);

describeInBrowser("somebody in a hurry", () => {
  test("scans a code that begins like the proposed id, and all of it is kept", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Oak").waitFor();
    const release = await hold(page, "**/plants**", "GET");
    await page.keyboard.press("n");
    await page.keyboard.type("7");
    const proposed = page.waitForResponse(/after=6&limit=100$/);
    release();
    await (await proposed).finished();
    await page.evaluate("new Promise(requestAnimationFrame)");
    await page.keyboard.type("31");
    expect(await page.getByLabel("Id", { exact: true }).inputValue()).toBe("731");
  });

  test("types on after Enter in the search, and no other plant opens", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Oak").waitFor();
    const release = await hold(page, "**/plants**", "GET");
    await page.getByRole("searchbox").fill("2");
    await page.keyboard.press("Enter");
    await page.keyboard.type("3");
    release();
    // Enter ends a search, so the next text replaces it, as the next code of a scanner has to.
    await rowOf(page, "Rose").waitFor();
    await page.getByText("1 of 6 plants").waitFor();
    expect(await page.locator(".panel").count()).toBe(0);
    expect(await page.getByRole("searchbox").inputValue()).toBe("3");
  });

  test("corrects one plant after the other by keys", async (visit) => {
    const { page, service } = await visit.open();
    await rowOf(page, "Oak").waitFor();
    await page.getByRole("grid").focus();
    await page.keyboard.press("Enter");
    for (const [id, name] of ["Quercus", "Ulmus"].entries()) {
      await untilAt(page, `#/plants/${id + 1}`);
      await page.getByRole("button", { name: "Edit" }).waitFor();
      await page.keyboard.press("e");
      await page.keyboard.type(name);
      await page.keyboard.press("Enter");
      await toastOf(page, `Changed “${name}”`).waitFor();
      await page.getByRole("button", { name: "Edit" }).waitFor();
      await page.keyboard.press("ArrowDown");
    }
    await untilAt(page, "#/plants/3");
    // By clicks, the focus stays in the panel.
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.locator("#panel-title:focus").waitFor();
    for (const [id, name] of ["Oak", "Elm"].entries())
      await service.store.replacePlant({ id: BigInt(id + 1), name, tag: "tree" }, {});
  });

  test("presses the next key at once, and it goes where it is meant to go", async (visit) => {
    const { page } = await visit.open();
    await rowOf(page, "Oak").waitFor();
    await page.getByRole("grid").focus();
    // The open plant follows the next key, and one that was closed does not.
    await pressAtOnce(page, "Enter", "ArrowDown");
    await page.locator(".shown-name", { hasText: "Elm" }).waitFor();
    await untilAt(page, "#/plants/2");
    await pressAtOnce(page, "Escape", "ArrowDown");
    await page.locator("#plants[aria-activedescendant=row-2]").waitFor();
    await untilAt(page, "#/plants");
    expect(await page.locator(".panel").count()).toBe(0);
    // What is typed next goes into the field that has just come.
    expect(await pressAtOnce(page, "n")).toBe("add-id");
    await openRow(page, "Elm");
    await page.getByRole("button", { name: "Edit" }).waitFor();
    expect(await pressAtOnce(page, "e")).toBe("edit-name");
    await page.getByRole("link", { name: "Health" }).click();
    await page.getByRole("heading", { name: "Health" }).waitFor();
    expect(await pressAtOnce(page, "/")).toBe("search");
  });

  test("saves, and a late answer does not hide what someone else saved since", async (visit) => {
    const { service } = visit;
    const { page } = await visit.open({ at: "#/plants/4" });
    const gate = Promise.withResolvers<void>();
    await page.route("**/plants/4", async (route) => {
      if (route.request().method() !== "PUT") return route.fallback();
      const response = await route.fetch();
      await gate.promise;
      await route.fulfill({ response });
    });
    await edit(page, "Mine");
    await page.keyboard.press("Enter");
    await rowOf(page, "Mine").waitFor();
    await service.store.replacePlant({ id: 4n, name: "Theirs", tag: undefined }, {});
    await rowOf(page, "Theirs").waitFor();
    gate.resolve();
    await toastOf(page, "Changed “Mine”").waitFor();
    await page.locator(".shown-name", { hasText: "Theirs" }).waitFor();
    await rowOf(page, "Theirs").waitFor();
    await service.store.replacePlant({ id: 4n, name: "Rosemary", tag: undefined }, {});
  });

  it("opens another plant while a delete is in flight, and stays there", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/6" });
    const release = await hold(page, "**/plants**", "DELETE");
    await page.getByRole("button", { name: "Delete" }).click();
    await openRow(page, "Oak");
    await edit(page, "Oak, in the making");
    release();
    await toastOf(page, "Deleted").waitFor();
    expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Oak, in the making");
    await page.getByRole("button", { name: "Undo" }).click();
    await toastOf(page, "Restored").waitFor();
    expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Oak, in the making");
  });

  it("begins a second correction before the first is saved, and keeps it", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/2" });
    const release = await hold(page, "**/plants**", "PUT");
    const name = page.getByLabel("Name", { exact: true });
    await edit(page, "Elm one");
    await press(page, "Enter", "Escape");
    await openRow(page, "Elm");
    await name.fill("Elm two");
    release();
    await toastOf(page, "Elm one").waitFor();
    expect(await name.inputValue()).toBe("Elm two");
    await page.keyboard.press("Enter");
    await toastOf(page, "Elm two").waitFor();
    expect(await service.findPlant(2n)).toMatchObject({ name: "Elm two" });
  });

  test("begins the next plant while one is being sent, and keeps it", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/new" });
    const release = await hold(page, "**/plants**", "POST");
    await fillNew(page, "100", "First");
    await page.getByRole("button", { name: "Add plant" }).click();
    await fillNew(page, "101", "Second");
    release();
    await toastOf(page, "First").waitFor();
    expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Second");
    // The next one does not wait for a free id either.
    await hold(page, "**/plants**", "GET");
    for (const [id, name] of ["Second", "Third"].entries()) {
      await fillNew(page, String(101 + id), name);
      await page.keyboard.press("Enter");
      await toastOf(page, `Added ${id + 2} plants.`).waitFor();
    }
  });

  test("ends the input of a Japanese word by a key, and it does nothing else", async (visit) => {
    const { page } = await visit.open();
    for (const id of ["search", "add-name"]) {
      if (id === "add-name") await page.getByRole("link", { name: "Add plant" }).click();
      await page.locator(`#${id}`).fill("1");
      await page.evaluate(`for (const key of ["ArrowDown", "Enter", "Escape"])
        document.activeElement.dispatchEvent(
          new KeyboardEvent("keydown", { key, isComposing: true, bubbles: true }))`);
      await page.locator(`#${id}:focus`).waitFor();
    }
    await untilAt(page, "#/plants/new?q=1");
  });
});
