/** The check of accessibility itself: what it finds, and that it fails where it cannot see. */

import { afterAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { findFaults } from "../support/accessibility.ts";
import { describeInBrowser, openPage, phone } from "../support/browser.ts";

const pageOf = (main: string): string =>
  `<!doctype html><html lang="en"><title>Plants</title>
   <style>.frame { display: contents } .pale { color: #999; background: #fff } .low { width: 90px; height: 20px; display: block }</style>
   <main><h1>Plants</h1>${main}</main>`;

const headers = { "content-type": "text/html" };
const server = Bun.serve({ port: 0, fetch: () => new Response(pageOf(""), { headers }) });
afterAll(() => server.stop(true));
const url = server.url.href;

async function findIn(page: Page, main: string): Promise<string> {
  await page.setContent(pageOf(main));
  return (await findFaults(page)).join("\n");
}

/** What is judged when the test is over. */
const leave = (page: Page): Promise<void> => page.setContent(pageOf(""));

describeInBrowser("the check of accessibility", () => {
  test("finds a fault, also below what has no box of its own", async () => {
    const { page } = await openPage({ url });
    const frames = [
      "section",
      `section class="frame"`,
      `section class="frame" id="outer"`,
    ] as const;
    for (const frame of frames) {
      expect(await findIn(page, `<${frame}><button></button></section>`)).toContain("button-name");
      expect(await findIn(page, `<${frame}><p class="pale">Rose</p></section>`)).toContain(
        "color-contrast",
      );
    }
    expect(await findIn(page, `<section class="frame"><p>Rose</p></section>`)).toBe("");
    await leave(page);
  });

  test("judges each kind of element once", async () => {
    const { page } = await openPage({ url });
    const faulty = `<article><button></button></article>`;
    expect(await findIn(page, faulty)).toContain("button-name");
    expect(await findIn(page, faulty)).toBe("");
    await leave(page);
  });

  test("finds a target that is too small for a finger, also below what has no box of its own", async () => {
    const { page } = await openPage({ url, ...phone });
    const low = `<a class="low" href="#rose">Rose</a>`;
    expect(await findIn(page, `<section class="frame">${low}</section>`)).toContain(
      "too small for a finger: 90 x 20",
    );
    await leave(page);
  });

  test("finds a placeholder or a choice that is cut off, and an id in two lines", async () => {
    const { page } = await openPage({ url });
    const parts = [
      (width: string) => `<input aria-label="Name" placeholder="Name, tag or id" ${width}>`,
      (width: string) =>
        `<select aria-label="Order" ${width}><option>Lowest id first</option></select>`,
      (width: string) => `<p class="row-id" ${width}>70 01</p>`,
    ];
    for (const partOf of parts) {
      expect(await findIn(page, partOf(`style="width: 2rem"`))).toContain("cut off or broken");
      expect(await findIn(page, partOf(`style="width: 20rem"`))).toBe("");
    }
    await leave(page);
  });

  test("fails if it judges less than 80 % of what is visible", async () => {
    const { page } = await openPage({ url });
    // It does not look into pictures.
    const hidden = "<p>Rose</p>".repeat(20);
    const picture = `<svg><foreignObject width="90" height="90">${hidden}</foreignObject></svg>`;
    expect(await findIn(page, picture)).toMatch(/^only 2 of 22 visible elements are judged/);
    expect(await findIn(page, `<div hidden>${hidden}</div>`)).toBe("");
    await leave(page);
  });
});
