/** A page without a browser: what the modules of the console find when they are imported, and what is kept in its tab. */

import { afterAll } from "bun:test";
import { createRequire } from "node:module";

const { cache } = createRequire(import.meta.url);
const modules = new URL("../../console/", import.meta.url).pathname;

/** As in a browser, the keys are the members. */
export class Area {
  [key: string]: unknown;
  getItem = (key: string): unknown => this[key] ?? null;
  setItem = (key: string, value: string): void => void (this[key] = value);
  removeItem = (key: string): void => void delete this[key];

  constructor(kept: Readonly<Record<string, string>> = {}) {
    for (const name of ["getItem", "setItem", "removeItem"])
      Object.defineProperty(this, name, { enumerable: false });
    Object.assign(this, kept);
  }
}

interface Kept {
  readonly sessionStorage?: Area;
  readonly localStorage?: Area;
}

/**
 * The service is at this URL. The modules of the console are imported after it, each again: those of another file's page
 * would ask its service.
 */
export function openPage(
  url: string,
  { sessionStorage = new Area(), localStorage = new Area() }: Kept = {},
): void {
  for (const path of Object.keys(cache))
    if (path.startsWith(modules)) Reflect.deleteProperty(cache, path);
  const events = new EventTarget();
  const location = { hash: "", pathname: new URL(url).pathname, search: "", reload() {} };
  const follow = (_state: unknown, _title: string, to: string): void => {
    [location.hash = ""] = /#.*$/.exec(to) ?? [];
  };
  const members = {
    document: Object.assign(new EventTarget(), {
      baseURI: url,
      hidden: false,
      documentElement: { dataset: {} },
      activeElement: null,
      querySelector: () => null,
    }),
    location,
    history: { pushState: follow, replaceState: follow },
    navigator: { languages: ["en-GB"] },
    sessionStorage,
    localStorage,
    window: events,
    addEventListener: events.addEventListener.bind(events),
  };
  const before = Object.keys(members).map((name) => ({
    name,
    descriptor: Object.getOwnPropertyDescriptor(globalThis, name),
  }));
  for (const [name, value] of Object.entries(members))
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  afterAll(() => {
    for (const { name, descriptor } of before)
      if (descriptor === undefined) Reflect.deleteProperty(globalThis, name);
      else Object.defineProperty(globalThis, name, descriptor);
  });
}
