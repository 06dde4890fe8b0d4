/** What someone typed and did not save: it is still there after Esc, another row, a reload and a lost token. */

import { expect } from "bun:test";
import {
  change,
  describeInBrowser,
  startJourneys,
  type TestPage,
  type Visit,
} from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";

const { it, test } = await startJourneys({}, async ({ url }) => {
  for (const [index, name] of ["Oak", "Elm", "Yew", "Ash", "Box"].entries())
    await sendPlant(url, { id: BigInt(index + 1), name, tag: "tree" });
});

describeInBrowser("an edit that is not saved", () => {
  it("stays after Esc, after another row and after a reload, and is then saved", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/1" });
    await user.click("Edit", { element: "#edit-name" });
    expect(await page.getByText("unsaved edit").count()).toBe(0);
    await user.field("Name").fill("Quercus");
    await user.press("Escape", { toast: "Your edit of “Oak” isn't saved yet" });
    await user.openRow("Oak");
    expect(await user.field("Name").inputValue()).toBe("Quercus");

    await user.openRow("Elm", { shown: "Elm" });
    await user.row("Oak").getByText("unsaved edit").waitFor();
    await user.toast("Your edit of “Oak” isn't saved yet").last().getByText("Open").click();
    expect(await user.field("Name").inputValue()).toBe("Quercus");

    await page.reload();
    expect(await user.field("Name").inputValue()).toBe("Quercus");
    expect(await service.findPlant(1n)).toMatchObject({ name: "Oak" });
    await user.click("Save", { toast: "Changed “Quercus”" });
    expect(await service.findPlant(1n)).toMatchObject({ name: "Quercus", tag: "tree" });
    expect(await page.getByText("unsaved edit").count()).toBe(0);
  });

  it("stays when the token ends, and is there after signing in again", async (visit) => {
    const as = { name: "short-lived" };
    const { user, announceFailure } = await visit.open({ as, at: "#/plants/2" });
    announceFailure("/changes", "failed", 401);
    await user.edit("Ulmus");
    await visit.revoke("short-lived");
    await user.see({ heading: "Sign in" });
    const said = { text: ["Your token is no longer accepted", "Your edit “Ulmus” is kept"] };
    await user.see(said);
    // The reason stays when the sign-in fails.
    await user.press("Enter", { text: "Paste a token to sign in." });
    await user.see(said);
    await user.signIn(TEST_TOKEN);
    expect(await user.field("Name").inputValue()).toBe("Ulmus");
  });

  it("is gone after Cancel, after Esc without a change, and after signing out", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/3" });
    await user.edit("Yew");
    await user.press("Escape", { shown: "Yew" });
    await user.edit("Taxus");
    await user.click(["Cancel", "Edit"]);
    expect(await user.field("Name").inputValue()).toBe("Yew");
    await user.field("Name").fill("Taxus");
    await user.uncover();
    await user.click([/Signed in as/, "Sign out"], { text: "1 edit is not saved" });
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await user.openRow("Yew", { element: "#edit-name" });
    expect(await user.field("Name").inputValue()).toBe("Taxus");
    await user.uncover();
    await user.click([/Signed in as/, "Sign out", "Sign out without saving"], {
      heading: "Sign in",
    });
    await user.signIn(TEST_TOKEN);
    await user.openRow("Yew", { shown: "Yew" });
    expect(await page.getByText("isn't saved yet").count()).toBe(0);
  });

  it("does not overwrite what someone else saved before it is continued", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/4" });
    // A form in which nothing was typed follows the plant.
    await user.click("Edit", { element: "#edit-name" });
    await change(service, 4, { name: "Excelsior" });
    await user.untilSo(`document.querySelector("#edit-name").value === "Excelsior"`);
    await user.see({ button: "Save" });
    await user.field("Name").fill("Fraxinus");
    await change(service, 4, { name: "Theirs" });
    await page.reload();
    await page.locator(".notice", { hasText: "Someone else changed this plant" }).waitFor();
    // Either choice loses an edit: neither is emphasised.
    expect(await page.locator(".notice .button").count()).toBe(2);
    expect(await page.locator(".notice .button-main").count()).toBe(0);
    expect(await user.field("Name").inputValue()).toBe("Fraxinus");
    expect(await service.findPlant(4n)).toMatchObject({ name: "Theirs" });
  });

  test("does not overwrite it either where the connection was lost meanwhile", async (visit) => {
    const { page, user, service, announceFailure } = await visit.open({ at: "#/plants/5" });
    announceFailure("/plants?", "failed");
    await user.edit("Buxus");
    await service.store.replacePlant({ id: 5n, name: "Theirs", tag: "tree" }, {});
    await user.reload({ element: "#edit-name" });
    await page.route("**/plants?*", (route) => route.abort(), { times: 1 });
    // The plant is read again when the connection is back.
    const [again] = await Promise.all([page.waitForResponse(/plants.5$/), user.search("box")]);
    await again.finished();
    await page.locator(".notice", { hasText: "Someone else changed this plant" }).waitFor();
    expect(await page.getByRole("button", { name: "Save" }).count()).toBe(0);
    expect(await user.field("Name").inputValue()).toBe("Buxus");
  });
});

/** At an edit of plant 3, signed in for the device. */
async function editAsStaff(visit: Visit) {
  const { user } = await visit.open({ at: "#/plants/3", isKept: true });
  await user.edit("Taxus");
  return user;
}

describeInBrowser("several edits that are not saved", () => {
  it("are in one list, saved together but for those that others changed, or discarded", async (visit) => {
    const { service } = visit;
    for (const [id, name] of [
      [41, "Fig"],
      [42, "Lime"],
      [43, "Pear"],
    ] as const)
      await sendPlant(service.url, { id: BigInt(id), name, tag: null });
    const { page, user } = await visit.open();
    for (const [id, name] of [
      [41, "Ficus"],
      [42, "Tilia"],
    ] as const) {
      await user.goTo(`#/plants/${id}`);
      await user.edit(name);
    }
    await user.goTo("#/plants/43", { shown: "Pear" });
    await user.uncover();
    await change(service, 42, { name: "Since" });
    await user.see({ row: "Since" });
    await user.click([/Signed in as/, /^Unsaved edits/], { text: "2 edits are not saved." });
    const dialog = page.getByRole("dialog", { name: "Unsaved edits" });
    await user.within(dialog).click("Save all", { text: ["1 edit is not saved.", "changed it"] });
    expect(await service.findPlant(41n)).toMatchObject({ name: "Ficus" });
    expect(await service.findPlant(42n)).toMatchObject({ name: "Since" });
    await user.within(dialog).click("Discard Tilia", { text: "0 edits are not saved." });
    await user.press("Escape");
    await user.click(/Signed in as/);
    expect(await page.getByRole("button", { name: /^Unsaved edits/ }).count()).toBe(0);
    await user.press("Escape");
  });
});

describeInBrowser("an edit that is not saved, on a device of several people,", () => {
  it("stays with its person, when somebody else signs in in another tab", async (visit) => {
    const next = await visit.createToken({ name: "Bernd" });
    const user = await editAsStaff(visit);
    const other = await user.openTab(`${visit.service.url}/#token=${next}`);
    await other.field("Stay signed in on this device").check();
    await other.click(/^Continue as/, { button: "Signed in as Bernd" });
    await user.reload({ element: "#edit-name" });
    expect(await user.field("Name").inputValue()).toBe("Taxus");
    await user.click("Save", { toast: "Changed “Taxus”" });
    await change(visit.service, 3, { name: "Yew" });
  });

  it("is kept when its person signs out in another tab, and for no one else", async (visit) => {
    const next = await visit.createToken({ name: "Clara" });
    const user = await editAsStaff(visit);
    const other = await user.openTab(`${visit.service.url}/#/plants`, { row: "Yew" });
    await other.signOut();
    const kept = { text: ["You signed out in another tab", "Your edit “Taxus” is kept"] };
    await user.see(kept);
    // Somebody else may use the device, but not this tab.
    await other.field("Stay signed in on this device").check();
    await other.signIn(next, { button: "Signed in as Clara" });
    await user.reload(kept);
    await user.signIn(TEST_TOKEN);
    expect(await user.field("Name").inputValue()).toBe("Taxus");
    await other.signOut();
    await user.uncover();
    await user.click([/Signed in as/, "Sign out", "Sign out without saving"], {
      heading: "Sign in",
    });
  });

  it("is gone for somebody else who signs in in its tab", async (visit) => {
    const next = await visit.createToken({ name: "Doris" });
    const user = await editAsStaff(visit);
    const other = await user.openTab(`${visit.service.url}/#/plants`, { row: "Yew" });
    await other.signOut();
    await user.see({ text: "Your edit “Taxus” is kept" });
    await user.signIn(next, { shown: "Yew" });
    await user.goTo("#/plants/3", { shown: "Yew" });
  });
});

describeInBrowser("a save whose connection is lost", () => {
  const lose = async ({ page, allowFailure }: TestPage, isStored: boolean) => {
    // The page polls meanwhile, if this takes long.
    for (const polled of ["/livez", "/changes"]) allowFailure(polled, "failed");
    const url = /\/(plants|changes|livez)/;
    await page.route(url, async (route) => {
      if (isStored && route.request().method() === "PUT") await route.fetch();
      await route.abort("connectionreset");
    });
    return () => page.unroute(url);
  };

  it("is sent once more when it is back, and until then is not called saved", async (visit) => {
    const view = await visit.open({ at: "#/plants/1" });
    const { page, user, service, announceFailure } = view;
    announceFailure("/plants/1", "failed");
    const { name } = (await service.findPlant(1n)) ?? {};
    for (const isStored of [false, true]) {
      await user.edit(`Corrected ${isStored}`);
      const comeBack = await lose(view, isStored);
      await user.click("Save", { text: "Not saved: no connection" });
      await user.see({ text: "1 edit not saved. It is sent when the connection is back." });
      expect(await user.field("Name").inputValue()).toBe(`Corrected ${isStored}`);
      if (isStored) announceFailure("/plants/1", 412);
      await comeBack();
      await user.see({ toast: `Changed “Corrected ${isStored}”`, shown: `Corrected ${isStored}` });
      expect(await service.findPlant(1n)).toMatchObject({ name: `Corrected ${isStored}` });
      expect(await page.getByText("isn't saved").count()).toBe(0);
    }
    await change(service, 1, { name, tag: "tree" });
  });

  test("is sent from another plant too, and not over what someone else changed", async (visit) => {
    const view = await visit.open({ at: "#/plants/2" });
    const { user, service, announceFailure } = view;
    announceFailure("/plants/2", "failed", 412);
    const before = await service.findPlant(2n);
    await user.edit("Mine");
    const comeBack = await lose(view, false);
    await user.click("Save", { text: "Not saved: no connection" });
    await user.press("Escape", { text: "1 edit not saved." });
    await service.store.replacePlant({ id: 2n, name: "Theirs", tag: "tree" }, {});
    await comeBack();
    await user.see({ toast: "“Mine” isn't saved. Someone else changed it." });
    await user.toast("“Mine” isn't saved").getByText("Open").click();
    await user.see({ text: "Someone else changed this plant." });
    expect(await user.field("Name").inputValue()).toBe("Mine");
    expect(await service.findPlant(2n)).toMatchObject({ name: "Theirs" });
    await user.click("Discard my edit");
    await change(service, 2, { name: before?.name, tag: "tree" });
  });
});

describeInBrowser("a plant that was changed in another tab", () => {
  test("was changed by the same person, and the page says so", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/3" });
    await user.edit("Taxus");
    const session = await page.evaluate<string>(`sessionStorage.getItem("plantstore.session /")`);
    const tab = await user.openTab(service.url);
    await tab.page.evaluate(
      `sessionStorage.setItem("plantstore.session /", ${JSON.stringify(session)})`,
    );
    await tab.goTo("#/plants/3");
    await tab.reload({ shown: "Yew" });
    await tab.edit("Yew tree");
    await tab.click("Save", { toast: "Changed “Yew tree”" });
    await user.see({ text: "You changed this plant in another tab. Your edit isn't saved yet." });
    await user.click("Discard my edit");
    await tab.page.close();
    await change(service, 3, { name: "Yew", tag: "tree" });
  });
});

describeInBrowser("a new plant that is not added yet", () => {
  it("stays in its form after Esc and a reload", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/new" });
    await user.fillNew("70", "Larch");
    await user.press("Escape");
    await user.follow("Add plant");
    expect(await user.field("Name").inputValue()).toBe("Larch");
    await page.reload();
    expect(await user.field("Id").inputValue()).toBe("70");
    await user.click("Add plant", { toast: "Added “Larch”" });
    expect(await user.field("Name").inputValue()).toBe("");
  });

  test("is not stored by Enter in the id, as a barcode scanner sends it", async (visit) => {
    const { page, user, service } = await visit.open({ at: "#/plants/new" });
    await user.field("Id").fill("4006381333931");
    await user.press("Enter", { element: "#add-name:focus" });
    await page.keyboard.type("Scanned");
    expect(await service.findPlant(4_006_381_333_931n)).toBeUndefined();
    await user.press("Enter", { toast: "Added “Scanned”" });
    expect(await service.findPlant(4_006_381_333_931n)).toMatchObject({ name: "Scanned" });
  });
});
