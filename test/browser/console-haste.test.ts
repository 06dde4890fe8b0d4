/** People who are quicker than the answers: nothing that they have typed or opened meanwhile is lost. */

import { expect } from "bun:test";
import type { Page } from "playwright-core";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { sendPlant } from "../support/service.ts";

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
    const { page, user } = await visit.open();
    const release = await user.hold("**/plants**", "GET");
    await user.press("n 7");
    const proposed = page.waitForResponse(/after=6&limit=100$/);
    release();
    await (await proposed).finished();
    await page.evaluate("new Promise(requestAnimationFrame)");
    await page.keyboard.type("31");
    expect(await user.field("Id").inputValue()).toBe("731");
  });

  test("types on after Enter in the search, and no other plant opens", async (visit) => {
    const { page, user } = await visit.open();
    const release = await user.hold("**/plants**", "GET");
    await user.search("2");
    await user.press("Enter 3");
    release();
    // Enter ends a search, so the next text replaces it, as the next code of a scanner has to.
    await user.see({ row: "Rose", text: "1 of 6 plants" });
    expect(await page.locator(".panel").count()).toBe(0);
    expect(await page.getByRole("searchbox").inputValue()).toBe("3");
  });

  test("corrects one plant after the other by keys", async (visit) => {
    const { page, user, service } = await visit.open();
    await page.getByRole("grid").focus();
    await user.press("Enter");
    for (const [id, name] of ["Quercus", "Ulmus"].entries()) {
      await user.untilAt(`#/plants/${id + 1}`);
      await user.see({ button: "Edit" });
      await user.press("e");
      const toast = id === 0 ? "Changed “Quercus”." : "Changed 2 plants.";
      await user.scan(name, { toast, button: "Edit" });
      await user.press("ArrowDown");
    }
    await user.untilAt("#/plants/3");
    // By clicks, the focus stays in the panel.
    await user.click(["Edit", "Cancel"], { element: "#panel-title:focus" });
    for (const [id, name] of ["Oak", "Elm"].entries())
      await service.store.replacePlant({ id: BigInt(id + 1), name, tag: "tree" }, {});
  });

  test("presses the next key at once, and it goes where it is meant to go", async (visit) => {
    const { page, user } = await visit.open();
    await page.getByRole("grid").focus();
    // The open plant follows the next key, and one that was closed does not.
    await pressAtOnce(page, "Enter", "ArrowDown");
    await user.see({ shown: "Elm" });
    await user.untilAt("#/plants/2");
    await pressAtOnce(page, "Escape", "ArrowDown");
    await page.locator("#plants[aria-activedescendant=row-2]").waitFor();
    await user.untilAt("#/plants");
    expect(await page.locator(".panel").count()).toBe(0);
    // What is typed next goes into the field that has just come.
    expect(await pressAtOnce(page, "n")).toBe("add-id");
    await user.openRow("Elm", { button: "Edit" });
    expect(await pressAtOnce(page, "e")).toBe("edit-name");
    await user.follow("Health", { heading: "Health" });
    expect(await pressAtOnce(page, "/")).toBe("search");
  });

  test("saves, and a late answer does not hide what someone else saved since", async (visit) => {
    const { user, service } = await visit.open({ at: "#/plants/4" });
    const release = await user.holdAnswer("**/plants/4", "PUT");
    await user.edit("Mine");
    await user.press("Enter", { row: "Mine" });
    await service.store.replacePlant({ id: 4n, name: "Theirs", tag: undefined }, {});
    await user.see({ row: "Theirs" });
    release();
    await user.see({ toast: "Changed “Mine”", shown: "Theirs", row: "Theirs" });
    await service.store.replacePlant({ id: 4n, name: "Rosemary", tag: undefined }, {});
  });

  it("opens another plant while a delete is in flight, and stays there", async (visit) => {
    const { user } = await visit.open({ at: "#/plants/6" });
    const release = await user.hold("**/plants**", "DELETE");
    await user.click("Delete");
    await user.openRow("Oak");
    await user.edit("Oak, in the making");
    release();
    await user.see({ toast: "Deleted" });
    expect(await user.field("Name").inputValue()).toBe("Oak, in the making");
    await user.click("Undo", { toast: "Restored" });
    expect(await user.field("Name").inputValue()).toBe("Oak, in the making");
  });

  it("begins a second correction before the first is saved, and keeps it", async (visit) => {
    const { user, service } = await visit.open({ at: "#/plants/2" });
    const release = await user.hold("**/plants**", "PUT");
    const name = user.field("Name");
    await user.edit("Elm one");
    await user.press("Enter Escape");
    await user.openRow("Elm");
    await name.fill("Elm two");
    release();
    await user.see({ toast: "Elm one" });
    expect(await name.inputValue()).toBe("Elm two");
    await user.press("Enter", { toast: "Elm two" });
    expect(await service.findPlant(2n)).toMatchObject({ name: "Elm two" });
  });

  test("begins the next plant while one is being sent, and keeps it", async (visit) => {
    const { user } = await visit.open({ at: "#/plants/new" });
    const release = await user.hold("**/plants**", "POST");
    await user.fillNew("100", "First");
    await user.click("Add plant");
    await user.fillNew("101", "Second");
    release();
    await user.see({ toast: "First" });
    expect(await user.field("Name").inputValue()).toBe("Second");
    // The next one does not wait for a free id either.
    await user.hold("**/plants**", "GET");
    for (const [id, name] of ["Second", "Third"].entries())
      await user.add(String(101 + id), name, { toast: `Added ${id + 2} plants.` });
  });

  test("ends the input of a Japanese word by a key, and it does nothing else", async (visit) => {
    const { page, user } = await visit.open();
    for (const id of ["search", "add-name"]) {
      if (id === "add-name") await user.follow("Add plant");
      await page.locator(`#${id}`).fill("1");
      await page.evaluate(`for (const key of ["ArrowDown", "Enter", "Escape"])
        document.activeElement.dispatchEvent(
          new KeyboardEvent("keydown", { key, isComposing: true, bubbles: true }))`);
      await page.locator(`#${id}:focus`).waitFor();
    }
    await user.untilAt("#/plants/new?q=1");
  });
});
