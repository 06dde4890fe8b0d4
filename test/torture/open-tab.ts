/** The list of plants stays open in a browser while others work all day: the tab's memory stays what it was. */

import { type Browser, chromium, type Page } from "playwright-core";
import { buildConsole } from "../../scripts/build.ts";
import { findChromium } from "../support/chromium.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import type { Random } from "../support/random.ts";
import { send, startService, TEST_TOKEN, type TestService } from "../support/service.ts";
import { makeStore } from "../support/stores.ts";
import { quantile } from "./creators.ts";
import { type Budget, Findings, type Finding, runEach, type Scenario } from "./scenario.ts";
import { measureMemoryBytes, missingFigures } from "./service.ts";

const PLANTS = 235_000;
const CHANGES_A_DAY = 100_000;
const SHORT_CHANGES = 10_000;
/** The page gets them in one or two pieces, as it does from an import. */
const CHANGES_PER_STEP = 200;
const SAMPLES = 50;
/** Somebody looks at a plant now and then. */
const LOOKS = 20;
/** Until then the page fills what it keeps: rows, tags, compiled code. */
const WARM_UP_SHARE = 0.1;
const HEAP_BYTES_MAX = 150e6;
/** An array or a map of all rows takes 4 MB when it grows. The plants that are added in a day would take 12. */
const HEAP_BYTES_MORE_MAX = 10e6;
const PATIENCE_MS = 120_000;
const headers = { "content-type": "application/x-ndjson" };

/** The row that is in sight all day. */
const places = { "at the top": 1, "scrolled to the end": PLANTS } as const;
type Place = keyof typeof places;

export const openTab: Scenario = {
  title:
    "a list of 235,000 plants that stays open for a day of 100,000 changes takes at most 150 MB",
  missing: () => missingFigures() ?? (findChromium() === undefined ? "no Chromium" : undefined),
  run: (budget) => runEach(Object.keys(places) as Place[], budget, spendDay),
};

async function spendDay(place: Place, { random, tell, isShort = false }: Budget): Promise<Finding> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(makeTemporaryFolder());
  makeStore(`${folder.path}/plants.db`, PLANTS);
  await buildConsole(`${folder.path}/console`);
  const settings = {
    DATABASE_URL: `sqlite:${folder.path}/plants.db`,
    PLANTSTORE_LOG_LEVEL: "error",
  };
  const options = { consoleFolder: `${folder.path}/console` };
  const service = opened.use(await startService(settings, options));
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const browser = await chromium.launch({ executablePath: findChromium() ?? "", args });
  opened.defer(() => browser.close());
  const page = await openList(browser, service);
  if (place === "scrolled to the end") await scrollToEnd(page);

  const found = new Findings();
  const measure = await openMeter(browser, page);
  const heaps: number[] = [];
  const sample = async (): Promise<void> => {
    const { heapBytes, processBytes } = await measure();
    heaps.push(heapBytes);
    found.note("memory of the tab's process at most, MB", processBytes / 1e6);
  };
  await sample();
  const day = describeDay(places[place], random);
  const steps = (isShort ? SHORT_CHANGES : CHANGES_A_DAY) / CHANGES_PER_STEP;
  for (let step = 1; step <= steps; step++) {
    const { lines, seen } = day(step);
    const answer = await send(service, "POST", "/plants/batch?upsert=true", {
      headers,
      body: lines,
    });
    await answer.arrayBuffer();
    found.count("changes", CHANGES_PER_STEP);
    await page.locator(".row", { hasText: seen }).waitFor();
    if (step % (steps / LOOKS) < 1) await look(page, seen);
    if (step % (steps / SAMPLES) < 1) await sample();
    if (step % (steps / 10) < 1) tell(`${place}: ${step} of ${steps}, ${toMb(heaps.at(-1))} MB`);
  }
  return judge(found, heaps);
}

const toMb = (bytes = Number.NaN): number => Math.round(bytes / 1e5) / 10;

function judge(found: Findings, heaps: readonly number[]): Finding {
  const warm = heaps.slice(Math.ceil(heaps.length * WARM_UP_SHARE));
  const tenth = Math.ceil(heaps.length / 10);
  const growth = quantile(warm.slice(-tenth), 0.5) - quantile(warm.slice(0, tenth), 0.5);
  const most = Math.max(...heaps);
  if (most > HEAP_BYTES_MAX) found.faults.push(`the tab's heap had ${toMb(most)} MB`);
  if (growth > HEAP_BYTES_MORE_MAX)
    found.faults.push(`the tab's heap grew by ${toMb(growth)} MB after the first tenth of the day`);
  found.note("heap at most, MB", toMb(most));
  found.note("heap in the beginning, MB", toMb(heaps[0]));
  found.note("heap in the end, MB", toMb(heaps.at(-1)));
  return { faults: found.faults, figures: { ...found.figures, "heap growth, MB": toMb(growth) } };
}

async function openList(browser: Browser, { url }: TestService): Promise<Page> {
  const page = await browser.newPage({ locale: "en-GB" });
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(`${url}/#/plants`);
  await page.getByLabel("Token").fill(TEST_TOKEN);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.locator(".row[id]").first().waitFor();
  return page;
}

/** By the key, again and again: the list is loaded as far as it was seen. */
async function scrollToEnd(page: Page): Promise<void> {
  await page.locator("#plants").focus();
  const last = page.locator(".row", { hasText: `plant ${PLANTS}` });
  while ((await last.count()) === 0) {
    await page.keyboard.press("End");
    await page.evaluate("new Promise(requestAnimationFrame)");
  }
}

/** What garbage collection leaves of JavaScript, the document and buffers; and what the process has. */
async function openMeter(browser: Browser, page: Page) {
  const tab = await page.context().newCDPSession(page);
  const whole = await browser.newBrowserCDPSession();
  const { processInfo } = await whole.send("SystemInfo.getProcessInfo");
  const renderers = processInfo.filter(({ type }) => type === "renderer");
  return async () => {
    await tab.send("HeapProfiler.collectGarbage");
    const heap = await tab.send("Runtime.getHeapUsage");
    const heapBytes = heap.usedSize + heap.embedderHeapUsedSize + heap.backingStorageSize;
    const processBytes = Math.max(...renderers.map(({ id }) => measureMemoryBytes(id)));
    return { heapBytes, processBytes };
  };
}

/** More is added than changed or removed. In each step the row in sight changes last. */
function describeDay(inSight: number, random: Random) {
  let added = PLANTS;
  const pick = (): number => 2 + random.below(PLANTS - 2);
  const describe = (kind: number): object => {
    if (kind < 6) return { id: ++added, name: `plant ${added}, delivered`, tag: "new" };
    return kind < 9
      ? { id: pick(), name: `changed ${random.below(1e6)}` }
      : { id: pick(), removed: true };
  };
  return (step: number) => {
    const seen = `step ${step} of the day`;
    const changes = Array.from({ length: CHANGES_PER_STEP - 1 }, () => describe(random.below(10)));
    const all = [...changes, { id: inSight, name: seen }];
    return { lines: all.map((change) => `${JSON.stringify(change)}\n`).join(""), seen };
  };
}

/** The plant in sight is opened and closed. */
async function look(page: Page, seen: string): Promise<void> {
  await page.locator(".row", { hasText: seen }).getByRole("link").click();
  await page.locator(".shown-name", { hasText: seen }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator(".panel").waitFor({ state: "detached" });
}
