/** The steps of a test in the browser: each waits for what it needs, and says what the page shows where it fails. */

import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BrowserContext, Download, Locator, Page } from "playwright-core";
import { until } from "./until.ts";

type Step = (this: Locator, ...given: unknown[]) => Promise<unknown>;

/**
 * What a test waits for is a state that somebody sees: it is judged when it is there. All locators have one prototype,
 * so once is enough.
 */
export function improveSteps(page: Page, judge: (page: Page) => Promise<void>): void {
  const prototype = Object.getPrototypeOf(page.locator("body")) as Record<string, Step>;
  if (improved.has(prototype)) return;
  improved.add(prototype);
  for (const name of [
    "waitFor",
    "click",
    "fill",
    "check",
    "uncheck",
    "selectOption",
    "inputValue",
  ]) {
    const take = prototype[name] as Step;
    prototype[name] = async function (...given) {
      const result = await take
        .apply(this, given)
        .catch((error: Error) => tell(this.page(), error));
      if (name === "waitFor") await judge(this.page());
      return result;
    };
  }
}

const improved = new WeakSet<object>();

/** The browser reports a new address after the click or key that caused it. */
export const untilAt = (page: Page, end: string): Promise<void> =>
  page.waitForURL(({ href }) => href.endsWith(end)).catch((error: Error) => tell(page, error));

/** Asked from here: the policy of the page forbids it to evaluate an expression by itself. */
export const untilSo = (page: Page, expression: string): Promise<void> =>
  until(expression, () => page.evaluate<boolean>(expression)).catch((error: Error) =>
    tell(page, error),
  );

export async function signOut(page: Page): Promise<void> {
  await page.getByRole("button", { name: /Signed in as/ }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
}

/** The name of the open plant becomes this, and is not saved yet. */
export async function edit(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Name", { exact: true }).fill(name);
}

/** The form for a new plant. */
export async function fillNew(page: Page, id: string, name: string): Promise<void> {
  await page.getByLabel("Id", { exact: true }).fill(id);
  await page.getByLabel("Name", { exact: true }).fill(name);
}

/** Holds every such request back until it is let go. */
export async function hold(
  where: Pick<Page, "route">,
  url: string | RegExp,
  method?: string,
): Promise<() => void> {
  const gate = Promise.withResolvers<void>();
  await where.route(url, async (held) => {
    if (method === undefined || held.request().method() === method) await gate.promise;
    await held.fallback();
  });
  return gate.resolve;
}

export async function press(page: Page, ...keys: readonly string[]): Promise<void> {
  for (const key of keys) await page.keyboard.press(key);
}

/** What a click on this saves. */
export async function saveFile(page: Page, target: Locator): Promise<Download> {
  const [download] = await Promise.all([page.waitForEvent("download"), target.click()]);
  return download;
}

export const chooseFile = (page: Page, name: string, content: string | Uint8Array): Promise<void> =>
  page
    .locator("#import-file")
    .setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(content) });

/** A figure of an import. */
export const figure = (page: Page, name: string, count: string): Promise<void> =>
  page
    .locator(".figures > div")
    .filter({ hasText: new RegExp(`^${name}\\s*${count}$`) })
    .waitFor();

export const start = (page: Page): Promise<void> =>
  page.getByRole("button", { name: "Start import" }).click();

/** What the pages have written last. */
const consoles = new WeakMap<BrowserContext, string[]>();
const LINES_MAX = 50;

export function watchSteps(context: BrowserContext): void {
  const lines: string[] = [];
  consoles.set(context, lines);
  context.on("console", (message) => {
    lines.push(`${message.type()}: ${message.text()}`);
    lines.splice(0, lines.length - LINES_MAX);
  });
}

/** Adds to the error what the page shows. */
async function tell(page: Page, error: Error): Promise<never> {
  const path = join(tmpdir(), `plantstore-${Date.now()}.png`);
  await page.screenshot({ path }).catch(() => undefined);
  const seen = `[document.activeElement?.cloneNode().outerHTML, document.body.innerText.slice(0, 2000)]`;
  const [focus, text] = await page.evaluate<string[]>(seen).catch(() => []);
  error.message += `\n\nThe page at ${page.url()} (${path}), with the focus on ${focus}, shows:\n${text}\n`;
  error.message += ["Its console:", ...(consoles.get(page.context()) ?? [])].join("\n");
  throw error;
}
