/** Several plants at once: selected, tagged, deleted and exported, with undo, and nothing of others overwritten. */

import { expect } from "bun:test";
import type { Page, Request } from "playwright-core";
import {
  change,
  createToken,
  describeInBrowser,
  holdFeed,
  openRow,
  rowOf,
  setHidden,
  signIn,
  startJourneys,
  storePlants,
  toastOf,
} from "../support/browser.ts";
import { sendPlant, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";
import { edit, hold, press, saveFile, signOut } from "../support/steps.ts";

const COUNT = 10_001;
const { it, test } = await startJourneys({}, (service) =>
  storePlants(service, COUNT, (index) => ({
    id: index + 1,
    name: `Plant ${index + 1}`,
    tag: index < 40 ? "few" : "many",
  })),
);

const check = (page: Page, id: number, modifiers: "Shift"[] = []): Promise<void> =>
  page.getByRole("checkbox", { name: `Select “Plant ${id}”` }).click({ modifiers });

async function setTag(page: Page, tag: string): Promise<void> {
  await page.getByLabel("Tag for the selected plants").fill(tag);
  await page.getByRole("button", { name: "Set tag" }).click();
}

const tagsOf = (service: TestService, ...ids: readonly number[]): Promise<unknown[]> =>
  Promise.all(ids.map(async (id) => (await service.findPlant(BigInt(id)))?.tag));

describeInBrowser("several plants", () => {
  it("are tagged, deleted and brought back; those that someone else changed are left alone", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants?tag=few" });
    await check(page, 2);
    await check(page, 5, ["Shift"]);
    await page.getByText("4 selected").waitFor();
    await setTag(page, "moved");
    await toastOf(page, "Changed 4 plants.").waitFor();
    expect(await tagsOf(service, 1, 2, 5, 6)).toEqual(["few", "moved", "moved", "few"]);
    await toastOf(page, "Changed").getByRole("button", { name: "Undo" }).click();
    const dialog = page.getByRole("dialog", { name: "Undo “Tag 4 plants as moved”?" });
    await dialog.getByRole("button", { name: "Undo 4 plants" }).click();
    await toastOf(page, "Undone: 4 plants.").waitFor();
    expect(await tagsOf(service, 2)).toEqual(["few"]);
    await rowOf(page, "Plant 2").first().waitFor();

    await check(page, 3);
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "Deleted 1 plant.").waitFor();
    expect(await service.findPlant(BigInt(3))).toBeUndefined();
    await page.keyboard.press("u");
    await page.getByRole("button", { name: "Undo 1 plant" }).click();
    await toastOf(page, "Undone: 1 plant.").waitFor();
    await rowOf(page, "Plant 3").first().waitFor();

    await holdFeed(page);
    await check(page, 10);
    await check(page, 12, ["Shift"]);
    await change(service, 11, { name: "Theirs", tag: "few" });
    await setTag(page, "mine");
    await toastOf(page, "2 plants. 1 skipped. “Plant 11”: Someone else changed it.").waitFor();
    expect(await tagsOf(service, 10, 11, 12)).toEqual(["mine", "few", "mine"]);
    // It stays selected as it is now, so a second try is a decision.
    await page.getByText("1 selected").waitFor();
    await setTag(page, "mine");
    await toastOf(page, "Changed 1 plant.").waitFor();
    expect(await service.findPlant(11n)).toMatchObject({ name: "Theirs", tag: "mine" });
  });

  it("are all that match but some, exported; too many to change at once are refused", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants?q=plant+many" });
    await rowOf(page, "Plant 41").waitFor();
    // The whole cell is the target.
    await page
      .getByRole("columnheader")
      .first()
      .click({ position: { x: 4, y: 4 } });
    await check(page, 41);
    await page.getByText("All 9,961 but 1 selected").waitFor();
    await page.getByRole("button", { name: "Export the selection" }).click();
    const download = await saveFile(page, page.getByRole("button", { name: /as NDJSON/ }));
    const exported = (await Bun.file(await download.path()).text()).trim().split("\n");
    expect(exported.length).toBe(9_960);
    expect(exported[0]).toContain("Plant 42");

    await page.getByRole("searchbox").fill("");
    await page.getByText("10,001 plants", { exact: true }).waitFor();
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "More than 10,000 plants are too many at once").waitFor();
    expect(await service.findPlant(1n)).toBeDefined();
  });

  it("are asked about with their number and filter, if they are more than a page", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants?tag=many&q=plant+5" });
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await check(page, 50);
    await page.getByText(/^All [\d,]+ but 1 selected$/).waitFor();
    // An empty field is no tag to set.
    expect(await page.getByRole("button", { name: "Set tag" }).isDisabled()).toBe(true);
    await page.getByLabel("Tag for the selected plants").press("Enter");
    await page.getByRole("button", { name: "Remove tag" }).click();
    const dialog = page.getByRole("dialog", { name: /^Remove the tag of [\d,]{3,} plants\?$/ });
    await dialog
      .getByText("These are all plants that have the tag “many” and match “plant 5”, but 1.")
      .waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    expect(await tagsOf(service, 51)).toEqual(["many"]);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog", { name: /^Delete [\d,]{3,} plants\?$/ }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByText(/^All [\d,]+ but 1 selected$/).waitFor();
    expect(await service.findPlant(51n)).toBeDefined();
  });

  it("can be paused, continued after a reload on any page, and undone after another", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants?q=plant+70" });
    await check(page, 700);
    await check(page, 706, ["Shift"]);
    await page.getByText("7 selected").waitFor();
    await hold(page, /\/plants\/70[4-6]\?batch=/);
    await setTag(page, "paused");
    await page.getByText("Changing… 4 of 7").waitFor();
    await page.getByRole("link", { name: "Changes" }).click();
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Pausing… 4 of 7").waitFor();
    await page.reload();
    await page.unrouteAll();
    await page.getByText("Paused: Tag 7 plants as paused, 4 of 7").waitFor();
    expect(await tagsOf(service, 706)).toEqual(["many"]);
    await page.getByRole("button", { name: "Continue" }).click();
    await toastOf(page, "Changed 7 plants.").waitFor();
    expect(await tagsOf(service, 706)).toEqual(["paused"]);
    await page.reload();
    await page.getByRole("button", { name: "Undo Tag 7 plants as paused" }).click();
    await page.getByRole("button", { name: "Undo 7 plants" }).click();
    await toastOf(page, "Undone: 7 plants.").waitFor();
    expect(await tagsOf(service, 700, 706)).toEqual(["many", "many"]);
  });

  it("can be stopped, and the rest stays selected", async (visit) => {
    const { page } = await visit.open({ at: "#/plants?tag=few" });
    const release = await hold(page, "**/plants/*", "DELETE");
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("progressbar", { name: "Deleting" }).waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    release();
    await toastOf(page, "Deleted 4 plants.").waitFor();
    await page.getByText(/^\d\d selected$/).waitFor();
  });

  test("are selected by keys, and a checkbox that has the focus is the one meant", async (visit) => {
    const { page } = await visit.open({ at: "#/plants?tag=many" });
    await rowOf(page, "Plant 41").waitFor();
    await page.getByRole("grid").focus();
    await press(page, "Tab", "Space");
    await page.getByText("All 9,961 selected").waitFor();
    await page.keyboard.press("Space");
    await check(page, 45);
    await page.getByText("1 selected", { exact: true }).waitFor();
    await page.keyboard.press("Space");
    await page.getByText("selected").waitFor({ state: "detached" });
    // A checkbox takes no letters.
    await page.keyboard.press("/");
    await page.locator("#search:focus").waitFor();
  });

  test("stay selected as one changes the list, and their undo outlasts other messages", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants?tag=many" });
    await check(page, 45);
    await sendPlant(service.url, { id: -1n, name: "At the top", tag: "many" });
    await rowOf(page, "At the top").waitFor();
    await check(page, 48, ["Shift"]);
    await page.getByText("4 selected").waitFor();
    await openRow(page, "Plant 46");
    await edit(page, "Mine");
    await page.keyboard.press("Enter");
    await toastOf(page, "Changed “Mine”").waitFor();
    await openRow(page, "Plant 47");
    await page.locator(".panel").getByRole("button", { name: "Delete" }).click();
    await page.getByText("3 selected").waitFor();
    // What others do is no surprise later: the list shows it.
    await change(service, 45);
    await page.getByText("2 selected").waitFor();
    await change(service, 48, { name: "Theirs", tag: "many" });
    await rowOf(page, "Theirs").waitFor();
    await page.getByRole("button", { name: "Export the selection" }).click();
    const download = await saveFile(page, page.getByRole("button", { name: /as NDJSON/ }));
    expect(await Bun.file(await download.path()).text()).toMatch(/^.*"Mine".*\n.*"Theirs".*\n$/);
    await page.locator(".selection").getByRole("button", { name: "Delete" }).click();
    await toastOf(page, "Deleted 2 plants.").waitFor();
    for (const id of [60, 61, 62]) {
      await openRow(page, `Plant ${id}`);
      await page.locator(".panel").getByRole("button", { name: "Delete" }).click();
      await rowOf(page, `Plant ${id}`).waitFor({ state: "detached" });
    }
    await toastOf(page, "Deleted 2 plants.").getByRole("button", { name: "Undo" }).waitFor();
  });
});

describeInBrowser("a job on several plants", () => {
  test("leaves a list that was opened meanwhile as it is", async (visit) => {
    const { page, announceFailure } = await visit.open({ at: "#/plants?q=plant+900" });
    await rowOf(page, "Plant 9009").waitFor();
    const release = await hold(page, /plants\?q=plant\+900(&|$)/);
    const body = '{"error":3003,"message":"The plant was changed."}';
    await page.route("**/plants/9001*", (route) =>
      route.request().method() === "PUT"
        ? route.fulfill({ status: 412, contentType: "application/json", body })
        : route.fallback(),
    );
    announceFailure("/plants/9001", 412);
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await setTag(page, "moved");
    await page.getByRole("progressbar", { name: "Reading" }).waitFor();
    await page.getByRole("searchbox").fill("plant 9001");
    await rowOf(page, "Plant 9009").waitFor({ state: "detached" });
    await rowOf(page, "Plant 9001").waitFor();
    release();
    await toastOf(page, "Changed 19 plants. 1 skipped.").waitFor();
    expect(await page.getByText("1 selected").count()).toBe(0);
  });

  test("ends with its person, and the next one does not hear of it", async (visit) => {
    const next = await createToken(visit.service, { name: "next" });
    const { page } = await visit.open({ at: "#/plants?tag=many" });
    const held: Request[] = [];
    page.on("request", (request) => {
      if (request.method() === "DELETE") held.push(request);
    });
    const release = await hold(page, "**/plants/*", "DELETE");
    await check(page, 50);
    await check(page, 59, ["Shift"]);
    await page.getByRole("button", { name: "Delete" }).click();
    await until("4 deletions are under way", () => held.length === 4);
    await signOut(page);
    await signIn(page, next);
    await rowOf(page, "Plant 59").waitFor();
    release();
    for (const request of held) await (await request.response())?.finished();
    await page.getByRole("searchbox").fill("plant 79");
    await rowOf(page, "Plant 791").waitFor();
    expect(held.length).toBe(4);
    expect(await page.locator(".toast, progress, [role=progressbar]").count()).toBe(0);
  });
});

describeInBrowser("the first page of a long list", () => {
  test("has what is added again at its end, and gives way to the next", async (visit) => {
    const { service } = visit;
    const { page } = await visit.open({ at: "#/plants?order=desc&tag=many" });
    const untilLong = (rows: number): Promise<void> =>
      page.locator(`.grid-body[style*='height: ${rows * 36}px']`).waitFor();
    const last = COUNT - 99;
    await untilLong(100);
    await change(service, last);
    await untilLong(99);
    await sendPlant(service.url, { id: BigInt(last), name: "Again", tag: "many" });
    await untilLong(100);

    await setHidden(page, true);
    await Promise.all(Array.from({ length: 100 }, (_, index) => change(service, last + index)));
    await setHidden(page, false);
    await rowOf(page, `Plant ${last - 1}`).waitFor();
  });
});
