/** People who are quicker than the answers: nothing that they have typed or opened meanwhile is lost. */

import { afterAll, expect } from "bun:test";
import type { Page } from "playwright-core";
import { openRow, describeInBrowser, rowOf, startJourneys, toastOf } from "../support/browser.ts";
import { sendPlant } from "../support/service.ts";

const journeys = await startJourneys({}, async ({ url }) => {
  for (const [index, name] of ["Oak", "Elm", "Rose", "Rosemary", "two\nlines", "Yew"].entries())
    await sendPlant(url, { id: BigInt(index + 1), name, tag: index < 2 ? "tree" : null });
});
const { journey, once } = journeys;
afterAll(() => journeys[Symbol.asyncDispose]());

/** Holds every such request back until it is let go. */
async function hold(page: Page, method: string): Promise<() => void> {
  const gate = Promise.withResolvers<void>();
  await page.route("**/plants**", async (route) => {
    if (route.request().method() === method) await gate.promise;
    await route.continue();
  });
  return gate.resolve;
}

describeInBrowser("somebody in a hurry", () => {
  once("types a name as slowly as the search begins, and every letter stays", async ({ open }) => {
    await using view = await open();
    const { page } = view;
    await rowOf(page, "Oak").waitFor();
    for (const delay of [175, 183, 190, 200]) {
      await page.getByRole("searchbox").fill("");
      await page.getByRole("searchbox").pressSequentially("rose", { delay });
      expect(await page.getByRole("searchbox").inputValue()).toBe("rose");
    }
  });

  journey(
    "goes on with another plant while one is being deleted, and stays there",
    async ({ open }) => {
      await using view = await open({ at: "#/plants/6" });
      const { page } = view;
      const release = await hold(page, "DELETE");
      await page.getByRole("button", { name: "Delete" }).click();
      await openRow(page, "Oak");
      await page.getByRole("button", { name: "Edit" }).click();
      await page.getByLabel("Name", { exact: true }).fill("Oak, in the making");
      release();
      await toastOf(page, "Deleted").waitFor();
      expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe(
        "Oak, in the making",
      );
      await page.getByRole("button", { name: "Undo" }).click();
      await toastOf(page, "Restored").waitFor();
      expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe(
        "Oak, in the making",
      );
    },
  );

  journey(
    "begins a second correction before the first is saved, and keeps it",
    async ({ service, open }) => {
      await using view = await open({ at: "#/plants/2" });
      const { page } = view;
      const release = await hold(page, "PUT");
      const name = page.getByLabel("Name", { exact: true });
      await page.getByRole("button", { name: "Edit" }).click();
      await name.fill("Elm one");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: "Continue editing" }).click();
      await name.fill("Elm two");
      release();
      await toastOf(page, "Elm one").waitFor();
      expect(await name.inputValue()).toBe("Elm two");
      await page.keyboard.press("Enter");
      await toastOf(page, "Elm two").waitFor();
      expect(await service.findPlant(2n)).toMatchObject({ name: "Elm two" });
    },
  );

  journey("begins the next plant while one is being sent, and keeps it", async ({ open }) => {
    await using view = await open({ at: "#/plants/new" });
    const { page } = view;
    const release = await hold(page, "POST");
    await page.getByLabel("Id", { exact: true }).fill("100");
    await page.getByLabel("Name", { exact: true }).fill("First");
    await page.getByRole("button", { name: "Add plant" }).click();
    await page.getByLabel("Id", { exact: true }).fill("101");
    await page.getByLabel("Name", { exact: true }).fill("Second");
    release();
    await toastOf(page, "First").waitFor();
    expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Second");
  });

  journey(
    "types over a name of several lines, and the keys stay in the field",
    async ({ open }) => {
      await using view = await open({ at: "#/plants/5" });
      const { page } = view;
      await page.getByRole("button", { name: "Edit" }).click();
      await page.keyboard.press("Control+A");
      await page.keyboard.type("Mint new");
      expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Mint new");
    },
  );

  journey(
    "presses Enter in the filter of tags without a tag, and still sees all plants",
    async ({ open }) => {
      await using view = await open();
      const { page } = view;
      await rowOf(page, "Oak").waitFor();
      await page.getByLabel("Filter by tag").click();
      await page.keyboard.press("Enter");
      expect(page.url()).not.toContain("tag=");
      await rowOf(page, "Oak").waitFor();
    },
  );
});
