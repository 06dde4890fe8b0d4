/** What clients were told about the plants that they created, held against what is stored. */

import { Database } from "bun:sqlite";
import { type StoredPlant, toBody } from "../support/plants.ts";

/** Answered nothing, or nothing that settles it: it may be stored or not. */
const SENT = 1;
const ACKNOWLEDGED = 2;
/** Answered with the promise that nothing was stored. */
const REFUSED = 3;

const states = ["never sent", "sent", "acknowledged", "refused"] as const;

export class Ledger {
  readonly #firstId: number;
  #states = new Uint8Array(1 << 16);
  #length = 0;

  /** Ids ascend from here. */
  constructor(firstId = 1) {
    this.#firstId = firstId;
  }

  /** A plant that nobody has sent before. */
  next(): StoredPlant {
    if (this.#length === this.#states.length) {
      const larger = new Uint8Array(this.#length * 2);
      larger.set(this.#states);
      this.#states = larger;
    }
    this.#states[this.#length] = SENT;
    return plantOf(this.#firstId + this.#length++);
  }

  acknowledge({ id }: StoredPlant): void {
    this.#states[Number(id) - this.#firstId] = ACKNOWLEDGED;
  }

  refuse({ id }: StoredPlant): void {
    this.#states[Number(id) - this.#firstId] = REFUSED;
  }

  get acknowledged(): number {
    return this.#count(ACKNOWLEDGED);
  }

  /** Every plant from the first id on that is stored and should not be, is not and should, or is another. */
  findFaults(path: string): string[] {
    const faults: string[] = [];
    let stored = 0;
    using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
    const rows = db
      .query<StoredPlant, [number]>("SELECT id, name, tag FROM plants WHERE id >= ? ORDER BY id")
      .iterate(this.#firstId);
    for (const row of rows) {
      const state = this.#states[Number(row.id) - this.#firstId] ?? 0;
      if (state === ACKNOWLEDGED) stored++;
      else if (state !== SENT) faults.push(`${row.id} was ${states[state]}, and is stored`);
      if (toBody(row) !== toBody(plantOf(Number(row.id))))
        faults.push(`${row.id} is stored as ${toBody(row)}`);
    }
    const lost = this.acknowledged - stored;
    if (lost > 0) faults.push(`${lost} acknowledged plants are not stored`);
    return faults;
  }

  #count(state: number): number {
    let count = 0;
    for (let index = 0; index < this.#length; index++) if (this.#states[index] === state) count++;
    return count;
  }
}

/** Any plant can be told from its id. */
function plantOf(id: number): StoredPlant {
  return { id: BigInt(id), name: `plant ${id} é`, tag: id % 3 === 0 ? null : `tag ${id % 7}` };
}
