/** What is wrong with what a page shows: rules of axe, things wider than the window, targets too small for a finger. */

import type { NodeResult, Result } from "axe-core";
import type { Page } from "playwright-core";

const axeSource = Bun.file(`${import.meta.dir}/../../node_modules/axe-core/axe.min.js`);

/**
 * A part is an element by its place and its kind: what axe says of it does not depend on its text. Each is judged once
 * in a look for all tests of this process, because a scan costs the browser more than most steps of a test.
 */
const judged = new Set<string>();

interface Survey {
  /** The parts that this document did not have before. */
  readonly fresh: readonly string[];
  /** How many elements are visible, and the number that are parts. Two counts, so neither misses what the other does. */
  readonly visible: number;
  readonly found: number;
  /** How much wider than the window the page is, or its main part, which scrolls by itself. */
  readonly excess: number;
  /** Texts that are cut off by their field, and ids and times that are broken in two. */
  readonly cut: readonly string[];
}

/** All of these run in the page. Its policy does not stop the debugger, so it stays in force. */
const survey = `(() => {
  const parts = (window.partsOfPage ??= new Map());
  const looks = ["(width < 720px)", "(width < 960px)", "(prefers-color-scheme: dark)", "(forced-colors: active)"];
  const telling = /^(role|type|class|disabled|open|data-.*|aria-(checked|current|expanded|invalid|pressed|selected))$/;
  const states = [":checked", ":placeholder-shown"];
  const describe = (element) => [
    element.localName,
    ...Array.from(element.attributes, ({ name, value }) => telling.test(name) ? name + "=" + value : name),
    ...states.filter((state) => element.matches(state)),
    ...Array.from(element.childNodes).filter(({ nodeType, data }) => nodeType === 3 && data.trim() !== "").slice(0, 1).map(() => "text"),
  ].sort().join();
  const fresh = [];
  const found = new Set();
  // What is display: contents has no box, and what it contains is visible.
  const isShown = (element) => element.checkVisibility() || getComputedStyle(element).display === "contents";
  const walk = (element, place) => {
    if (!isShown(element)) return;
    found.add(element);
    const part = place + "/" + describe(element);
    if (!parts.has(part)) fresh.push(part);
    parts.set(part, element);
    if (element.localName !== "svg") for (const child of element.children) walk(child, part);
  };
  walk(document.body, location.pathname.replace(/.*\\//, "") + looks.map((look) => matchMedia(look).matches));
  const pen = document.createElement("canvas").getContext("2d");
  const isCut = (field) => {
    const { font, paddingLeft, paddingRight } = getComputedStyle(field);
    const isChoice = field.localName === "select";
    pen.font = font;
    const text = isChoice ? field.selectedOptions[0]?.text ?? "" : field.value === "" ? field.placeholder : "";
    const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - (isChoice ? 16 : 0);
    return pen.measureText(text).width > room + 1;
  };
  const isBroken = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return new Set(Array.from(range.getClientRects(), ({ y }) => Math.round(y))).size > 1;
  };
  // The choices of a file are its own rows and columns.
  const fields = "input[placeholder], select:not([id^=import])";
  const cut = [
    ...Array.from(document.querySelectorAll(fields)).filter((field) => field.checkVisibility() && isCut(field)),
    ...Array.from(document.querySelectorAll(".row-id:not([role=columnheader]), a.digits, time")).filter((each) => each.checkVisibility() && isBroken(each)),
  ].map((element) => element.outerHTML.slice(0, 160));
  const scrollers = [document.documentElement, ...document.querySelectorAll("main")];
  const visible = Array.from(document.body.querySelectorAll("*")).filter((element) => element instanceof HTMLElement && element.checkVisibility());
  return { fresh, visible: visible.length, found: visible.filter((element) => found.has(element)).length, excess: Math.max(...scrollers.map((each) => each.scrollWidth - each.clientWidth)), cut };
})()`;

/** Scans the parts that are named. All others are left out, except those that contain them. */
const judge = (parts: readonly string[]): string => `(async () => {
  const parts = ${JSON.stringify(parts)};
  const lost = parts.filter((part) => window.partsOfPage?.get(part)?.isConnected !== true);
  for (const part of lost) window.partsOfPage?.delete(part);
  const fresh = parts.filter((part) => !lost.includes(part)).map((part) => window.partsOfPage.get(part));
  const kept = new Set([document.documentElement]);
  for (const element of fresh)
    for (let each = element; each !== null && !kept.has(each); each = each.parentElement) kept.add(each);
  const exclude = [];
  const sort = (element) => {
    for (const child of element.children)
      if (!kept.has(child)) exclude.push(child);
      else if (child.localName !== "svg") sort(child);
  };
  sort(document.body);
  // Axe does not know the top layer: it would judge what is open as if the page were above it.
  const open = Array.from(document.querySelectorAll(":popover-open, dialog:modal"), (element) => [element, element.getAttribute("style")]);
  for (const [element] of open) element.style.zIndex = "2147483647";
  // Forced colours are not in the styles that axe reads.
  const isOwn = !matchMedia("(forced-colors: active)").matches;
  const { violations } = await axe.run(
    { include: [document], exclude },
    // Nothing is preloaded: only a rule that is off by itself needs it.
    {
      resultTypes: ["violations"],
      preload: false,
      rules: { "target-size": { enabled: true }, "color-contrast": { enabled: isOwn } },
    },
  );
  for (const [element, style] of open)
    if (style === null) element.removeAttribute("style");
    else element.setAttribute("style", style);

  const isTarget = (element) => element.matches("a[href], button, input, select, textarea, summary, [role=option]") &&
    !element.matches(".visually-hidden") &&
    // A link or a button within a sentence is as high as its line.
    !(getComputedStyle(element).display.startsWith("inline") && element.parentElement.innerText !== element.innerText);
  const sizeOf = (element) => {
    const area = getComputedStyle(element, "::after").position === "absolute"
      ? element.closest("[role=row]") ?? element
      : (element.labels?.[0]?.contains(element) && element.labels[0]) || element.closest("[role=gridcell]:has(> input), [role=columnheader]") || element;
    const { width, height } = area.getBoundingClientRect();
    return [Math.round(width), Math.round(height)];
  };
  // What was replaced or hidden during the scan has no size.
  const isThere = (element) => element.isConnected && (!isTarget(element) || element.checkVisibility());
  for (const part of parts) {
    const element = window.partsOfPage?.get(part);
    if (element !== undefined && !isThere(element)) lost.push(part);
  }
  const small = matchMedia("(pointer: coarse)").matches
    ? fresh.filter((element) => isThere(element) && isTarget(element) && Math.min(...sizeOf(element)) < 44)
      .map((element) => sizeOf(element).join(" x ") + ": " + element.outerHTML.slice(0, 160))
    : [];
  return { violations, small, lost };
})()`;

const JUDGED_SHARE_MIN = 0.8;

/** Whether the page is too wide, and what is wrong with its parts that no page had before. */
export async function findFaults(page: Page): Promise<string[]> {
  const { fresh, visible, found, excess, cut } = await page.evaluate<Survey>(survey);
  // This depends on the texts, too.
  const wide = [
    ...(excess > 0 ? [`${excess} pixels wider than the window`] : []),
    ...cut.map((element) => `a text is cut off or broken: ${element}`),
  ];
  if (found < visible * JUDGED_SHARE_MIN)
    wide.push(`only ${found} of ${visible} visible elements are judged`);
  const parts = fresh.filter((part) => !judged.has(part));
  if (parts.length === 0) return wide;
  if (!(await page.evaluate<boolean>(`"axe" in window`)))
    await page.evaluate(await axeSource.text());
  type Verdict = { violations: Result[]; small: string[]; lost: string[] };
  const { violations, small, lost } = await page.evaluate<Verdict>(judge(parts));
  // A part that was gone before is judged when it is there again.
  for (const part of parts) if (!lost.includes(part)) judged.add(part);
  return [
    ...wide,
    ...violations.flatMap((violation) => violation.nodes.map((node) => describe(violation, node))),
    ...small.map((target) => `too small for a finger: ${target}`),
  ];
}

function describe({ id, impact, help }: Result, node: NodeResult): string {
  const { target, html, any, all, none } = node;
  const why = [...any, ...all, ...none].map(({ message }) => `\n    ${message}`).join("");
  return `${id} (${impact}): ${help}\n  at ${target.join(" ")}: ${html.slice(0, 160)}${why}`;
}
