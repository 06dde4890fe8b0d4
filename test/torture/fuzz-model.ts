/** What the store must hold after all that was answered, and what it may hold where nothing was. */

import { Database } from "bun:sqlite";
import { isSamePlant, type StoredPlant, toBody } from "../support/plants.ts";

interface Entry {
  /** The connection that has written it; others that touch it too make its order unknown. */
  owner: number;
  /** Any of these. */
  values: StoredPlant[];
  mayBeAbsent: boolean;
  /** A whole comparison ago it was not there: it will not come any more. */
  wasAbsent?: boolean;
}

export class Model {
  readonly #entries = new Map<bigint, Entry>();

  get size(): number {
    return this.#entries.size;
  }

  /** A create was answered 200. Says what is wrong with that, where something is. */
  created(plant: StoredPlant, owner: number): string | undefined {
    const entry = this.#entries.get(plant.id);
    if (entry === undefined)
      this.#entries.set(plant.id, { owner, values: [plant], mayBeAbsent: false });
    else if (entry.owner !== owner || entry.mayBeAbsent) this.#add(entry, plant);
    else if (!entry.values.some((value) => isSamePlant(value, plant)))
      return `200 for ${toBody(plant)}, where ${entry.values.map(toBody).join(" or ")} is stored`;
    return undefined;
  }

  /** A create went without an answer. */
  maybeCreated(plant: StoredPlant, owner: number): void {
    const entry = this.#entries.get(plant.id);
    if (entry === undefined)
      this.#entries.set(plant.id, { owner, values: [plant], mayBeAbsent: true });
    else if (entry.mayBeAbsent || entry.owner !== owner) this.#add(entry, plant);
  }

  /** A replacement was answered 200; `isCertain` where nobody else can have been in between. */
  replaced(plant: StoredPlant, owner: number, isCertain: boolean): void {
    const entry = this.#entries.get(plant.id);
    // What is not there is not replaced, and so an answer that never came changes nothing.
    if (entry === undefined && !isCertain) return;
    if (entry === undefined)
      this.#entries.set(plant.id, { owner, values: [plant], mayBeAbsent: false });
    else if (isCertain && entry.owner === owner) entry.values = [plant];
    else this.#add(entry, plant);
  }

  /** A removal was answered 204, or may have happened. */
  removed(id: bigint, owner: number, isCertain: boolean): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    if (isCertain && entry.owner === owner) this.#entries.delete(id);
    else entry.mayBeAbsent = true;
  }

  /** The one plant that must be there, as far as this connection can know. */
  find(id: bigint, owner: number): StoredPlant | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.owner !== owner || entry.mayBeAbsent) return undefined;
    return entry.values.length === 1 ? entry.values[0] : undefined;
  }

  /** Holds the whole store against all that is known, while nobody writes; what was in doubt is known after it. */
  compare(path: string): Discrepancy[] {
    const found: Discrepancy[] = [];
    const seen = new Set<bigint>();
    using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
    db.run("PRAGMA busy_timeout = 5000");
    // Whoever gets hold of all writing has waited until what was under way is over.
    db.run("BEGIN IMMEDIATE");
    const rows = db.query<StoredPlant, []>("SELECT id, name, tag FROM plants").iterate();
    for (const row of rows) {
      seen.add(row.id);
      const entry = this.#entries.get(row.id);
      if (entry === undefined) found.push({ id: row.id, what: `${show(row)} was never accepted` });
      else if (!entry.values.some((value) => isSamePlant(value, row)))
        found.push({
          id: row.id,
          what: `${show(row)} is stored instead of ${entry.values.map(show).join(" or ")}`,
        });
      this.#entries.set(row.id, { owner: entry?.owner ?? -1, values: [row], mayBeAbsent: false });
    }
    for (const [id, entry] of this.#entries) {
      if (seen.has(id)) continue;
      if (!entry.mayBeAbsent) found.push({ id, what: `${entry.values.map(show).join()} is lost` });
      if (!entry.mayBeAbsent || entry.wasAbsent === true) this.#entries.delete(id);
      entry.wasAbsent = true;
    }
    return found;
  }

  #add(entry: Entry, plant: StoredPlant): void {
    if (!entry.values.some((value) => isSamePlant(value, plant))) entry.values.push(plant);
  }
}

export interface Discrepancy {
  readonly id: bigint;
  readonly what: string;
}

const show = (plant: StoredPlant): string => toBody(plant).slice(0, 300);
