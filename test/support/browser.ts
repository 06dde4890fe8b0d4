/** Pages in a real Chromium. A test fails if its page reports an error, violates its policy or asks another origin. */

import type { AxeResults, NodeResult, Result } from "axe-core";
import { afterEach, describe, expect } from "bun:test";
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Locator,
  type Page,
} from "playwright-core";
import type { ServiceFacts } from "../../src/observe/reporter.ts";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { buildConsole } from "../../scripts/build.ts";
import { type Scope, scopes } from "../../src/domain/token.ts";
import { findChromium } from "./chromium.ts";
import { makeTemporaryFolder } from "./folder.ts";
import { guardFolder, listChildren } from "./processes.ts";
import { startService, TEST_TOKEN, type TestService } from "./service.ts";

export interface PageOptions {
  readonly url: string;
  readonly colorScheme?: "light" | "dark";
  readonly viewport?: { readonly width: number; readonly height: number };
  readonly reducedMotion?: "reduce" | "no-preference";
  /** What a test needs to read what the page has copied, say. */
  readonly permissions?: readonly string[];
  /** Runs before the scripts of the page, each time that it loads. */
  readonly prelude?: string;
}

/** Disposing of it closes the page; what it was at fault for fails the test when that is over. */
export interface TestPage extends AsyncDisposable {
  readonly page: Page;
  /**
   * From now on a request whose URL has this in it may be answered by this status (from 400 up), or with "failed" may
   * get no answer. It has to happen at least once.
   */
  readonly announceFailure: (urlPart: string, outcome: number | "failed") => void;
  /** What has gone wrong so far, beyond what was announced. What is taken from here no longer fails the test. */
  readonly takeFaults: () => Promise<string[]>;
}

/** Less than a test has, so the step fails and not the test as a whole. */
const PATIENCE_MS = 10_000;

let launched: Promise<Browser> | undefined;
const openPages = new Set<TestPage>();
const faultsOfClosed: string[] = [];

/** Tests that open pages. Without a browser they are skipped. */
export function describeInBrowser(name: string, declareTests: () => void): void {
  describe.skipIf(findChromium() === undefined)(name, () => {
    // Not when the page is disposed of: an error from there would hide the one that the test has thrown itself.
    afterEach(async () => {
      for (const view of openPages) await view[Symbol.asyncDispose]();
      const faults = faultsOfClosed.splice(0);
      if (faults.length > 0) throw new Error(`the page was at fault:\n- ${faults.join("\n- ")}`);
    });
    declareTests();
  });
}

/** One for all tests of this process. Chromium ends with the pipe to it; the guard then removes its profile. */
async function launchBrowser(): Promise<Browser> {
  const executablePath = findChromium();
  if (executablePath === undefined) throw new Error("no Chromium is here");
  const isRoot = process.getuid?.() === 0;
  const args = isRoot ? ["--no-sandbox"] : [];
  const { path: artifactsDir } = makeTemporaryFolder();
  guardFolder(artifactsDir);
  const browser = await chromium.launch({ executablePath, args, artifactsDir });
  browser.on("disconnected", () => {
    launched = undefined;
  });
  for (const { command } of listChildren(process.pid)) {
    const [, profile] = /--user-data-dir=(\S+)/.exec(command) ?? [];
    if (profile !== undefined) guardFolder(profile);
  }
  return browser;
}

/** In a context of its own: nothing stored by one page is there for another. */
export async function openPage({ url, prelude, ...options }: PageOptions): Promise<TestPage> {
  launched ??= launchBrowser();
  const browser = await launched;
  const { permissions = [], ...given } = options;
  const context = await browser.newContext({
    colorScheme: "light",
    reducedMotion: "reduce",
    viewport: { width: 1280, height: 800 },
    locale: "en-GB",
    timezoneId: "UTC",
    permissions: [...permissions],
    ...given,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const observed = await observe(context, new URL(url).origin);
  const page = await context.newPage();
  const view: TestPage = {
    page,
    announceFailure: observed.announceFailure,
    takeFaults: async () => {
      // What the page has reported before this answer is here with it.
      await page.evaluate("0");
      return observed.faults.splice(0);
    },
    [Symbol.asyncDispose]: async () => {
      if (!openPages.delete(view)) return;
      // A test that runs out of time takes every child of this process with it, the browser too.
      if (!browser.isConnected()) return;
      if (!page.isClosed()) faultsOfClosed.push(...(await view.takeFaults()));
      faultsOfClosed.push(...observed.listUnmet());
      await context.close();
    },
  };
  openPages.add(view);
  if (prelude !== undefined) await page.addInitScript(prelude);
  await page.goto(url);
  return view;
}

interface Announcement {
  readonly urlPart: string;
  readonly outcome: number | "failed";
  isMet: boolean;
}

interface Observed {
  readonly faults: string[];
  readonly announceFailure: TestPage["announceFailure"];
  readonly listUnmet: () => string[];
}

const BINDING = "reportPolicyViolation";
/** Neither this nor what a test evaluates is subject to the page's policy, which therefore stays in force. */
const reportViolations = `addEventListener("securitypolicyviolation", (event) =>
  ${BINDING}([event.effectiveDirective, event.blockedURI, event.sourceFile, event.sample].join(" ").trim()))`;

async function observe(context: BrowserContext, origin: string): Promise<Observed> {
  const faults: string[] = [];
  const announced: Announcement[] = [];
  const fail = (url: string, outcome: number | "failed", reason: string): void => {
    const met = announced.filter((one) => url.includes(one.urlPart) && one.outcome === outcome);
    for (const one of met) one.isMet = true;
    if (met.length === 0) faults.push(`request: ${url}: ${reason}`);
  };

  await context.exposeBinding(BINDING, (_source, violation: string) => {
    faults.push(`content security policy: ${violation}`);
  });
  await context.addInitScript(reportViolations);
  context.on("console", (message) => {
    // The requests themselves are judged below, where their status is known.
    if (message.text().startsWith("Failed to load resource:")) return;
    if (["error", "warning", "assert"].includes(message.type()))
      faults.push(`console ${message.type()}: ${message.text()} (${message.location().url})`);
  });
  context.on("weberror", (webError) => {
    faults.push(`uncaught: ${webError.error().stack ?? String(webError.error())}`);
  });
  context.on("request", (request) => {
    const { protocol, origin: asked } = new URL(request.url());
    if (protocol !== "data:" && protocol !== "blob:" && asked !== origin)
      faults.push(`request to another origin: ${request.url()}`);
  });
  context.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText ?? "failed";
    // By the page itself, or by its being closed.
    if (reason !== "net::ERR_ABORTED") fail(request.url(), "failed", reason);
  });
  context.on("response", (response) => {
    if (response.status() >= 400)
      fail(response.url(), response.status(), `answered ${response.status()}`);
  });

  return {
    faults,
    announceFailure: (urlPart, outcome) => announced.push({ urlPart, outcome, isMet: false }),
    listUnmet: () =>
      announced
        .filter(({ isMet }) => !isMet)
        .map(({ urlPart, outcome }) => `announced, but never came: ${urlPart} ${outcome}`),
  };
}

const axeSource = Bun.file(`${import.meta.dir}/../../node_modules/axe-core/axe.min.js`);

/** A rule that a third-party component breaks, and where it may. */
export interface Exception {
  readonly rule: string;
  /** A part of the element's path as axe gives it. */
  readonly at: string;
}

/** Fails with every violation (WCAG 2.2 A and AA, and axe's own good practice) and where it is. */
export async function expectAccessible(
  page: Page,
  except: readonly Exception[] = [],
): Promise<void> {
  // Evaluated by the debugger, which no content security policy stops; so the policy need not be off.
  if (!(await page.evaluate<boolean>(`"axe" in window`)))
    await page.evaluate(await axeSource.text());
  const { violations } = await page.evaluate<AxeResults>(
    // Nothing is preloaded: only a rule that is off by itself needs it.
    `axe.run(document, { resultTypes: ["violations"], preload: false })`,
  );
  const isExcepted = ({ id }: Result, node: NodeResult): boolean =>
    except.some(({ rule, at }) => rule === id && node.target.join(" ").includes(at));
  const found = violations.flatMap((violation) =>
    violation.nodes
      .filter((node) => !isExcepted(violation, node))
      .map((node) => describeNode(violation, node)),
  );
  expect(found.join("\n")).toBe("");
}

function describeNode(
  { id, impact, help }: Result,
  { target, html, any, all, none }: NodeResult,
): string {
  const why = [...any, ...all, ...none].map(({ message }) => `\n    ${message}`).join("");
  return `${id} (${impact}): ${help}\n  at ${target.join(" ")}: ${html.slice(0, 160)}${why}`;
}

export async function startConsole(
  settings: Readonly<Record<string, string>> = {},
  facts: ServiceFacts = {},
): Promise<TestService> {
  return startService(settings, { consoleFolder: await (built ??= build()), facts });
}

let built: Promise<string> | undefined;

/** Once for all tests of this process: the sources do not change meanwhile. */
async function build(): Promise<string> {
  const { path } = makeTemporaryFolder();
  guardFolder(path);
  await buildConsole(path);
  return path;
}

export async function createToken(
  { store }: TestService,
  grant: {
    readonly name: string;
    readonly scopes?: readonly Scope[];
    readonly expiresAtMs?: number;
  },
): Promise<string> {
  const token = mintToken();
  await store.createToken(toRecord(token, { scopes, createdAtMs: Date.now(), ...grant }));
  return token;
}

interface ConsoleOptions extends Omit<PageOptions, "url"> {
  /** The view, as in `#/import`. */
  readonly at?: string;
  /** Null opens the page without signing in. */
  readonly token?: string | null;
}

/** What signing in leaves in a tab. The form costs a page as much time as all the rest of its start. */
async function toSession(url: string, token: string): Promise<string> {
  const response = await fetch(`${url}/token`, { headers: { authorization: `Bearer ${token}` } });
  const session = JSON.stringify({ token, identity: await response.json() });
  // Once for a tab, so signing out lasts.
  return `if (window.name === "") {
    window.name = "signed in";
    sessionStorage.setItem("plantstore.session", ${JSON.stringify(session)});
  }`;
}

export async function openConsole(
  { url }: TestService,
  { at = "", token = TEST_TOKEN, ...options }: ConsoleOptions = {},
): Promise<TestPage> {
  if (token === null) return openPage({ url: `${url}/${at}`, ...options });
  const prelude = await toSession(url, token);
  const view = await openPage({ url: `${url}/${at}`, prelude, ...options });
  await view.page.getByRole("navigation").waitFor();
  return view;
}

export async function signIn(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation").waitFor();
}

/** The row of the list that has this in it. */
export const rowOf = (page: Page, text: string): Locator =>
  page.locator("#plants [role=row][id]").filter({ hasText: text });

/** The note at the foot of the page. */
export const toastOf = (page: Page, text: string): Locator =>
  page.locator(".toast").filter({ hasText: text });

/** From here on the page learns of no change. */
export async function holdFeed(page: Page): Promise<void> {
  await page.route("**/changes?after=*", () => undefined);
  await page.reload();
}
