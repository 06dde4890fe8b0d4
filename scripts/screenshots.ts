/** npm run screenshots: takes screenshots of the demo's main views for the documents. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { findChromium } from "../test/support/chromium.ts";
import { startDemo } from "./demo-service.ts";

const folder = join(import.meta.dir, "../docs/screenshots");
const PLANTS = 3000;
/** The charts get one bar every 5 seconds. */
const BUSTLE_MS = 90_000;
const BYTES_MAX = 130_000;

const viewport = { width: 1200, height: 750 };

interface Picture {
  readonly name: string;
  /** Within the service. */
  readonly path: string;
  readonly colorScheme?: "light" | "dark";
  /** Resolves when the page is ready for the picture. */
  readonly settle: (page: Page) => Promise<unknown>;
}

const showRows = (page: Page): Promise<unknown> =>
  page.getByText("Camellia", { exact: false }).first().waitFor();

const showOperation = (page: Page): Promise<unknown> => page.locator(".samples").first().waitFor();

const showCharts = (page: Page): Promise<unknown> => page.locator(".chart svg").first().waitFor();

const pictures: readonly Picture[] = [
  { name: "plants-light", path: "/#/plants", settle: showRows },
  { name: "plants-dark", path: "/#/plants", colorScheme: "dark", settle: showRows },
  { name: "import", path: "/#/import", settle: chooseFile },
  { name: "reference", path: "/docs#/plants/createPlant", settle: showOperation },
  { name: "health-dark", path: "/#/health", colorScheme: "dark", settle: showCharts },
];

const spreadsheet = [
  "Nr,Plant,Kind",
  "70001,Monstera deliciosa 'Albo Variegata',aroid",
  "70002,Hoya kerrii,climber",
  "70003,Adiantum raddianum,fern",
  "9007199254740995,Nymphaea alba,aquatic",
  "",
].join("\n");

async function chooseFile(page: Page): Promise<void> {
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: /choose/i }).click(),
  ]);
  await chooser.setFiles({
    name: "spring-delivery.csv",
    mimeType: "text/csv",
    buffer: Buffer.from(spreadsheet),
  });
  await page.getByText("Nymphaea alba").filter({ visible: true }).first().waitFor();
}

await using demo = await startDemo({ port: "8080", plants: PLANTS });
await changeSome();
const stopping = new AbortController();
const bustling = demo.bustle(stopping.signal);
const begunAtMs = performance.now();
const executablePath = findChromium();
if (executablePath === undefined) throw new Error("screenshots need Chromium");
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });
mkdirSync(folder, { recursive: true });
try {
  for (const picture of pictures) {
    if (picture.path.includes("health"))
      await Bun.sleep(Math.max(0, begunAtMs + BUSTLE_MS - performance.now()));
    process.stdout.write(`${await take(browser, picture)}\n`);
  }
} finally {
  await browser.close();
  stopping.abort();
  await bustling;
}

/** The list shows when a plant was last changed. */
async function changeSome(): Promise<void> {
  const headers = { authorization: `Bearer ${demo.token}`, "content-type": "application/json" };
  for (const id of [1002, 1009, 1010, 1014, 1018]) {
    const url = `${demo.url}/plants/${id}`;
    const plant = (await (await fetch(url, { headers })).json()) as object;
    const body = JSON.stringify({ ...plant, tag: "sale" });
    const { status } = await fetch(url, { method: "PUT", headers, body });
    if (status !== 200) throw new Error(`PUT ${url} answered ${status}`);
  }
}

async function take(from: Browser, picture: Picture): Promise<string> {
  const { name, path, colorScheme = "light", settle } = picture;
  const context = await from.newContext({
    colorScheme,
    viewport,
    reducedMotion: "reduce",
    locale: "en-GB",
  });
  const page = await context.newPage();
  await page.goto(`${demo.url}${path}`);
  if (!path.startsWith("/docs")) {
    await page.getByRole("textbox", { name: "Token", exact: true }).fill(demo.token);
    await page.getByRole("button", { name: "Sign in" }).click();
  }
  await settle(page);
  await page.mouse.move(0, 0);
  // Fonts load, and charts are drawn in the next frame.
  await page.waitForTimeout(500);
  const png = await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
  const size = `${Math.round(png.byteLength / 1000)} kB`;
  return `${name}.png  ${size}${png.byteLength > BYTES_MAX ? "  (too large)" : ""}`;
}
