/** Judges values by rules: the members of small JSON bodies, and what requests have in their URLs and headers. */

import { Refusal } from "./errors.ts";
import { describe, isObject } from "./json.ts";

const FAULTS_MAX = 32;

/** Lists at most 32 faults: a client may send any number. */
export function joinFaults(faults: readonly string[]): string {
  const rest = faults.length - FAULTS_MAX;
  const shown = faults.slice(0, FAULTS_MAX);
  return [...shown, ...(rest > 0 ? [`and ${rest} more`] : [])].join("; ");
}

export interface Rule<Value, Input = unknown> {
  /** Or which rule the value breaks. */
  readonly expected: string | ((value: unknown) => string | undefined);
  /** Returns undefined if the value is not allowed. May throw a Refusal that says more. */
  readonly find: (value: Input) => Value | undefined;
  readonly optional?: boolean;
  /** In place of an absent value, if it is optional. */
  readonly fallback?: Value | undefined;
}

export const describeFault = (
  name: string,
  { expected }: Pick<Rule<unknown>, "expected">,
  value: unknown,
  shown: string,
): string =>
  `${name}: expected ${(typeof expected === "string" ? expected : expected(value)) ?? "another value"}, got ${shown}`;

/** Returns the values that the rules find. Adds what is wrong to `faults`. */
export function applyRules<Input>(
  rules: Readonly<Record<string, Rule<unknown, Input>>>,
  inputs: Readonly<Record<string, Input | undefined>>,
  faults: string[],
  show: (input: Input | undefined) => string,
): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  // Object.entries would allocate arrays on every request.
  for (const name in rules) {
    const rule = rules[name] as Rule<unknown, Input>;
    const input = inputs[name];
    if (input === undefined && rule.optional === true) values[name] = rule.fallback;
    else {
      values[name] = rule.find(input as Input);
      if (values[name] === undefined) faults.push(describeFault(name, rule, input, show(input)));
    }
  }
  return values;
}

/** null counts as absent, and a default is judged like a value that was sent. An unknown member is refused: ignoring a typo would hide it. */
export function parseMembers<Values extends object>(
  body: unknown,
  rules: { readonly [Name in keyof Values]: Rule<Values[Name]> },
  defaults: Readonly<Record<string, unknown>> = {},
): Values {
  if (!isObject(body))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(body)}`);
  const known = Object.keys(rules);
  const faults = Object.keys(body)
    .filter((name) => !known.includes(name))
    .map((name) => `${describe(name)}: unknown; allowed: ${known.join(", ")}`);
  const sent = Object.fromEntries(
    Object.entries(body).filter(([, value]) => (value ?? null) !== null),
  );
  const members = applyRules(rules, { ...defaults, ...sent }, faults, describe);
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return members as Values;
}
