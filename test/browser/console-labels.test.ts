/** Printed labels: a scanner reads their codes, and the search finds the plants. */

import { expect } from "bun:test";
import {
  BarcodeFormat,
  BinaryBitmap,
  DecodeHintType,
  HybridBinarizer,
  MultiFormatReader,
  RGBLuminanceSource,
} from "@zxing/library";
import type { Locator, Page } from "playwright-core";
import { describeInBrowser, startJourneys, type TestPage, type Visit } from "../support/browser.ts";
import { sendPlant } from "../support/service.ts";
import { until } from "../support/until.ts";

const ids = ["7", "42", "4006381333931", "9223372036854775807", "-9223372036854775808"];

const { test } = await startJourneys({}, async ({ url }) => {
  for (const id of ids) await sendPlant(url, { id: BigInt(id), name: `Plant ${id}`, tag: "fern" });
});

const stubPrint = `window.print = () => document.documentElement.setAttribute("data-printed", "")`;

/** The dialog for labels of all plants. One of the browser's own would block the page. */
async function openLabels({ open }: Visit): Promise<TestPage> {
  const view = await open();
  await view.page.evaluate(stubPrint);
  await view.user.selectAll();
  await view.user.click("Labels");
  return view;
}

const hints = new Map<DecodeHintType, unknown>([
  [DecodeHintType.POSSIBLE_FORMATS, [BarcodeFormat.QR_CODE, BarcodeFormat.CODE_128]],
  [DecodeHintType.TRY_HARDER, true],
]);

/** What a scanner reads from the picture of an element. */
async function read(page: Page, element: Locator): Promise<string> {
  const png = (await element.screenshot()).toString("base64");
  // A string, 1 for white: serializing a long array is slow.
  const [width, height, bits] = await page.evaluate<[number, number, string]>(`(async () => {
    const image = new Image();
    image.src = "data:image/png;base64,${png}";
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
    return [width, height, Array.from({ length: width * height }, (_, at) => data[at * 4] > 127 ? 1 : 0).join("")];
  })()`);
  const greys = Uint8ClampedArray.from(bits, (bit) => Number(bit) * 255);
  const source = new RGBLuminanceSource(greys, width, height);
  const picture = new BinaryBitmap(new HybridBinarizer(source));
  return new MultiFormatReader().decode(picture, hints).getText();
}

describeInBrowser("the list", () => {
  test("is printed in its order: rows only, with a heading that each sheet repeats", async ({
    open,
  }) => {
    const { page, user } = await open({ at: "#/plants?tag=fern&sort=name&order=desc" });
    await page.evaluate(stubPrint);
    await user.see({ firstRow: "Plant 9223372036854775807" });
    await user.click("Export the list");
    await user.click("Print these plants");
    await page.locator("html[data-printed]").waitFor();
    await page.emulateMedia({ media: "print" });
    await page.locator(".shell").waitFor({ state: "hidden" });
    const printed = page.locator(".printed-list");
    const shown = await printed.locator("tbody tr td:first-child").allInnerTexts();
    expect(shown).toEqual(ids.toSorted().toReversed());
    expect(await printed.locator("p").innerText()).toStartWith(
      "Plants · the tag “fern” · 5 plants",
    );
    // Paper outlasts the day: a time alone would not do.
    expect(await printed.locator("td:last-child").first().innerText()).toMatch(/ 20\d\d, \d/);
    const display = `getComputedStyle(document.querySelector(".printed-list thead")).display`;
    expect(await page.evaluate<string>(display)).toBe("table-header-group");
    await page.emulateMedia({ media: null });
  });
});

describeInBrowser("labels", () => {
  for (const kind of ["QR code", "Barcode (Code 128)"])
    test(`have a ${kind} of every id, which the search finds again`, async (visit) => {
      const { page, user } = await openLabels(visit);
      const label = "Avery L7160, 21 on A4";
      await user.field("Labels").selectOption({ label });
      await page.getByLabel("Code").selectOption(kind);
      await user.within(page.getByRole("dialog")).click("Print");
      await page.locator("html[data-printed]").waitFor();
      await page.emulateMedia({ media: "print" });
      // As a printer has it: three times the dots of a screen.
      await page.evaluate(`document.querySelector(".printed").style.zoom = 3`);
      const labels = page.locator(".printed .printed-label");
      expect(await labels.count()).toBe(ids.length);
      const found: string[] = [];
      for (const each of await labels.all()) found.push(await read(page, each.locator("svg")));
      expect(found.toSorted()).toEqual(ids.toSorted());
      await page.emulateMedia({ media: null });
      await user.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "hidden" });
      for (const code of found.slice(0, 2)) await user.scan(code, { shown: `Plant ${code}` });
    });

  test("are previewed in their size, with the place of the first on the sheet", async (visit) => {
    const { page, user } = await openLabels(visit);
    const paper = page.locator(".label-paper");
    await paper.getByText(/^Plant /).waitFor();
    const widthOf = async (): Promise<number> => (await paper.boundingBox())?.width ?? 0;
    await user.field("Labels").selectOption("L7160");
    const wide = await widthOf();
    await user.field("Labels").selectOption("L7651");
    expect((await widthOf()) / wide).toBeCloseTo(38.1 / 63.5, 1);
    await page.getByLabel("Used labels on the first sheet").fill("18");
    await page.getByRole("img", { name: "The first label is number 19 of 65" }).waitFor();
    await user.field("Code").selectOption("barcode");
    await paper.locator(".printed-bars").waitFor();
  });

  test("fill sheets of the chosen size, after those that were used, and nothing else is printed", async (visit) => {
    const { page, user } = await openLabels(visit);
    const used = page.getByLabel("Used labels on the first sheet");
    await used.fill("21");
    await user.see({ text: "Enter a number from 0 to 20." });
    await used.fill("18");
    await user.within(page.getByRole("dialog")).click("Print");
    await page.locator("html[data-printed]").waitFor();
    const countPages = async (): Promise<string[]> => {
      const pdf = (await page.pdf({ preferCSSPageSize: true })).toString("latin1");
      return pdf.match(/\/MediaBox \[[^\]]*\]/g) ?? [];
    };
    // A4 in points: 595 x 842.
    expect(await countPages()).toEqual(Array(2).fill(expect.stringMatching(/ 59[45]\S* 84[12]/)));
    await user.field("Labels").selectOption("roll62");
    await user.within(page.getByRole("dialog")).click("Print");
    await page.locator(".sheet-roll62").first().waitFor({ state: "attached" });
    // 62 x 29 mm.
    expect(await countPages()).toEqual(ids.map(() => expect.stringMatching(/ 17[56]\S* 8[12]/)));
  });

  test("are counted before they are printed, and one is printed from a plant and after adding it", async (visit) => {
    const { page, user } = await openLabels(visit);
    await user.field("Labels").selectOption("L7160");
    await page.getByLabel("Used labels on the first sheet").fill("20");
    await user.see({ text: `${ids.length} labels, on 2 sheets.` });
    await user.press("Escape");
    await user.goTo("#/plants/new");
    await user.add("77001", "Fern", { toast: "Added “Fern”" });
    await user.within(user.toast("Added")).click("Label");
    await user.see({ text: "1 label, on 1 sheet." });
    await user.press("Escape");
    await user.goTo("#/plants/77001", { shown: "Fern" });
    await user.within(page.locator(".panel")).click("Label");
    await user.see({ text: "1 label, on 1 sheet." });
    await user.press("Escape");
    // The same again, under the next id.
    await user.click("Add another", { heading: "Add a plant" });
    await user.see({ text: /has this name too/ });
    expect(await user.field("Id").inputValue()).toBe("77002");
    expect(await user.field("Name").inputValue()).toBe("Fern");
    await user.click("Add plant");
    await until("the second one is stored", async () => {
      return (await visit.service.findPlant(77_002n))?.name === "Fern";
    });
  });

  test("stay open as they were filled in while an action that runs beside them ends", async (visit) => {
    const { page, user } = await visit.open({ at: "#/plants/42" });
    await page.getByRole("checkbox", { name: "Select “Plant 7”" }).click();
    const release = await user.hold(/\/plants\/batch/);
    await user.within(page.locator(".selection")).click("Remove tag", { text: "Changing…" });
    await user.within(page.locator(".panel")).click("Label");
    const used = page.getByLabel("Used labels on the first sheet");
    await used.fill("7");
    release();
    await user.toast("Changed 1 plant.").waitFor({ state: "attached" });
    expect(await used.inputValue()).toBe("7");
  });
});
