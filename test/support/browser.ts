/**
 * Pages in a real Chromium. A test fails if its page reports an error, violates its policy, asks another origin, or
 * shows something that is not accessible.
 */

import { afterAll, afterEach, describe, test } from "bun:test";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from "playwright-core";
import type { ServiceFacts } from "../../src/observe/reporter.ts";
import { readTokens, type TokenGrant } from "../../src/auth/token.ts";
import { buildConsole } from "../../scripts/build.ts";
import { findFaults } from "./accessibility.ts";
import { cameraFlags } from "./camera.ts";
import { findChromium } from "./chromium.ts";
import { makeTemporaryFolder } from "./folder.ts";
import { isLong } from "./long.ts";
import { guardFolder, listChildren } from "./processes.ts";
import { grantToken, send, startService, TEST_TOKEN, type TestService } from "./service.ts";
import { improveSteps, stepPatienceMs, User } from "./steps.ts";

/** How a page is looked at. */
type Look = Pick<
  BrowserContextOptions,
  "colorScheme" | "viewport" | "hasTouch" | "isMobile" | "locale"
>;

interface PageOptions extends Look {
  readonly url: string;
  /** Runs before the scripts of the page, each time that it loads. */
  readonly prelude?: string;
  /** Every state that the test waits for is judged, and not only the last one. `npm run test:long` does it everywhere. */
  readonly isJudgedThroughout?: boolean;
  /** Other origins that the page may use. */
  readonly otherOrigins?: readonly string[];
}

/** A prelude with which no view is fetched before it is opened. */
export const WITHOUT_PREFETCH = `{
  const wait = window.setTimeout;
  window.setTimeout = (run, ms, ...rest) => (ms === 1000 ? 0 : wait(run, ms, ...rest));
}`;

const desktop: Look = { colorScheme: "light", viewport: { width: 1280, height: 800 } };
export const phone: Look = {
  colorScheme: "dark",
  viewport: { width: 360, height: 740 },
  hasTouch: true,
  isMobile: true,
};

/** Desktop, light; `npm run test:long` adds a phone, dark. */
export const looks = Object.entries(isLong ? { desktop, phone } : { desktop });

/** It is left when the test is over, which its faults then fail. */
export interface TestPage {
  readonly page: Page;
  readonly user: User;
  /**
   * From now on a request whose URL has this in it may be answered by these statuses (from 400 up), or with "failed"
   * may get no answer. Each has to happen at least once.
   */
  readonly announceFailure: (urlPart: string, ...outcomes: readonly (number | "failed")[]) => void;
  /** The same for a request that may be sent in time to fail, or not. */
  readonly allowFailure: TestPage["announceFailure"];
}

let launched: Promise<Browser> | undefined;
/** What leaves the pages that are open. */
const leaving: (() => Promise<void>)[] = [];
const faultsOfLeft: string[] = [];

/** Tests that open pages. Without a browser they are skipped. */
export function describeInBrowser(name: string, declareTests: () => void): void {
  describe.skipIf(findChromium() === undefined)(name, () => {
    afterEach(async () => {
      for (const leave of leaving.splice(0)) await leave();
      const faults = faultsOfLeft.splice(0);
      if (faults.length > 0) throw new Error(`the page was at fault:\n- ${faults.join("\n- ")}`);
    });
    declareTests();
  });
}

/** One for all tests of this process. Chromium ends with the pipe to it; the guard then removes its profile. */
async function launchBrowser(): Promise<Browser> {
  const executablePath = findChromium() ?? "";
  const args = [...cameraFlags, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])];
  const headless = process.env["PLANTSTORE_TEST_VISIBLE"] !== "true";
  const { path: artifactsDir } = makeTemporaryFolder();
  guardFolder(artifactsDir);
  const browser = await chromium.launch({
    executablePath,
    args,
    artifactsDir,
    headless,
    slowMo: headless ? 0 : 300,
  });
  browser.on("disconnected", () => {
    launched = undefined;
    idleTabs.clear();
  });
  for (const { command } of listChildren(process.pid)) {
    const [, profile] = /--user-data-dir=(\S+)/.exec(command) ?? [];
    if (profile !== undefined) guardFolder(profile);
  }
  return browser;
}

/** A page in a context of its own, and what is observed there. */
interface Tab {
  readonly page: Page;
  readonly faults: string[];
  readonly announced: { urlPart: string; outcome: number | "failed"; isMet: boolean }[];
  /** Those that the page may ask. */
  origins: readonly string[];
  isJudgedThroughout: boolean;
}

/** Tests of the same look use a tab one after the other: a new one costs a second. */
const idleTabs = new Map<string, Tab[]>();
const tabs = new WeakMap<BrowserContext, Tab>();

async function openTab(browser: Browser, options: BrowserContextOptions): Promise<Tab> {
  const context = await browser.newContext({
    // The console's language.
    locale: "en-GB",
    ...options,
    timezoneId: "UTC",
    permissions: ["camera", "clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  const tab: Tab = { page, faults: [], announced: [], origins: [], isJudgedThroughout: false };
  const { faults, announced } = tab;
  tabs.set(context, tab);
  improveSteps(page, async (seen) => {
    const judged = tabs.get(seen.context());
    if (judged?.isJudgedThroughout) await judge(seen, judged);
  });
  const fail = (url: string, outcome: number | "failed", reason: string): void => {
    const met = announced.filter((one) => url.includes(one.urlPart) && one.outcome === outcome);
    for (const one of met) one.isMet = true;
    if (met.length === 0) faults.push(`request: ${url}: ${reason}`);
  };
  // Neither this nor what a test evaluates is subject to the page's policy, which therefore stays in force.
  await context.exposeBinding("reportViolation", (_source, violation: string) => {
    faults.push(`content security policy: ${violation}`);
  });
  await context.addInitScript(`addEventListener("securitypolicyviolation", (event) =>
    reportViolation([event.effectiveDirective, event.blockedURI, event.sourceFile, event.sample].join(" ").trim()))`);
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
    const { protocol, origin } = new URL(request.url());
    if (!["data:", "blob:"].includes(protocol) && !tab.origins.includes(origin))
      faults.push(`request to another origin: ${request.url()}`);
  });
  context.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText ?? "failed";
    // By the page itself, or by its being closed.
    if (reason !== "net::ERR_ABORTED") fail(request.url(), "failed", reason);
  });
  context.on("response", (response) => {
    const status = response.status();
    if (status >= 400) fail(response.url(), status, `answered ${status}`);
  });
  return tab;
}

/** Nothing that a test stored, set or holds back is there for the next one. */
async function leaveTab({ page }: Tab): Promise<void> {
  const context = page.context();
  for (const other of context.pages()) if (other !== page) await other.close();
  await page.unrouteAll();
  await context.unrouteAll();
  await page.emulateMedia({ forcedColors: null, media: null });
  // Until it is gone, the page could store something again.
  await page.evaluate(`Storage.prototype.setItem = () => undefined;
    localStorage.clear(); sessionStorage.clear(); window.name = ""`);
  await page.goto("about:blank");
}

/**
 * The page tells a scanner from a person by the time between keys. Here each key comes long after the one before, as from a person, until
 * `scan` of `User` makes them faster, so no test depends on how fast this machine types.
 */
const KEY_CLOCK = `{
  let nowMs = 0;
  const times = new WeakMap();
  window.keyGapMs = 200;
  Object.defineProperty(Event.prototype, "timeStamp", {
    get() {
      if (!times.has(this)) times.set(this, this.type === "keydown" ? (nowMs += window.keyGapMs) : nowMs);
      return times.get(this);
    },
  });
}`;

export async function openPage({
  url,
  prelude = "",
  isJudgedThroughout = isLong,
  otherOrigins = [],
  ...look
}: PageOptions): Promise<TestPage> {
  launched ??= launchBrowser();
  const browser = await launched;
  const options = { reducedMotion: "reduce", ...desktop, ...look } as const;
  const key = JSON.stringify(options);
  const tab = idleTabs.get(key)?.pop() ?? (await openTab(browser, options));
  const { page, faults, announced } = tab;
  page.context().setDefaultTimeout(stepPatienceMs());
  faults.length = announced.length = 0;
  Object.assign(tab, { origins: [new URL(url).origin, ...otherOrigins], isJudgedThroughout });
  const script = await page.addInitScript(`${KEY_CLOCK}\n${prelude}`);
  leaving.push(async () => {
    // A test that runs out of time takes every child of this process with it, the browser too.
    if (!browser.isConnected()) return;
    await judge(page, tab);
    for (const { urlPart, outcome, isMet } of announced)
      if (!isMet) faults.push(`announced, but never came: ${urlPart} ${outcome}`);
    faultsOfLeft.push(...faults);
    await script.dispose();
    await leaveTab(tab);
    idleTabs.set(key, [...(idleTabs.get(key) ?? []), tab]);
  });
  const user = new User(page);
  await user.goTo(url);
  return {
    page,
    user,
    announceFailure: (urlPart, ...outcomes) => {
      announced.push(...outcomes.map((outcome) => ({ urlPart, outcome, isMet: false })));
    },
    allowFailure: (urlPart, ...outcomes) => {
      announced.push(...outcomes.map((outcome) => ({ urlPart, outcome, isMet: true })));
    },
  };
}

async function judge(page: Page, { faults }: Tab): Promise<void> {
  try {
    const { pathname, hash } = new URL(page.url());
    const found = await findFaults(page);
    // A printed sheet has neither landmarks nor headings.
    if (await page.evaluate<boolean>(`matchMedia("print").matches`)) return;
    faults.push(...found.map((fault) => `${pathname}${hash}: ${fault}`));
  } catch (error) {
    // The page went on to another document meanwhile. The next state is judged there.
    if (!/context was destroyed|navigati/.test(String(error))) throw error;
  }
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

interface ConsoleOptions extends Omit<PageOptions, "url"> {
  /** The view, as in `#/import`. */
  readonly at?: string;
  /** Null opens the page without signing in. */
  readonly token?: string | null;
  /** Signed in for all tabs of the device. */
  readonly isKept?: boolean;
  /** Signed in by a new token. */
  readonly as?: Partial<TokenGrant>;
}

/** What signing in leaves behind. The form costs a page as much time as all the rest of its start. */
async function toSession(url: string, token: string, isKept: boolean): Promise<string> {
  const response = await fetch(`${url}/token`, { headers: { authorization: `Bearer ${token}` } });
  const session = JSON.stringify({ token, identity: await response.json() });
  const area = isKept ? "localStorage" : "sessionStorage";
  // Once for a tab, so signing out lasts.
  return `if (window.name === "") {
    window.name = "signed in";
    ${area}.setItem("plantstore.session ${new URL(`${url}/`).pathname}", ${JSON.stringify(session)});
  }`;
}

export async function openConsole(
  service: TestService,
  {
    at = "#/plants",
    as,
    token = TEST_TOKEN,
    isKept = false,
    prelude: own = "",
    ...options
  }: ConsoleOptions = {},
): Promise<TestPage> {
  const { url } = service;
  if (token === null) return openPage({ url: `${url}/${at}`, prelude: own, ...options });
  const session = await toSession(
    url,
    as === undefined ? token : await grantToken(service, as.scopes, as),
    isKept,
  );
  const view = await openPage({ url: `${url}/${at}`, prelude: `${session}\n${own}`, ...options });
  // On a phone, an open plant has the screen.
  await view.page.locator(".tabs").waitFor({ state: "attached" });
  // The list was read: it has rows, or says why it has none. On a phone, an open plant covers it.
  const read = view.page.locator("#plants [role=row][id], .blank, .single");
  if (/^(#\/plants.*)?$/.test(at)) await read.first().waitFor({ state: "attached" });
  return view;
}

/** Where a journey takes place. */
export interface Visit {
  readonly service: TestService;
  /** The page is closed when the test is over. */
  readonly open: (options?: ConsoleOptions) => Promise<TestPage & Pick<Visit, "service">>;
  readonly isPhone: boolean;
  readonly createToken: (grant: Partial<TokenGrant>) => Promise<string>;
  /** The token of this name, behind everyone's back. */
  readonly revoke: (name: string) => Promise<void>;
}

type Journey = (visit: Visit) => Promise<void>;

/** Each journey runs in every look, on a service for the look alone, which ends with the file. */
export async function startJourneys(
  settings: Readonly<Record<string, string>> = {},
  fill: (service: TestService) => Promise<unknown> = async () => undefined,
  facts: ServiceFacts = {},
) {
  await using opened = new AsyncDisposableStack();
  const visits: [string, Visit][] = [];
  for (const [name, look] of looks) {
    const service = opened.use(await startConsole(settings, facts));
    await fill(service);
    const open: Visit["open"] = async (options) =>
      Object.assign(await openConsole(service, { ...look, ...options }), { service });
    const revoke: Visit["revoke"] = async (tokenName) => {
      const record = (await readTokens(service.store)).find((each) => each.name === tokenName);
      await service.store.revokeToken(record?.hash ?? "", Date.now());
    };
    const createToken: Visit["createToken"] = (grant) => grantToken(service, grant.scopes, grant);
    visits.push([name, { service, open, createToken, revoke, isPhone: look === phone }]);
  }
  const stack = opened.move();
  afterAll(() => stack.disposeAsync());
  return {
    /** In every look. */
    it: (name: string, run: Journey): void => {
      test.each(visits)(`${name}: %s`, (_look, visit) => run(visit));
    },
    /** For behaviour that no look changes, at desktop size. */
    test: (name: string, run: Journey): void => {
      test(name, () => run((visits[0] as [string, Visit])[1]));
    },
  };
}

/** As a colleague does it: replaces a plant, or removes it where there is nothing to replace it with. */
export const change = (service: TestService, id: number, body?: object): Promise<Response> =>
  body === undefined
    ? send(service, "DELETE", `/plants/${id}`)
    : send(service, "PUT", `/plants/${id}`, { body: JSON.stringify(body) });

export async function storePlants(
  service: TestService,
  length: number,
  plantAt: (index: number) => object,
  path = "/plants/batch",
): Promise<void> {
  const lines = Array.from({ length }, (_, index) => `${JSON.stringify(plantAt(index))}\n`);
  const headers = { "content-type": "application/x-ndjson" };
  await (await send(service, "POST", path, { headers, body: lines.join("") })).text();
}
