/** Whether both stores hold what a copy left in them: counted and summed up anew, each by itself. */

import { formatStoredPlant, type Plant } from "../domain/plant.ts";
import type { Side } from "./copy-side.ts";

export interface Sum {
  readonly count: number;
  /** Of all plants in the order of their ids, each a line of JSON: that of `plantstore export`, then. */
  readonly sha256: string;
}

const PENDING_LENGTH_MAX = 65_536;

export class Checksum {
  count = 0;
  private readonly hasher = new Bun.CryptoHasher("sha256");
  private pending = "";

  add(plant: Plant): void {
    this.count++;
    this.pending += `${formatStoredPlant(plant)}\n`;
    // Many plants at a time: a call for each would take longer than its hash.
    if (this.pending.length > PENDING_LENGTH_MAX) this.flush();
  }

  finish(): Sum {
    this.flush();
    return { count: this.count, sha256: this.hasher.digest("hex") };
  }

  private flush(): void {
    this.hasher.update(this.pending);
    this.pending = "";
  }
}

export interface Sums {
  readonly from: Sum;
  readonly to: Sum;
}

export const isSameSum = (one: Sum, other: Sum): boolean =>
  one.count === other.count && one.sha256 === other.sha256;

/** How far each of the two has been read. */
export interface Verifying {
  from: number;
  to: number;
}

export async function sumUp(from: Side, to: Side, verifying: Verifying): Promise<Sums> {
  const sumOf = async (side: Side, which: keyof Verifying): Promise<Sum> => {
    const checksum = new Checksum();
    for await (const plants of side.walkPages()) {
      for (const plant of plants) checksum.add(plant);
      verifying[which] = checksum.count;
    }
    return checksum.finish();
  };
  const [fromSum, toSum] = await Promise.all([sumOf(from, "from"), sumOf(to, "to")]);
  return { from: fromSum, to: toSum };
}
