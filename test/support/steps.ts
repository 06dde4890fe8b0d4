/**
 * What a person does in a browser: each step waits for what it needs, and says what the page shows where it fails.
 *
 * `improveSteps` replaces methods of Playwright's own `Locator`, for every locator of the process: so a plain
 * `locator.click()` in a test also prints the page when it fails, and each `waitFor` judges accessibility.
 */

import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Locator, Page, Route } from "playwright-core";
import { openWorkbook } from "../../src/format/workbook.ts";
import { until } from "./until.ts";

const PATIENCE_SECONDS_MIN = 8;

let patienceSeconds = Number(
  process.env["PLANTSTORE_TEST_PATIENCE_SECONDS"] ?? PATIENCE_SECONDS_MIN,
);

/**
 * How long a step waits for what it needs. A wrong label fails soon while a test is written; `npm test`
 * is patient, because it has to pass on a slow machine. Each wait in vain halves it: a browser that hangs, or a word
 * that many tests look for, does not cost its patience once per test.
 */
export const stepPatienceMs = (): number => patienceSeconds * 1_000;

const SCANNER_GAP_MS = 10;
const PERSON_GAP_MS = 200;
/** Without its code, Chromium dispatches no event for such a key. */
const KEYS_WITH_CODES: Readonly<
  Record<string, { readonly windowsVirtualKeyCode: number; readonly text?: string }>
> = {
  Enter: { windowsVirtualKeyCode: 13, text: "\r" },
  Tab: { windowsVirtualKeyCode: 9 },
};

type Step = (this: Locator, ...values: unknown[]) => Promise<unknown>;

const steps = ["waitFor", "click", "fill", "check", "uncheck", "selectOption", "inputValue"];

/**
 * What a test waits for is a state that somebody sees: it is judged when it is there. Playwright offers no hook for
 * this. All locators have one prototype, so once is enough.
 */
export function improveSteps(page: Page, judge: (page: Page) => Promise<void>): void {
  const prototype = Object.getPrototypeOf(page.locator("body")) as Record<string, Step>;
  if (improved.has(prototype)) return;
  improved.add(prototype);
  for (const name of steps) {
    const take = prototype[name] as Step;
    prototype[name] = async function (...values) {
      const result = await take
        .apply(this, values)
        .catch((error: Error) => tell(this.page(), error));
      if (name === "waitFor") await judge(this.page());
      return result;
    };
  }
}

const improved = new WeakSet<object>();

type Text = string | RegExp;
type Role =
  "button" | "cell" | "columnheader" | "dialog" | "heading" | "link" | "option" | "progressbar";
type Part = "text" | "exactText" | "element" | "toast" | "row" | "shown" | "figure";
/** Where others have the text too. */
type First = "firstText" | "firstCell" | "firstRow";
type Kind = Role | Part | First;
/** What is on the page: a role has its name, a part of the console its text. Of a kind there may be several. */
export type Seen = Readonly<Partial<Record<Kind, Text | readonly Text[]>>>;

const toFigure = (text: Text): RegExp =>
  new RegExp(`^${String(text).replace(/ (?=\S+$)/, "\\s*")}$`);

/** A person at a page. After a step they may wait for what they see then, in the order given. */
export class User {
  readonly page: Page;
  readonly where: Page | Locator;

  constructor(page: Page, where: Page | Locator = page) {
    this.page = page;
    this.where = where;
  }

  /** Texts and roles are looked for in this part of the page. */
  within(part: Locator): User {
    return new User(this.page, part);
  }

  /** At another tab, which is closed when the test is over. */
  async openTab(url: string, seen: Seen = {}): Promise<User> {
    const tab = new User(await this.page.context().newPage());
    await tab.page.goto(url);
    await tab.see(seen);
    return tab;
  }

  /** The row of the list that has this in it. */
  row(hasText: Text): Locator {
    return this.page.locator("#plants [role=row][id]").filter({ hasText });
  }

  /** The note at the foot of the page. */
  toast(hasText: Text): Locator {
    return this.page.locator(".toast").filter({ hasText });
  }

  field(label: string): Locator {
    return this.page.getByLabel(label, { exact: true });
  }

  #find(kind: Kind, text: Text): Locator {
    if (kind === "text") return this.where.getByText(text);
    if (kind === "exactText") return this.where.getByText(text, { exact: true });
    if (kind === "element") return this.where.locator(String(text));
    if (kind === "toast") return this.toast(text);
    if (kind === "row") return this.row(text);
    if (kind === "firstText") return this.#find("text", text).first();
    if (kind === "firstCell") return this.#find("cell", text).first();
    if (kind === "firstRow") return this.row(text).first();
    // The name of the open plant.
    if (kind === "shown") return this.page.locator(".shown-name", { hasText: text });
    // A figure of an import, as in "To add 2".
    if (kind === "figure") return this.page.locator(".figures > div", { hasText: toFigure(text) });
    return this.where.getByRole(kind, { name: text });
  }

  async see(seen: Seen): Promise<void> {
    for (const [kind, texts] of Object.entries(seen))
      for (const text of [texts].flat()) await this.#find(kind as Kind, text).waitFor();
  }

  /** The button of this name, or several one after the other. */
  async click(names: Text | readonly Text[], seen: Seen = {}): Promise<void> {
    for (const name of [names].flat()) await this.#find("button", name).click();
    await this.see(seen);
  }

  async follow(link: Text, seen: Seen = {}): Promise<void> {
    await this.#find("link", link).click();
    await this.see(seen);
  }

  /** Several keys are separated by spaces. */
  async press(keys: string, seen: Seen = {}): Promise<void> {
    for (const key of keys.split(" ")) await this.page.keyboard.press(key);
    await this.see(seen);
  }

  async search(words: string, seen: Seen = {}): Promise<void> {
    await this.page.getByRole("searchbox").fill(words);
    await this.see(seen);
  }

  /** Another view of the console, as in `#/import`, or another page. */
  async goTo(view: string, seen: Seen = {}): Promise<void> {
    const { href } = new URL(view, this.page.url());
    await this.page.goto(href).catch((error: Error) => tell(this.page, error));
    await this.see(seen);
  }

  async reload(seen: Seen): Promise<void> {
    await this.page.reload();
    await this.see(seen);
  }

  /** The browser reports a new address after the click or key that caused it. */
  async untilAt(end: string): Promise<void> {
    const arrived = this.page.waitForURL(({ href }) => href.endsWith(end));
    await arrived.catch((error: Error) => tell(this.page, error));
  }

  /** Asked from here: the policy of the page forbids it to evaluate an expression by itself. */
  async untilSo(expression: string): Promise<void> {
    const isSo = until(expression, () => this.page.evaluate<boolean>(expression), stepPatienceMs());
    await isSo.catch((error: Error) => tell(this.page, error));
  }

  async signIn(token: string, seen: Seen = {}): Promise<void> {
    await this.page.getByLabel("Token").fill(token);
    await this.page.getByRole("button", { name: "Sign in", exact: true }).click();
    await this.page.locator(".tabs").waitFor({ state: "attached" });
    await this.see(seen);
  }

  async signOut(): Promise<void> {
    await this.click([/Signed in as/, "Sign out"], { heading: "Sign in" });
  }

  /** The panel of a phone covers everything else. */
  async uncover(): Promise<void> {
    const isCovered = `matchMedia("(width < 960px)").matches && document.querySelector(".panel") !== null`;
    if (await this.page.evaluate<boolean>(isCovered))
      await this.page.getByRole("button", { name: "Close", exact: true }).click();
  }

  async openRow(text: string, seen: Seen = {}): Promise<void> {
    await this.uncover();
    await this.row(text).getByRole("link").click();
    await this.see(seen);
  }

  /** The name of the open plant becomes this, and is not saved yet. */
  async edit(name: string): Promise<void> {
    await this.click("Edit");
    await this.field("Name").fill(name);
  }

  /** The form for a new plant. */
  async fillNew(id: string, name: string): Promise<void> {
    await this.field("Id").fill(id);
    await this.field("Name").fill(name);
  }

  async add(id: string, name: string, seen: Seen): Promise<void> {
    await this.fillNew(id, name);
    await this.press("Enter", seen);
  }

  /** As a scanner does it, wherever the focus is. */
  async scan(code: string, seen: Seen = {}, end = "Enter"): Promise<void> {
    await this.#pause(SCANNER_GAP_MS);
    await this.#typeAtOnce(code.split("").concat(end));
    await this.#pause(PERSON_GAP_MS);
    await this.see(seen);
  }

  /** Nothing waits between the keys: on a busy machine the page would begin to search for the first digits. */
  async #typeAtOnce(keys: readonly string[]): Promise<void> {
    const browser = await this.page.context().newCDPSession(this.page);
    const press = (type: "keyDown" | "keyUp", key: string): Promise<unknown> => {
      const { text = key, ...known } = KEYS_WITH_CODES[key] ?? {};
      const typed = type === "keyDown" && text.length === 1 ? { text } : {};
      return browser.send("Input.dispatchKeyEvent", { type, key, ...known, ...typed });
    };
    await Promise.all(keys.flatMap((key) => [press("keyDown", key), press("keyUp", key)]));
    await browser.detach();
  }

  /** The next key comes after a pause, and those after it come at this speed. */
  async #pause(gapMs: number): Promise<void> {
    await this.page.evaluate(
      `dispatchEvent(new KeyboardEvent("keydown", { key: "Shift" })); keyGapMs = ${gapMs}`,
    );
  }

  async selectAll(seen: Seen = {}): Promise<void> {
    await this.page.getByRole("checkbox", { name: "Select all that match" }).check();
    await this.see(seen);
  }

  /** What a click on this saves. A workbook is read as CSV. */
  async saveFile(target: Locator) {
    const [download] = await Promise.all([this.page.waitForEvent("download"), target.click()]);
    const name = download.suggestedFilename();
    const file = Bun.file(await download.path());
    const book = name.endsWith(".xlsx") ? await openWorkbook(file) : undefined;
    const bytes = await new Response(book?.readRows() ?? file.stream()).bytes();
    return { name, sheets: book?.sheets, text: Buffer.from(bytes).toString() };
  }

  async chooseFile(name: string, content: string | Uint8Array, seen: Seen = {}): Promise<void> {
    const file = { name, mimeType: "text/plain", buffer: Buffer.from(content) };
    await this.page.locator("#import-file").setInputFiles(file);
    await this.see(seen);
  }

  /** After one that was imported or could not be. */
  async chooseAnother(name: string, content: string | Uint8Array, seen: Seen = {}): Promise<void> {
    await this.click("Another file");
    await this.chooseFile(name, content, seen);
  }

  /** Holds every such request back until it is let go. */
  async hold(url: string | RegExp, method?: string): Promise<() => void> {
    const gate = Promise.withResolvers<void>();
    await this.page.context().route(url, async (held) => {
      if (method === undefined || held.request().method() === method) await gate.promise;
      await held.fallback();
    });
    return gate.resolve;
  }

  /** The service answers, and the page hears of it when the answer is let go. */
  async holdAnswer(url: string | RegExp, method: string, times = 100): Promise<() => void> {
    const gate = Promise.withResolvers<void>();
    const late = async (held: Route): Promise<void> => {
      if (held.request().method() !== method) return held.fallback();
      const response = await held.fetch();
      await gate.promise;
      return held.fulfill({ response });
    };
    await this.page.route(url, late, { times });
    return gate.resolve;
  }

  /** From here on the page learns of no change. */
  async holdFeed(): Promise<void> {
    await this.page.route(/\/changes\?after=\d+$/, () => undefined);
    await this.page.reload();
  }

  /** The browser shows another tab, or this one again. */
  async setHidden(value: boolean, seen: Seen = {}): Promise<void> {
    await this.page
      .evaluate(`Object.defineProperty(document, "hidden", { value: ${value}, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"))`);
    await this.see(seen);
  }
}

/** Adds to the error what the page shows. */
async function tell(page: Page, error: Error): Promise<never> {
  const waitedSeconds = patienceSeconds;
  patienceSeconds = Math.min(patienceSeconds, Math.max(patienceSeconds / 2, PATIENCE_SECONDS_MIN));
  const path = join(tmpdir(), `plantstore-${Date.now()}.png`);
  await page.screenshot({ path }).catch(() => undefined);
  const seen = `[document.activeElement?.cloneNode().outerHTML, document.body.innerText.slice(0, 2000)]`;
  const [focus, text] = await page.evaluate<string[]>(seen).catch(() => []);
  error.message += `\n\nThe page at ${page.url()} (${path}), with the focus on ${focus}, shows:\n${text}\n
A slow machine needs more than ${waitedSeconds} s a step: set PLANTSTORE_TEST_PATIENCE_SECONDS.\n`;
  throw error;
}
