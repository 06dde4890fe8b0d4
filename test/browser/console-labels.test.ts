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
import { describeInBrowser, rowOf, startJourneys } from "../support/browser.ts";
import { sendPlant } from "../support/service.ts";

const ids = ["7", "42", "4006381333931", "9223372036854775807", "-9223372036854775808"];

const { test } = await startJourneys({}, async ({ url }) => {
  for (const id of ids) await sendPlant(url, { id: BigInt(id), name: `Plant ${id}`, tag: "fern" });
});

/** A dialog of the browser would block the page. */
const noDialog = `window.print = () => document.documentElement.setAttribute("data-printed", "")`;

async function print(page: Page, sheet: string, code: string): Promise<void> {
  await page.getByRole("checkbox", { name: "Select all that match" }).check();
  await page.getByRole("button", { name: "Labels" }).click();
  await page.getByLabel("Labels", { exact: true }).selectOption({ label: sheet });
  await page.getByLabel("Code").selectOption(code);
  await page.getByRole("dialog").getByRole("button", { name: "Print" }).click();
  await page.locator("html[data-printed]").waitFor();
}

/** What a scanner reads from the picture of an element. */
async function read(page: Page, element: Locator): Promise<string> {
  const png = (await element.screenshot()).toString("base64");
  const { width, height, grey } = await page.evaluate<{
    width: number;
    height: number;
    /** 1 is white. */
    grey: string;
  }>(`(async () => {
    const image = new Image();
    image.src = "data:image/png;base64,${png}";
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
    const greys = Array.from({ length: width * height }, (_, at) => (data[at * 4] > 127 ? "1" : "0"));
    return { width, height, grey: greys.join("") };
  })()`);
  const source = new RGBLuminanceSource(
    Uint8ClampedArray.from(grey, (bit) => Number(bit) * 255),
    width,
    height,
  );
  const reader = new MultiFormatReader();
  const formats = [BarcodeFormat.QR_CODE, BarcodeFormat.CODE_128];
  reader.setHints(
    new Map<DecodeHintType, unknown>([
      [DecodeHintType.POSSIBLE_FORMATS, formats],
      [DecodeHintType.TRY_HARDER, true],
    ]),
  );
  return reader.decode(new BinaryBitmap(new HybridBinarizer(source))).getText();
}

describeInBrowser("labels", () => {
  for (const code of ["QR code", "Barcode (Code 128)"])
    test(`have a ${code} of every id, which the search finds again`, async (visit) => {
      const { page } = await visit.open();
      await page.evaluate(noDialog);
      await rowOf(page, "Plant 42").waitFor();
      await print(page, "Avery L7160, 21 on A4, 63.5 × 38.1 mm", code);
      await page.emulateMedia({ media: "print" });
      // As a printer has it: three times the dots of a screen.
      await page.evaluate(`document.querySelector(".printed").style.zoom = 3`);
      const labels = page.locator(".printed-label");
      expect(await labels.count()).toBe(ids.length);
      const found: string[] = [];
      for (const label of await labels.all()) found.push(await read(page, label.locator("svg")));
      expect(found.toSorted()).toEqual(ids.toSorted());
      await page.emulateMedia({ media: null });
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "hidden" });
      for (const scanned of found.slice(0, 2)) {
        await page.keyboard.type(scanned);
        await page.keyboard.press("Enter");
        await page.locator(".shown-name", { hasText: `Plant ${scanned}` }).waitFor();
      }
    });

  test("fill sheets of the chosen size, after those that were used, and nothing else is printed", async (visit) => {
    const { page } = await visit.open();
    await page.evaluate(noDialog);
    await rowOf(page, "Plant 42").waitFor();
    await page.getByRole("checkbox", { name: "Select all that match" }).check();
    await page.getByRole("button", { name: "Labels" }).click();
    const used = page.getByLabel("Used labels on the first sheet");
    await used.fill("21");
    await page.getByText("Enter a number from 0 to 20.").waitFor();
    await used.fill("18");
    await page.getByRole("dialog").getByRole("button", { name: "Print" }).click();
    await page.locator("html[data-printed]").waitFor();
    const countPages = async (): Promise<string[]> => {
      const pdf = (await page.pdf({ preferCSSPageSize: true })).toString("latin1");
      return pdf.match(/\/MediaBox \[[^\]]*\]/g) ?? [];
    };
    // A4 in points: 595 x 842.
    expect(await countPages()).toEqual(Array(2).fill(expect.stringMatching(/ 59[45]\S* 84[12]/)));
    await page.getByLabel("Labels", { exact: true }).selectOption("roll62");
    await page.getByRole("dialog").getByRole("button", { name: "Print" }).click();
    await page.locator(".sheet-roll62").first().waitFor({ state: "attached" });
    // 62 x 29 mm.
    expect(await countPages()).toEqual(
      Array(ids.length).fill(expect.stringMatching(/ 17[56]\S* 8[12]/)),
    );
  });
});
