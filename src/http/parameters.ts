/** The parameters of a URL's query. Everything unknown, repeated or odd is refused, all of it in one answer. */

import { Refusal } from "../domain/errors.ts";
import { isStorable } from "../domain/plant.ts";

const SHOWN_CHARACTERS_MAX = 40;

/** What is wrong with a parameter. All are collected, so that one answer names every one of them. */
export class Fault {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }

  static of(name: string, expected: string, came: string): Fault {
    const shown = JSON.stringify(came.slice(0, SHOWN_CHARACTERS_MAX));
    return new Fault(`${name}: expected ${expected}, got ${shown}`);
  }
}

export type Parse<Value> = (text: string) => Value | Fault;

export class Parameters<Name extends string> {
  private readonly known: readonly Name[];
  private readonly given: Partial<Record<Name, string>> = {};
  private readonly faults: string[] = [];

  constructor(url: string, known: readonly Name[]) {
    this.known = known;
    const start = url.indexOf("?");
    for (const pair of start === -1 ? [] : url.slice(start + 1).split("&"))
      if (pair !== "") this.add(pair);
  }

  /** Any text, as it is. */
  text(name: Name): string | undefined {
    return this.given[name];
  }

  take<Value>(name: Name, parse: Parse<Value>, fallback: Value): Value {
    const text = this.given[name];
    const value = text === undefined ? fallback : parse(text);
    if (!(value instanceof Fault)) return value;
    this.faults.push(value.message);
    return fallback;
  }

  /** To be called when all are taken: throws a Refusal that names every fault. */
  requireSound(): void {
    if (this.faults.length > 0) throw new Refusal("invalid_query", this.faults.join("; "));
  }

  private add(pair: string): void {
    const equals = pair.includes("=") ? pair.indexOf("=") : pair.length;
    const rawName = pair.slice(0, equals);
    const name = decode(rawName);
    const value = decode(pair.slice(equals + 1));
    if (!this.isKnown(name))
      this.faults.push(
        `${JSON.stringify((name ?? rawName).slice(0, SHOWN_CHARACTERS_MAX))}: unknown; known are ${this.known.join(", ")}`,
      );
    else if (value === undefined)
      this.faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (this.given[name] !== undefined) this.faults.push(`${name}: given more than once`);
    else this.given[name] = value;
  }

  private isKnown(name: string | undefined): name is Name {
    return this.known.includes(name as Name);
  }
}

/** The platform's own parser would replace invalid bytes in silence. */
function decode(text: string): string | undefined {
  try {
    const decoded = decodeURIComponent(text.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}
