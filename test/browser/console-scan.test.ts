/** One rule for scans: on every page and in every field a scan opens its plant, and nothing that was typed is lost. */

import { expect } from "bun:test";
import { change, describeInBrowser, startJourneys } from "../support/browser.ts";
import { send, sendPlant } from "../support/service.ts";

const CODE = "4006381333931";
const OTHER_CODE = "4006381333948";
const UNKNOWN_CODE = "4006381333955";

const { it, test } = await startJourneys({}, async ({ url }) => {
  await sendPlant(url, { id: BigInt(CODE), name: "Oak", tag: "tree" });
  await sendPlant(url, { id: BigInt(OTHER_CODE), name: "Elm", tag: "tree" });
  await sendPlant(url, { id: 1n, name: "Rose", tag: "shrub" });
});

describeInBrowser("a scan into a form", () => {
  it("opens its plant, stores nothing, and keeps the edit as it was", async (visit) => {
    const { page, user, service } = await visit.open({ at: `#/plants/${CODE}` });
    // Nothing was typed: there is nothing to keep.
    await user.click("Edit", { element: "#edit-name:focus" });
    await user.scan(OTHER_CODE, { shown: "Elm" });
    expect(await page.getByText("unsaved edit").count()).toBe(0);
    await user.scan(CODE, { shown: "Oak" });
    for (const end of ["Enter", "Tab"]) {
      await user.edit("Quercus");
      await user.field("Name").press("End");
      await user.scan(
        OTHER_CODE,
        { shown: "Elm", toast: "Your edit of “Oak” isn't saved yet" },
        end,
      );
      await user.toast("Your edit of “Oak”").last().getByText("Open").click();
      expect(await user.field("Name").inputValue()).toBe("Quercus");
      expect(await page.locator("#edit-tag").inputValue()).toBe("tree");
      await page.locator("#edit-tag").focus();
      await user.scan(OTHER_CODE, { shown: "Elm" }, end);
      await user.scan(CODE, { element: "#edit-name" }, end);
      expect(await page.locator("#edit-tag").inputValue()).toBe("tree");
      await user.click("Cancel", { shown: "Oak" });
      expect(await page.getByText("isn't saved yet").count()).toBe(0);
    }
    expect(await service.findPlant(BigInt(CODE))).toMatchObject({ name: "Oak", tag: "tree" });
    expect(await service.findPlant(BigInt(OTHER_CODE))).toMatchObject({ name: "Elm" });
  });

  test("of the plant that is being edited leaves the edit alone", async (visit) => {
    const { user, service } = await visit.open({ at: `#/plants/${CODE}` });
    await user.edit("Quercus");
    await user.scan(CODE, { element: "#edit-name:focus" });
    expect(await user.field("Name").inputValue()).toBe("Quercus");
    await user.press("Enter", { toast: "Changed “Quercus”" });
    await change(service, Number(CODE), { name: "Oak", tag: "tree" });
  });

  test("typed by a person is a name, which is asked about", async (visit) => {
    const { page, user, service } = await visit.open({ at: `#/plants/${CODE}` });
    await user.click("Edit", { element: "#edit-name:focus" });
    await page.keyboard.type(OTHER_CODE);
    await user.press("Enter", { text: "The name looks like a scanned code. Save it anyway?" });
    expect(await service.findPlant(BigInt(CODE))).toMatchObject({ name: "Oak" });
    await user.click("Save anyway", { toast: `Changed “${OTHER_CODE}”` });
    await change(service, Number(CODE), { name: "Oak", tag: "tree" });
  });

  it("for a new plant is its id, unless a plant has it or the name is there already", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/new" });
    await user.scan(UNKNOWN_CODE, { element: "#add-name:focus" });
    expect(await user.field("Id").inputValue()).toBe(UNKNOWN_CODE);
    // Twice by mistake.
    await user.scan(UNKNOWN_CODE, { element: "#add-name:focus" });
    expect(await user.field("Name").inputValue()).toBe("");
    await page.keyboard.type("Larch");
    await user.scan("4006381333962", { text: "No plant has the scanned id 4006381333962." });
    expect(await user.field("Id").inputValue()).toBe(UNKNOWN_CODE);
    expect(await user.field("Name").inputValue()).toBe("Larch");
    await user.click("Use it as the id");
    expect(await user.field("Id").inputValue()).toBe("4006381333962");
    await user.scan(CODE, { shown: "Oak", toast: "“Larch” isn't added yet." });
    await user.toast("“Larch” isn't added yet.").getByText("Open").click();
    expect(await user.field("Id").inputValue()).toBe("4006381333962");
    expect(await user.field("Name").inputValue()).toBe("Larch");
  });

  test("is the id of the new plant for a token that may only write", async (visit) => {
    const { user } = await visit.open({ as: { name: "till", scopes: ["plants:write"] } });
    await user.field("Name").focus();
    await user.scan(CODE, { element: "#add-name:focus" });
    expect(await user.field("Id").inputValue()).toBe(CODE);
    expect(await user.field("Name").inputValue()).toBe("");
  });
});

describeInBrowser("a scan into the list", () => {
  it("after a click into the search replaces the code before", async (visit) => {
    const { page, user } = await visit.open();
    await user.scan(CODE, { shown: "Oak" });
    await user.uncover();
    const search = page.getByRole("searchbox");
    const selected = `getSelection().toString()`;
    await search.click();
    await user.untilSo(`${selected} === "${CODE}"`);
    // The second click sets the cursor.
    await search.click();
    await user.untilSo(`${selected} === ""`);
    await user.scan(OTHER_CODE, { shown: "Elm" });
    expect(await search.inputValue()).toBe(OTHER_CODE);
  });

  test("is no tag, and no tag hides its plant", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants?tag=shrub" });
    await page.getByRole("combobox", { name: "Filter by tag" }).click();
    await user.scan(CODE, { shown: "Oak", row: "Oak" });
    await user.untilAt(`#/plants/${CODE}?q=${CODE}`);
    await page
      .getByRole("listbox", { name: "Tags in use" })
      .getByRole("option")
      .waitFor({ state: "detached" });
  });

  test("keeps the selection, and what is typed for it", async (visit) => {
    const { page, user } = await visit.open();
    await page.getByRole("checkbox", { name: "Select “Rose”" }).check();
    const tag = page.getByLabel("Tag for the selected plants");
    await tag.fill("new");
    await user.scan(CODE, { shown: "Oak", text: "1 selected" });
    expect(await tag.inputValue()).toBe("new");
    await user.scan(UNKNOWN_CODE, { toast: `No plant has the id ${UNKNOWN_CODE}.` });
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.see({ text: "1 selected" });
  });

  it("and a search that find nothing close the open plant", async (visit) => {
    const { page, user } = await visit.open({ at: `#/plants/${CODE}` });
    await page.locator(".shown-name").waitFor();
    await user.scan(UNKNOWN_CODE, { heading: `No plant has the id ${UNKNOWN_CODE}` });
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.scan(CODE, { shown: "Oak" });
    if (visit.isPhone) return;
    await user.search("nothing like it");
    await user.press("Enter", { heading: "No match" });
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.search("ros");
    await user.openRow("Rose", { shown: "Rose" });
    await page.getByRole("searchbox").press("Enter");
    await user.see({ shown: "Rose" });
  });

  test("does not wait with another plant on the screen, and the last of two counts", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/1" });
    await page.locator(".shown-name").waitFor();
    const first = new RegExp(`after=${BigInt(CODE) - 1n}&limit=1`);
    const release = await user.hold(first);
    await user.scan(CODE);
    await page.locator(".panel").waitFor({ state: "detached" });
    await user.scan(OTHER_CODE, { shown: "Elm" });
    const answered = page.waitForResponse(first);
    release();
    await (await answered).finished();
    await user.untilAt(`#/plants/${OTHER_CODE}?q=${OTHER_CODE}`);
    expect(await page.locator("#search").inputValue()).toBe(OTHER_CODE);
  });

  test("of a plant that can't be read shows it when the connection is back", async (visit) => {
    const { page, user, announceFailure } = await visit.open();
    announceFailure("/plants", "failed");
    await page.route(/\/plants[?/]/, (route) => route.abort());
    await user.scan(CODE, { text: "Couldn't read this plant" });
    await page.unroute(/\/plants[?/]/);
    await user.see({ shown: "Oak" });
  });
});

describeInBrowser("a scan elsewhere", () => {
  test("opens its plant from other pages, their fields and their dialogs", async (visit) => {
    const { page, user } = await visit.open({ at: "#/import" });
    await user.see({ heading: "Import" });
    await page.locator("#main").focus();
    await user.scan(CODE, { shown: "Oak" });
    await user.goTo("#/changes", { heading: "Changes" });
    await page.getByRole("textbox").first().focus();
    await user.scan(OTHER_CODE, { shown: "Elm" });
    await user.press("?", { heading: "Keyboard shortcuts" });
    await user.scan(CODE, { shown: "Oak" });
    expect(await page.locator("dialog[open]").count()).toBe(0);
  });

  test("closes no dialog with a secret or with text, and signs nobody in", async (visit) => {
    const { page, user } = await visit.open({ at: "#/tokens" });
    await user.click("New token");
    await user.scan(CODE, { shown: "Oak" });
    await user.goTo("#/tokens", { heading: "Tokens" });
    await user.click("New token");
    await user.field("Name").fill("Till 9");
    await user.scan(CODE, { toast: "Not opened: close this first, then scan again." });
    expect(await user.field("Name").inputValue()).toBe("Till 9");
    await user.click("Create token", { heading: "Copy this now" });
    await page.getByRole("button", { name: "Done" }).focus();
    await user.scan(CODE, { heading: "Copy this now" });
    await user.click("Done");
    await user.signOut();
    await user.field("Token").fill("pst_half");
    await user.scan(CODE, { text: "Sign in first, then scan again." });
    expect(await user.field("Token").inputValue()).toBe("pst_half");
  });
});

describeInBrowser("a scan of a plant that was deleted", () => {
  it("says who deleted it and when, and restores it", async (visit) => {
    const { page, user, service, isPhone } = { ...visit, ...(await visit.open()) };
    const token = await visit.createToken({ name: isPhone ? "ben" : "anna" });
    const headers = { authorization: `Bearer ${token}` };
    await send(service, "DELETE", `/plants/${OTHER_CODE}`, { headers });
    await user.scan(OTHER_CODE, { heading: `No plant has the id ${OTHER_CODE}` });
    await user.see({ text: /“Elm” had it\. (anna|ben) deleted it on \d+ \w+ \d{4}, \d\d:\d\d\./ });
    await user.click("Restore “Elm”", { toast: "Restored “Elm”", shown: "Elm" });
    expect(await service.findPlant(BigInt(OTHER_CODE))).toMatchObject({ name: "Elm", tag: "tree" });
    expect(await page.getByText("deleted it").count()).toBe(0);
  });
});
