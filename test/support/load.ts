/** Clients that create plants one after the other, and a ledger of what each was told. */

import { isSamePlant, readRefusal, type StoredPlant } from "./plants.ts";
import { sendPlant } from "./service.ts";

export class Load {
  readonly acknowledged: StoredPlant[] = [];
  /** Answered 503 for now: they may be stored, or not. */
  readonly refused: StoredPlant[] = [];
  /** Whatever else was answered. */
  readonly faults: string[] = [];
  /** The longest that anyone has waited for an answer. */
  waitedMsMax = 0;
  readonly #url: string;
  readonly #clients: Promise<void>[];
  #count = 0;
  #isOver = false;

  constructor(url: string, clients: number) {
    this.#url = url;
    this.#clients = Array.from({ length: clients }, () => this.#run());
  }

  /** Resolves when so many plants more have been acknowledged; to the time that it took. */
  async flow(length = 50): Promise<number> {
    const startedAtMs = performance.now();
    const enough = this.acknowledged.length + length;
    while (this.acknowledged.length < enough) await Bun.sleep(2);
    return performance.now() - startedAtMs;
  }

  /** Resolves when somebody is refused. */
  async refusal(): Promise<void> {
    const { length } = this.refused;
    while (this.refused.length === length) await Bun.sleep(2);
  }

  /** Resolves when every client has its last answer. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
  }

  /** What is wrong with what is stored: acknowledged plants that are not there, and plants that nobody sent. */
  findFaults(stored: readonly StoredPlant[]): string[] {
    const found = new Map(stored.map((plant) => [plant.id, plant]));
    const faults = [...this.faults];
    for (const plant of this.acknowledged) {
      const kept = found.get(plant.id);
      if (kept === undefined || !isSamePlant(kept, plant)) faults.push(`${plant.id} is lost`);
      found.delete(plant.id);
    }
    for (const plant of this.refused) {
      const kept = found.get(plant.id);
      if (kept !== undefined && !isSamePlant(kept, plant)) faults.push(`${plant.id} is another`);
      found.delete(plant.id);
    }
    return [...faults, ...[...found.keys()].map((id) => `${id} was never sent`)];
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      const serial = ++this.#count;
      const plant = { id: BigInt(serial), name: `load ${serial}`, tag: serial % 2 ? "odd" : null };
      const sentAtMs = performance.now();
      const response = await sendPlant(this.#url, plant);
      const answer = await readRefusal(response);
      this.waitedMsMax = Math.max(this.waitedMsMax, performance.now() - sentAtMs);
      if (answer === 200) this.acknowledged.push(plant);
      else if (response.status === 503 && response.headers.has("retry-after")) {
        this.refused.push(plant);
        // As a client does that was told to come back later.
        await Bun.sleep(20);
      } else this.faults.push(`${plant.id}: ${answer}`);
    }
  }
}
