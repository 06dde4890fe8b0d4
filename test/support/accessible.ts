/** Whether people who do not see, or do not use a mouse, can use a page, as far as a program can tell. */

import type { AxeResults, NodeResult, Result } from "axe-core";
import { expect } from "bun:test";
import type { Page } from "playwright-core";

const axeSource = Bun.file(`${import.meta.dir}/../../node_modules/axe-core/axe.min.js`);

/** What somebody else's component does and cannot be taught otherwise: a rule, and where it may be broken. */
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
  await page.evaluate(await axeSource.text());
  const { violations } = await page.evaluate<AxeResults>(
    `axe.run(document, { resultTypes: ["violations"] })`,
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
