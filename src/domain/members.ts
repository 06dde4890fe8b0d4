/** The members of small bodies: tokens and webhooks. */

import { Refusal } from "./errors.ts";
import { describe } from "./plant.ts";

const FAULTS_MAX = 32;

/** All of them, unless a client has made up many. */
export function joinFaults(faults: readonly string[]): string {
  const rest = faults.length - FAULTS_MAX;
  const shown = faults.slice(0, FAULTS_MAX);
  return [...shown, ...(rest > 0 ? [`and ${rest} more`] : [])].join("; ");
}

export interface Rule<Value> {
  readonly expected: string;
  /** Undefined for a value that is not allowed. */
  readonly find: (value: unknown) => Value | undefined;
  readonly optional?: boolean;
}

/** A member that is null counts as left out. A misspelt one is refused, because its effect would be missing. */
export function parseMembers<Values extends object>(
  given: unknown,
  rules: { readonly [Name in keyof Values]: Rule<Values[Name]> },
  defaults: Readonly<Record<string, unknown>> = {},
): Values {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(given)}`);
  const known = Object.keys(rules);
  const faults = Object.keys(given)
    .filter((name) => !known.includes(name))
    .map((name) => `${describe(name)}: unknown; known are ${known.join(", ")}`);
  const sent = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
  const members: Record<string, unknown> = { ...defaults, ...sent };
  for (const [name, { expected, find, optional }] of Object.entries<Rule<unknown>>(rules)) {
    const value = members[name];
    if (value === undefined && optional === true) continue;
    members[name] = find(value);
    if (members[name] === undefined)
      faults.push(`${name}: expected ${expected}, got ${describe(value)}`);
  }
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return members as Values;
}
