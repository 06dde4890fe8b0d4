/** A question is about what it was asked about, in its own number, and ends when the page shows something else. */

import { expect } from "bun:test";
import type { Locator } from "playwright-core";
import { nameBatch } from "../../src/domain/change.ts";
import { change, describeInBrowser, startJourneys, storePlants } from "../support/browser.ts";
import { send, sendPlant, type TestService } from "../support/service.ts";
import type { User } from "../support/steps.ts";
import { until } from "../support/until.ts";

/** Each test changes plants of a kind of its own. */
const kinds = ["Ficus", "Fern", "Rose", "Oak", "Ivy"] as const;
const KIND_LENGTH = 120;

const { test } = await startJourneys({}, (service) =>
  storePlants(service, kinds.length * KIND_LENGTH, (index) => ({
    id: index + 1,
    name: `${kinds[Math.floor(index / KIND_LENGTH)]} ${index + 1}`,
    tag: "old",
  })),
);

const check = (user: User, name: string, modifiers: "Shift"[] = []): Promise<void> =>
  user.page.getByRole("checkbox", { name: `Select “${name}”` }).click({ modifiers });

async function findIds(service: TestService, q: string): Promise<number[]> {
  const found = await send(service, "GET", `/plants?q=${q}`);
  return ((await found.json()) as { readonly id: number }[]).map(({ id }) => id);
}

/** Resolves to the dialog. */
async function askToDelete(user: User, count: number): Promise<Locator> {
  await user.within(user.page.locator(".selection")).click("Delete");
  const dialog = user.page.getByRole("dialog", { name: `Delete ${count} plants?` });
  await dialog.waitFor();
  return dialog;
}

/** Another selection than the one that was asked about has no question. */
async function expectNoQuestion(user: User, name: string): Promise<void> {
  await check(user, name);
  await user.see({ text: "1 selected" });
  expect(await user.page.getByRole("dialog").count()).toBe(0);
}

describeInBrowser("a question about all that match", () => {
  test("ends when the browser goes back, and is not there again for another selection", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants" });
    await user.search("ficus", { text: /^120 of \d+ plants$/ });
    await user.selectAll();
    const dialog = await askToDelete(user, 120);
    await page.goBack();
    await dialog.waitFor({ state: "detached" });
    await user.see({ text: /^\d+ plants$/ });
    await expectNoQuestion(user, "Ficus 1");
    expect((await service.store.countPlants({ q: "ficus" })).count).toBe(120);
  });
});

describeInBrowser("a question about a search for accents alone", () => {
  test("says that every plant matches it", async (visit) => {
    const { user } = await visit.open({ at: "#/plants?q=%CC%81" });
    await user.selectAll();
    await user.within(user.page.locator(".selection")).click("Delete");
    await user.see({ dialog: /^Delete \d+ plants\?$/, text: "These are all plants in the store." });
    await user.click("Cancel");
  });
});

describeInBrowser("a question about picked plants", () => {
  test("leaves out those that others change, and so does its answer", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants?q=oak" });
    await check(user, "Oak 361");
    const last = page.getByRole("checkbox", { name: "Select “Oak 470”" });
    await page.getByRole("grid").hover();
    await until("the plant is listed", async () => {
      await page.mouse.wheel(0, 400);
      return last.isVisible();
    });
    await last.click({ modifiers: ["Shift"] });
    await user.see({ text: "110 selected" });
    await askToDelete(user, 110);
    await change(service, 370);
    await change(service, 371, { name: "Oak, theirs" });
    await user.see({ dialog: "Delete 108 plants?" });
    // The same id again, as it was shown: it was not there when the number was.
    await sendPlant(service.url, { id: 370n, name: "Oak 370", tag: "old" });
    await user.click("Delete 108 plants", { toast: "Deleted 108 plants." });
    expect((await findIds(service, "oak")).slice(0, 3)).toEqual([370, 371, 471]);
  });
});

describeInBrowser("the dialog of labels", () => {
  test("ends with its person, and the next one does not see it", async (visit) => {
    const { page, user } = await visit.open({ isKept: true });
    await user.goTo("#/plants?q=fern", { row: "Fern 121" });
    await check(user, "Fern 121");
    await user.click("Labels", { dialog: "Print labels" });
    const other = await user.openTab(`${visit.service.url}/#/plants`, { firstRow: "Ficus" });
    await other.signOut();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await user.signIn(await visit.createToken({ name: "of labels" }), { row: "Fern 122" });
    await expectNoQuestion(user, "Fern 122");
  });
});

describeInBrowser("a bulk action", () => {
  test("ends when somebody else signs in in another tab, who does not hear of it", async (visit) => {
    const next = await visit.createToken({ name: "the third" });
    const { page, user, service } = await visit.open({ isKept: true });
    await user.goTo("#/plants?q=ivy", { row: "Ivy 481" });
    const release = await user.hold("**/plants/batch*");
    await check(user, "Ivy 481");
    await user.click("Remove tag", { progressbar: "Changing" });
    const other = await user.openTab(`${service.url}/#token=${next}`);
    await other.field("Stay signed in on this device").check();
    await other.click(/^Continue as/);
    await user.see({ button: "Signed in as the third", row: "Ivy 481" });
    release();
    await user.search("ivy 482", { row: "Ivy 482" });
    expect(await page.locator(".toast, progress").count()).toBe(0);
  });
});

describeInBrowser("a question about an undo", () => {
  test("has the number that is left when others change a plant, and ends with its page", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants" });
    const writer = { token: "Anna", batch: nameBatch("Import of Anna") };
    const plants = [2_001n, 2_002n, 2_003n].map((id) => ({
      id,
      name: `Elm ${id}`,
      tag: undefined,
    }));
    for (const plant of plants) await service.store.createPlant(plant, writer);
    await user.follow("Changes");
    await user.click("Undo Import of Anna", { button: "Undo 3 plants" });
    await change(service, 2_001, { name: "Elm, theirs" });
    await user.see({ button: "Undo 2 plants", text: "1 changed since" });
    await page.goBack();
    await user.see({ heading: "Plants" });
    expect(await page.getByRole("dialog").count()).toBe(0);
  });

  test("of what a filter shows is about the changes that were shown, each counted once", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/changes?by=Bernd" });
    const write = (id: bigint): Promise<unknown> =>
      service.store.createPlant({ id, name: `Yew ${id}`, tag: undefined }, { token: "Bernd" });
    // The first is counted before it arrives, the second arrives before it is counted.
    const [followed, wasCounted] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    await page.route(
      (url) => url.pathname === "/changes",
      async (route) => {
        const { accept } = route.request().headers();
        if (accept === "text/event-stream") {
          followed.resolve();
          await wasCounted.promise;
        }
        await route.continue();
      },
    );
    await page.route("**/changes/counts?*", async (route) => {
      if (!route.request().url().includes("by=Bernd")) return route.continue();
      await followed.promise;
      await write(3_001n);
      const response = await route.fetch();
      wasCounted.resolve();
      await write(3_002n);
      await page.getByText("Added 2 plants").first().waitFor();
      return route.fulfill({ response });
    });
    await page.reload();
    await user.click("Undo these 2", { button: "Undo 2 plants" });
    await write(3_003n);
    await user.see({ text: "Undo these 3" });
    await user.click("Undo 2 plants", { toast: "Undone: 2 plants." });
    expect(await service.findPlant(3_003n)).toBeDefined();
  });
});
