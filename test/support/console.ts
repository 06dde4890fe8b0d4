/** The console as staff have it: built from its sources, served by a real service, in a real browser. */

import type { Locator, Page } from "playwright-core";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { buildConsole } from "../../src/console/bundle.ts";
import { type Scope, scopes } from "../../src/domain/token.ts";
import { openPage, type PageOptions, type TestPage } from "./browser.ts";
import { makeTemporaryFolder } from "./folder.ts";
import { startService, TEST_TOKEN, type TestService } from "./service.ts";

export async function startConsole(
  settings: Readonly<Record<string, string>> = {},
): Promise<TestService> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(makeTemporaryFolder());
  await buildConsole(folder.path);
  const service = opened.use(await startService(settings, { consoleFolder: folder.path }));
  const stack = opened.move();
  return { ...service, [Symbol.asyncDispose]: () => stack.disposeAsync() };
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

export async function openConsole(
  { url }: TestService,
  { at = "", token = TEST_TOKEN, ...options }: ConsoleOptions = {},
): Promise<TestPage> {
  const view = await openPage({ url: `${url}/${at}`, ...options });
  if (token !== null) await signIn(view.page, token);
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
