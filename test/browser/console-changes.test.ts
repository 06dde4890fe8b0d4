/** Changes that others make: the list and the open plant follow them, and what was lost is brought back. */

import { afterAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import {
  describeInBrowser,
  expectAccessible,
  openConsole,
  rowOf,
  startConsole,
  toastOf,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const service = await startConsole();
afterAll(() => service[Symbol.asyncDispose]());
for (let id = 101n; id <= 180n; id++)
  await sendPlant(service.url, { id, name: `Plant ${id}`, tag: "a" });

/** As a colleague does it. */
const send = (method: string, id: number, body?: object): Promise<Response> =>
  fetch(`${service.url}/plants/${id}`, {
    method,
    headers: { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

/** The browser shows another tab, or this one again. */
const setHidden = (page: Page, isHidden: boolean): Promise<unknown> =>
  page.evaluate(`Object.defineProperty(document, "hidden", { value: ${isHidden}, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"))`);

/** Each on plants of its own. */
const looks: readonly (readonly ["light" | "dark", { width: number; height: number }, number])[] = [
  ["light", { width: 1280, height: 800 }, 110],
  ["dark", { width: 390, height: 780 }, 120],
];

describeInBrowser("the list", () => {
  test("shows what others add, change and delete, and what one reads stays in its place", async () => {
    await using view = await openConsole(service);
    const { page } = view;
    await rowOf(page, "Plant 101").waitFor();
    await sendPlant(service.url, { id: 1n, name: "New at the top", tag: null });
    await rowOf(page, "New at the top").waitFor();
    await send("PUT", 102, { name: "Renamed" });
    await rowOf(page, "Renamed").waitFor();
    await send("DELETE", 102);
    await rowOf(page, "Renamed").waitFor({ state: "detached" });

    const scroller = page.locator(".scroller");
    await scroller.evaluate((element) => element.scrollTo(0, 700));
    const inSight = rowOf(page, "Plant 125");
    await inSight.waitFor();
    const { y } = (await inSight.boundingBox()) ?? {};
    await sendPlant(service.url, { id: 2n, name: "Second", tag: null });
    await page.locator("#plants .grid-body[style*='height: 2916px']").waitFor();
    expect((await inSight.boundingBox())?.y).toBe(y as number);
    await scroller.evaluate((element) => element.scrollTo(0, 0));
    await rowOf(page, "Plant 103").waitFor();

    // A hidden tab does not follow, and catches up when it is seen.
    const [ended] = await Promise.all([
      page.waitForEvent("requestfailed", (request) => request.url().includes("/changes?after=")),
      setHidden(page, true),
    ]);
    expect(ended.failure()?.errorText).toBe("net::ERR_ABORTED");
    await sendPlant(service.url, { id: 3n, name: "Meanwhile", tag: null });
    await setHidden(page, false);
    await rowOf(page, "Meanwhile").waitFor();

    // The list is read again if changes are missing.
    view.announceFailure("/changes", 410);
    await setHidden(page, true);
    await send("PUT", 103, { name: "Unheard of" });
    await page.route("**/changes?after=*", (route) => route.fulfill({ status: 410 }), { times: 1 });
    await setHidden(page, false);
    await rowOf(page, "Unheard of").waitFor();
  });
});

describeInBrowser("a plant that is open", () => {
  test.each(looks)(
    "shows what others make of it, and its history; an edit stays as it is, and says so: %s",
    async (colorScheme, viewport, id) => {
      await using view = await openConsole(service, {
        at: `#/plants/${id}`,
        colorScheme,
        viewport,
      });
      const { page } = view;
      await page.locator(".shown-name", { hasText: `Plant ${id}` }).waitFor();
      await send("PUT", id, { name: "Theirs" });
      await page.locator(".shown-name", { hasText: "Theirs" }).waitFor();
      await page.getByRole("button", { name: "Edit" }).click();
      const name = page.getByLabel("Name", { exact: true });
      await name.fill("Mine");
      await send("PUT", id, { name: "Theirs again" });
      await page.getByText("Someone else changed this plant. Your edit isn't saved yet.").waitFor();
      expect(await name.inputValue()).toBe("Mine");
      await page.getByRole("button", { name: "Overwrite with mine" }).click();
      await toastOf(page, "Saved “Mine”").waitFor();
      expect(await service.findPlant(BigInt(id))).toMatchObject({ name: "Mine" });

      // An earlier version is brought back from its history.
      await send("PUT", id + 1, { name: "Second version", tag: "b" });
      await page.goto(`${service.url}/#/plants/${id + 1}`);
      const entries = page.locator(".entry");
      await entries.filter({ hasText: /Changed by \w+ · \d+ \w+ \d{4}.*Second version/ }).waitFor();
      await expectAccessible(page);
      const first = entries.filter({ hasText: "Added by" });
      await first.getByRole("button", { name: "Bring back" }).click();
      await toastOf(page, `Brought back “Plant ${id + 1}”`).waitFor();
      expect(await service.findPlant(BigInt(id + 1))).toMatchObject({
        name: `Plant ${id + 1}`,
        tag: "a",
      });
      // What is current needs no button.
      await entries.nth(2).waitFor();
      expect(await page.getByRole("button", { name: "Bring back" }).count()).toBe(1);
    },
  );
});

describeInBrowser("a plant that was deleted", () => {
  test.each(looks)(
    "can be restored from Recently deleted and from its own page: %s",
    async (colorScheme, viewport, first) => {
      const [id, other] = [first + 400, first + 40];
      await sendPlant(service.url, { id: BigInt(id), name: `Lost ${id}`, tag: "b" });
      await send("DELETE", id);
      await using view = await openConsole(service, { colorScheme, viewport });
      const { page } = view;
      await page.getByRole("link", { name: "Recently deleted" }).click();
      const entry = page.locator(".entry", { hasText: `Lost ${id}` });
      await entry.waitFor();
      await expectAccessible(page);
      await entry.getByRole("button", { name: "Bring back" }).click();
      await toastOf(page, `Restored “Lost ${id}”`).waitFor();
      await entry.getByRole("button").waitFor({ state: "detached" });
      expect(await service.findPlant(BigInt(id))).toMatchObject({ tag: "b" });

      await send("DELETE", other);
      view.announceFailure(`/plants/${other}`, 404);
      await page.goto(`${service.url}/#/plants/${other}`);
      await page.getByText("There is no plant with this id").waitFor();
      await page.getByRole("button", { name: "Bring back" }).first().click();
      await page.locator(".shown-name", { hasText: `Plant ${other}` }).waitFor();
      expect(await service.findPlant(BigInt(other))).toMatchObject({ name: `Plant ${other}` });
    },
  );
});

describeInBrowser("a service that keeps no changes", () => {
  test("still shows the list, and says that there is no history", async () => {
    await using own = await startConsole({ PLANTSTORE_CHANGES_DAYS: "0" });
    await sendPlant(own.url, { id: 1n, name: "Rose", tag: null });
    await using view = await openConsole(own, { at: "#/plants/1", token: null });
    const { page } = view;
    view.announceFailure("/changes", 410);
    await page.getByLabel("Token").fill(TEST_TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await rowOf(page, "Rose").waitFor();
    await page.getByText("This store keeps no history.").waitFor();
  });
});
