/** Sends plants to a store that may be unable to keep them, and remembers what it was told. */

import { expect } from "bun:test";
import { expectRefusal } from "./expect.ts";
import type { StoredPlant } from "./plants.ts";
import { sendPlant } from "./service.ts";

const GROUPS_MAX = 500;

export class Sender {
  readonly acknowledged: StoredPlant[] = [];
  refused: StoredPlant[] = [];
  private readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  /** At once, so that they come to share commits. Whatever is not stored has to be `store_unavailable`. */
  async send(plants: readonly StoredPlant[]): Promise<Response[]> {
    const responses = await Promise.all(plants.map((plant) => sendPlant(this.url, plant)));
    for (const [index, response] of responses.entries()) {
      const plant = plants[index] as StoredPlant;
      if (response.status === 200) this.acknowledged.push(plant);
      else {
        await expectRefusal(response, "store_unavailable");
        this.refused.push(plant);
      }
    }
    return responses;
  }

  /** New plants, group by group, until one is refused. */
  async sendUntilRefused(length: number, nameLength: number): Promise<void> {
    const before = this.refused.length;
    for (let groups = 0; this.refused.length === before; groups++) {
      expect(groups).toBeLessThan(GROUPS_MAX);
      await this.send(this.makePlants(length, nameLength));
    }
  }

  async resendRefused(): Promise<Response[]> {
    const refused = this.refused;
    this.refused = [];
    return this.send(refused);
  }

  /** Plants with ids that were not sent yet. */
  makePlants(length: number, nameLength = 10): StoredPlant[] {
    const first = this.acknowledged.length + this.refused.length;
    return Array.from({ length }, (_, index) => ({
      id: BigInt(first + index),
      name: `${first + index} ${"🌵".repeat(nameLength)}`,
      tag: (first + index) % 2 === 0 ? null : "spiny",
    }));
  }

  /** What the file should hold, in its order. */
  get expected(): StoredPlant[] {
    return this.acknowledged.toSorted((one, other) => Number(one.id - other.id));
  }
}
