/** The console in other languages: chosen by the browser or by the user, and within the width of a small phone. */

import { expect } from "bun:test";
import { nameBatch } from "../../src/domain/change.ts";
import { describeInBrowser, startJourneys } from "../support/browser.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import type { Seen } from "../support/steps.ts";

const { test } = await startJourneys({}, async ({ url, store }) => {
  for (let id = 1n; id <= 1_200n; id += 100n)
    await sendPlant(url, { id, name: `Rosa ${id}`, tag: "Strauch" });
  const writer = { token: "Anna Müller", batch: nameBatch("Delete 1 plant") };
  await store.removePlant(1n, {}, writer);
  // As a Swiss browser wrote it.
  const many = { token: "Anna Müller", batch: nameBatch("Delete 1’234 plants") };
  await store.createPlant({ id: 7n, name: "Efeu", tag: undefined }, many);
  const undo = { token: "Bernd", batch: nameBatch("Undo: changes by Anna Müller") };
  await store.removePlant(7n, {}, undo);
});

describeInBrowser("in another language,", () => {
  test("a German browser signs in, finds, edits, undoes and previews an import in German", async (visit) => {
    const { page, user, announceFailure } = await visit.open({ token: null, locale: "de-AT" });
    announceFailure("/token", 401);
    await user.see({ heading: "Anmelden" });
    expect(await page.locator("html").getAttribute("lang")).toBe("de");
    await page.getByLabel("Token").fill("pst_falsch");
    await user.click("Anmelden", { text: "Dieses Token wird nicht angenommen" });
    await page.getByLabel("Token").fill(TEST_TOKEN);
    await user.click("Anmelden");
    await page.getByRole("link", { name: "Pflanzen", exact: true }).click();
    await user.see({ exactText: "11 Pflanzen", columnheader: "Geändert" });
    expect(await page.title()).toBe("Pflanzen · Plant Store");

    await user.search("rosa 1", { text: /von 11 Pflanzen/ });
    await user.openRow("Rosa 101", { shown: "Rosa 101" });
    await user.click("Bearbeiten");
    const mark = await page.evaluate<string>(
      `getComputedStyle(document.querySelector("label[for=edit-name]"), "::after").content`,
    );
    expect(mark).toContain("(erforderlich)");
    await user.field("Name").fill("Rosa centifolia");
    await user.click("Speichern", { toast: "„Rosa centifolia“ geändert." });
    await user.toast("geändert").getByRole("button", { name: "Rückgängig" }).click();
    await user.see({ toast: "„Rosa 101“ zurückgeändert.", shown: "Rosa 101" });

    await user.search("keine davon", { heading: "Keine Treffer" });
    await user.see({ text: "Keine Pflanze hat „keine davon“ im Namen oder Schlagwort." });
    await user.goTo("#/changes", { link: "1 Pflanze löschen" });
    await user.see({ link: /^1\s234 Pflanzen löschen/ });
    await user.see({ link: "Rückgängig: Änderungen · Anna Müller" });
    await user.goTo("#/changes?by=Bernd", { button: "Diese eine rückgängig machen" });

    await user.goTo("#/import", { heading: "Datei hier ablegen" });
    await user.chooseFile("pflanzen.csv", "id,name\n7,Hedera\nx,Falsch\n", { cell: "Hedera" });
    await user.see({ cell: /^Die Id ist keine ganze Zahl/ });
  });

  test("an error of the service is explained by its code, with the service's message", async (visit) => {
    const { user, announceFailure } = await visit.open({ at: "#/tokens", locale: "de" });
    announceFailure("/tokens", 409);
    const create = async (seen: Seen): Promise<void> => {
      await user.click("Neues Token", { dialog: "Neues Token" });
      await user.field("Name").fill("Kasse");
      await user.click("Token erstellen", seen);
    };
    await create({ text: "Jetzt kopieren" });
    await user.click("Fertig");
    await create({ text: "Ein Token in Gebrauch hat diesen Namen" });
    await user.see({ text: '(A token named "Kasse" is in use' });
  });

  test("the user's choice outlasts the browser's, and a new plant that is not added yet", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/new" });
    await user.fillNew("7", "Salvia");
    await user.click(/Signed in as/);
    await page.getByLabel("Language").selectOption("Español");
    await user.see({ heading: "Añadir una planta" });
    expect(await page.locator("html").getAttribute("lang")).toBe("es");
    expect(await user.field("Nombre").inputValue()).toBe("Salvia");
    await user.reload({ heading: "Añadir una planta" });
    await user.click(/Sesión iniciada como/);
    await page.getByLabel("Idioma").selectOption("English");
    await user.see({ heading: "Add a plant" });
  });

  test("a language whose script does not load leaves the page in English", async (visit) => {
    const { page, user, announceFailure } = await visit.open();
    await page.route(/\/fr-[^/]*\.js$/, (route) => route.abort());
    announceFailure("/fr-", "failed");
    await user.click(/Signed in as/);
    await page.getByLabel("Language").selectOption("Français");
    await user.see({ heading: "Plants" });
    expect(await page.locator("html").getAttribute("lang")).toBe("en");
  });

  for (const [at, locale] of ["de", "fr", "es"].entries())
    test(`every view fits 320 pixels: ${locale}`, async (visit) => {
      const viewport = { width: 320, height: 640 };
      const look = { locale, viewport, hasTouch: true, isJudgedThroughout: true };
      await visit.createToken({ scopes: ["plants:read"], name: `Till ${locale}` });
      const { page, user } = await visit.open(look);
      await page.locator("#plants input[type=checkbox]").nth(1).check();
      await user.see({ element: ".selection" });
      const findCut = (): Promise<number> =>
        page.locator(".tabs").evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth);
      expect(await findCut()).toBe(0);
      await page.locator(".account").click();
      await user.see({ element: ".menu-panel .preference >> nth=1" });
      await user.press("Escape");
      await user.goTo("#/plants/201", { element: ".history li" });
      await page.locator(".panel-body .form-actions button").nth(1).click();
      await user.see({ element: "dialog .label-preview" });
      await user.press("Escape");
      await page.locator(".panel-body .form-actions button").first().click();
      await user.see({ element: "#edit-name" });
      await user.goTo("#/plants/new", { element: "#add-id" });
      await page.locator("#add-id").fill(String(9_001 + at));
      await page.locator("#add-name").fill("Salvia");
      await page.locator(".panel-body [type=submit]").click();
      // Its buttons have long words in German.
      const undo = page.locator(".toast [aria-keyshortcuts=u]").first();
      await undo.waitFor();
      const toast = await page.locator(".toast").first().boundingBox();
      const buttons = await page.locator(".toast .with-button").first().boundingBox();
      expect(toast?.x).toBeGreaterThanOrEqual(0);
      for (const box of [toast, buttons])
        expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(320);
      await user.goTo("#/plants?q=x", { element: ".blank" });
      await user.goTo("#/import", { element: ".single h2 >> nth=0" });
      await user.chooseFile("plants.csv", "id,name,tag\n71,Oak,tree\nx,Bad,tree\n", {
        cell: "Oak",
      });
      await user.goTo("#/overview", { element: [".tag-bar >> nth=0", ".brush"] });
      await user.goTo("#/changes", { element: ".table tbody tr >> nth=0" });
      await page.locator(".table tbody button").first().click();
      await page.getByRole("dialog").waitFor();
      await user.press("Escape");
      await user.goTo("#/health", { element: ".chart svg >> nth=0" });
      expect(await findCut()).toBe(0);
      await user.goTo("#/tokens", { element: ".table" });
      await page.locator(".section-head button, .single > button").first().click();
      await page.getByRole("dialog").waitFor();
      await user.press("Escape");
      await user.goTo("#/webhooks", { element: ".blank, .table" });
    });
});
