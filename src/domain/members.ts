/** Parses small JSON bodies by rules: tokens, webhooks and reverts. */

import { Refusal } from "./errors.ts";
import { describe } from "./json.ts";

const FAULTS_MAX = 32;

/** Lists at most 32 faults: a client may send any number. */
export function joinFaults(faults: readonly string[]): string {
  const rest = faults.length - FAULTS_MAX;
  const shown = faults.slice(0, FAULTS_MAX);
  return [...shown, ...(rest > 0 ? [`and ${rest} more`] : [])].join("; ");
}

export interface Rule<Value> {
  /** Or which rule the value breaks. */
  readonly expected: string | ((value: unknown) => string | undefined);
  /** Returns undefined if the value is not allowed. */
  readonly find: (value: unknown) => Value | undefined;
  readonly optional?: boolean;
}

const sayExpected = (expected: Rule<unknown>["expected"], value: unknown): string =>
  (typeof expected === "string" ? expected : expected(value)) ?? "another value";

/** null counts as absent. An unknown member is refused: ignoring a typo would hide it. */
export function parseMembers<Values extends object>(
  body: unknown,
  rules: { readonly [Name in keyof Values]: Rule<Values[Name]> },
  defaults: Readonly<Record<string, unknown>> = {},
): Values {
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(body)}`);
  const known = Object.keys(rules);
  const faults = Object.keys(body)
    .filter((name) => !known.includes(name))
    .map((name) => `${describe(name)}: unknown; allowed: ${known.join(", ")}`);
  const sent = Object.fromEntries(
    Object.entries(body).filter(([, value]) => (value ?? null) !== null),
  );
  const members: Record<string, unknown> = { ...defaults, ...sent };
  for (const [name, { expected, find, optional }] of Object.entries<Rule<unknown>>(rules)) {
    const value = members[name];
    if (value === undefined && optional === true) continue;
    members[name] = find(value);
    if (members[name] === undefined)
      faults.push(`${name}: expected ${sayExpected(expected, value)}, got ${describe(value)}`);
  }
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return members as Values;
}
