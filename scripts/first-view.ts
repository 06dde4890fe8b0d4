/**
 * npm run first-view: measures the console's first contentful paint with a cold cache, on this machine and as on a
 * phone. Fails where it takes longer than it may.
 */

import { type Browser, chromium, devices } from "playwright-core";
import { findChromium } from "../test/support/chromium.ts";
import { startDemo } from "./demo-service.ts";

const ROUNDS = 9;

interface Device {
  readonly name: string;
  readonly msMax: number;
  /** How many times slower than this machine. */
  readonly slowdown: number;
  /** Undefined is this machine's own. */
  readonly network?: { readonly megabits: number; readonly latencyMs: number };
}

const devicesShown: readonly Device[] = [
  { name: "this machine", msMax: 500, slowdown: 1 },
  {
    name: "a phone: CPU 4 times slower, 9 Mbit/s, 60 ms",
    msMax: 1_000,
    slowdown: 4,
    network: { megabits: 9, latencyMs: 60 },
  },
];

const FIRST_PAINT_MS = `new Promise((resolve) =>
  new PerformanceObserver((list) => {
    const [entry] = list.getEntriesByName("first-contentful-paint");
    if (entry !== undefined) resolve(entry.startTime);
  }).observe({ type: "paint", buffered: true }))`;

async function paint(browser: Browser, url: string, device: Device): Promise<number> {
  const { slowdown, network } = device;
  // A new context has an empty cache.
  const look = network === undefined ? {} : devices["Galaxy S9+"];
  const context = await browser.newContext({ ...look, locale: "en-GB" });
  const page = await context.newPage();
  const tab = await context.newCDPSession(page);
  await tab.send("Emulation.setCPUThrottlingRate", { rate: slowdown });
  if (network !== undefined) {
    const bytesPerSecond = (network.megabits * 1e6) / 8;
    await tab.send("Network.enable");
    await tab.send("Network.emulateNetworkConditions", {
      offline: false,
      downloadThroughput: bytesPerSecond,
      uploadThroughput: bytesPerSecond,
      latency: network.latencyMs,
    });
  }
  await page.goto(url);
  const ms = await page.evaluate<number>(FIRST_PAINT_MS);
  await context.close();
  return ms;
}

const executablePath = findChromium();
if (executablePath === undefined) throw new Error("no Chromium was found");
await using demo = await startDemo({ port: "0", plants: 3_000 });
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });
try {
  for (const device of devicesShown) {
    const paintedMs: number[] = [];
    for (let round = 0; round < ROUNDS; round++)
      paintedMs.push(await paint(browser, demo.url, device));
    const sorted = paintedMs.toSorted((one, other) => one - other);
    const median = sorted[Math.floor(ROUNDS / 2)] ?? Number.NaN;
    const isMet = median < device.msMax;
    process.stdout.write(
      `first view on ${device.name}: ${median.toFixed(0)} ms, median of ${ROUNDS} (${sorted.map((ms) => ms.toFixed(0)).join(", ")})\n` +
        `  ${isMet ? "met   " : "MISSED"}  less than ${device.msMax} ms\n`,
    );
    if (!isMet) process.exitCode = 1;
  }
} finally {
  await browser.close();
}
