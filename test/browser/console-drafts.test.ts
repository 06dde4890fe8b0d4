/** What someone typed and did not save: it is still there after Esc, another row, a reload and a lost token. */

import { expect } from "bun:test";
import type { Locator, Page } from "playwright-core";
import {
  change,
  createToken,
  describeInBrowser,
  openRow,
  revoke,
  rowOf,
  signIn,
  startJourneys,
  toastOf,
  uncover,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { edit, fillNew, signOut } from "../support/steps.ts";

const { it, test } = await startJourneys({}, async ({ url }) => {
  for (const [index, name] of ["Oak", "Elm", "Yew", "Ash", "Box"].entries())
    await sendPlant(url, { id: BigInt(index + 1), name, tag: "tree" });
});

const nameOf = (page: Page): Locator => page.getByLabel("Name", { exact: true });

describeInBrowser("an edit that is not saved", () => {
  it("stays after Esc, after another row and after a reload, and is then saved", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/1" });
    await rowOf(page, "Oak").waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await nameOf(page).waitFor();
    expect(await page.getByText("unsaved edit").count()).toBe(0);
    await nameOf(page).fill("Quercus");
    await page.keyboard.press("Escape");
    await toastOf(page, "Your edit of “Oak” isn't saved yet").waitFor();
    await openRow(page, "Oak");
    expect(await nameOf(page).inputValue()).toBe("Quercus");

    await openRow(page, "Elm");
    await page.locator(".shown-name", { hasText: "Elm" }).waitFor();
    await rowOf(page, "Oak").getByText("unsaved edit").waitFor();
    await toastOf(page, "Your edit of “Oak” isn't saved yet").last().getByText("Open").click();
    await nameOf(page).waitFor();
    expect(await nameOf(page).inputValue()).toBe("Quercus");

    await page.reload();
    await nameOf(page).waitFor();
    expect(await nameOf(page).inputValue()).toBe("Quercus");
    expect(await service.findPlant(1n)).toMatchObject({ name: "Oak" });
    await page.getByRole("button", { name: "Save" }).click();
    await toastOf(page, "Changed “Quercus”").waitFor();
    expect(await service.findPlant(1n)).toMatchObject({ name: "Quercus", tag: "tree" });
    expect(await page.getByText("unsaved edit").count()).toBe(0);
  });

  it("stays when the token ends, and is there after signing in again", async (visit) => {
    const token = await createToken(visit.service, { name: "short-lived" });
    const { page, service, announceFailure } = await visit.open({ token, at: "#/plants/2" });
    announceFailure("/changes", "failed");
    announceFailure("/changes", 401);
    await edit(page, "Ulmus");
    await revoke(service, "short-lived");
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await signIn(page, TEST_TOKEN);
    await nameOf(page).waitFor();
    expect(await nameOf(page).inputValue()).toBe("Ulmus");
  });

  it("is gone after Cancel, after Esc without a change, and after signing out", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/3" });
    await edit(page, "Yew");
    await page.keyboard.press("Escape");
    await page.locator(".shown-name", { hasText: "Yew" }).waitFor();
    await edit(page, "Taxus");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Edit" }).click();
    expect(await nameOf(page).inputValue()).toBe("Yew");
    await nameOf(page).fill("Taxus");
    await uncover(page);
    await signOut(page);
    await signIn(page, TEST_TOKEN);
    await openRow(page, "Yew");
    await page.locator(".shown-name", { hasText: "Yew" }).waitFor();
    expect(await page.getByText("isn't saved yet").count()).toBe(0);
  });

  it("does not overwrite what someone else saved before it is continued", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/4" });
    // A form in which nothing was typed follows the plant.
    await page.getByRole("button", { name: "Edit" }).click();
    await nameOf(page).waitFor();
    await change(service, 4, { name: "Excelsior" });
    await until(
      "the form shows the new name",
      async () => (await nameOf(page).inputValue()) === "Excelsior",
    );
    await page.getByRole("button", { name: "Save" }).waitFor();
    await nameOf(page).fill("Fraxinus");
    await change(service, 4, { name: "Theirs" });
    await page.reload();
    await page.locator(".notice", { hasText: "Someone else changed this plant" }).waitFor();
    // Either choice loses an edit: neither is emphasised.
    expect(await page.locator(".notice .button").count()).toBe(2);
    expect(await page.locator(".notice .button-main").count()).toBe(0);
    expect(await nameOf(page).inputValue()).toBe("Fraxinus");
    expect(await service.findPlant(4n)).toMatchObject({ name: "Theirs" });
  });

  test("does not overwrite it either where the connection was lost meanwhile", async (visit) => {
    const { page, service, announceFailure } = await visit.open({ at: "#/plants/5" });
    announceFailure("/plants?", "failed");
    await edit(page, "Buxus");
    await service.store.replacePlant({ id: 5n, name: "Theirs", tag: "tree" }, {});
    await page.reload();
    await nameOf(page).waitFor();
    await page.route("**/plants?*", (route) => route.abort(), { times: 1 });
    // The plant is read again when the connection is back.
    const [again] = await Promise.all([
      page.waitForResponse(/plants.5$/),
      page.getByRole("searchbox").fill("box"),
    ]);
    await again.finished();
    await page.locator(".notice", { hasText: "Someone else changed this plant" }).waitFor();
    expect(await page.getByRole("button", { name: "Save" }).count()).toBe(0);
    expect(await nameOf(page).inputValue()).toBe("Buxus");
  });
});

describeInBrowser("a new plant that is not added yet", () => {
  it("stays in its form after Esc and a reload", async (visit) => {
    const { page } = await visit.open({ at: "#/plants/new" });
    await fillNew(page, "70", "Larch");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Add plant" }).click();
    expect(await nameOf(page).inputValue()).toBe("Larch");
    await page.reload();
    await nameOf(page).waitFor();
    expect(await page.getByLabel("Id", { exact: true }).inputValue()).toBe("70");
    await page.getByRole("button", { name: "Add plant" }).click();
    await toastOf(page, "Added “Larch”").waitFor();
    expect(await nameOf(page).inputValue()).toBe("");
  });

  test("is not stored by Enter in the id, as a barcode scanner sends it", async (visit) => {
    const { page, service } = await visit.open({ at: "#/plants/new" });
    await page.getByLabel("Id", { exact: true }).fill("4006381333931");
    await page.keyboard.press("Enter");
    await nameOf(page).and(page.locator(":focus")).waitFor();
    await page.keyboard.type("Scanned");
    expect(await service.findPlant(4_006_381_333_931n)).toBeUndefined();
    await page.keyboard.press("Enter");
    await toastOf(page, "Added “Scanned”").waitFor();
    expect(await service.findPlant(4_006_381_333_931n)).toMatchObject({ name: "Scanned" });
  });
});
