/** A page without a browser: what the state of the console finds when it is started, and what is kept in its tab. */

import { afterAll } from "bun:test";
import { endSession } from "../../console/state/session.ts";
import { readPage, startState } from "../../console/state/start.ts";

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

/** One for all files of a process, because the state listens to it from its start. */
const document = Object.assign(new EventTarget(), {
  baseURI: "",
  hidden: false,
  documentElement: { dataset: {} },
  activeElement: null,
  querySelector: () => null,
});

/** Before the tab is seen again, its service may have become another one. */
export function setHidden(hidden: boolean, baseURI = document.baseURI): void {
  Object.assign(document, { hidden, baseURI });
  document.dispatchEvent(new Event("visibilitychange"));
}

/** The service is at this URL. The person of this page leaves it with the last test of the file. */
export function openPage(
  url: string,
  { sessionStorage = new Area(), localStorage = new Area() }: Kept = {},
): void {
  const events = new EventTarget();
  const location = { hash: "", pathname: new URL(url).pathname, search: "", reload() {} };
  const follow = (_state: unknown, _title: string, to: string): void => {
    [location.hash = ""] = /#.*$/.exec(to) ?? [];
  };
  const members = {
    document: Object.assign(document, { baseURI: url }),
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
  readPage();
  afterAll(() => {
    endSession("left");
    for (const { name, descriptor } of before)
      if (descriptor === undefined) Reflect.deleteProperty(globalThis, name);
      else Object.defineProperty(globalThis, name, descriptor);
  });
}

let isStarted = false;

/** The same, and the state follows the service. The files of a process share it. */
export function startPage(url: string): void {
  openPage(url);
  if (!isStarted) startState();
  isStarted = true;
}
