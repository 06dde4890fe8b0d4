/** Rounds of candidates in turn, so that a busy neighbour meets all of them, and those he spoils are repeated. */

import type { Sample } from "./load.ts";
import { print } from "./report/print.ts";
import { watchOthers } from "./processes.ts";
import type { Role, Round, Row, Table } from "./report/results.ts";
import {
  FOREIGN_CORES_MAX,
  REPEATS_MAX,
  REPEATS_TOTAL_MAX,
  ROUND_SECONDS,
  ROUNDS,
  WARM_UP_SECONDS,
} from "./settings.ts";
import { settleDisk } from "./stores.ts";

export interface Candidate {
  readonly name: string;
  readonly role: Role;
  readonly durability?: string;
  readonly note?: string;
  readonly measure: (seconds: number) => Promise<Sample>;
  /** After the last round: throws where the store does not hold what was acknowledged. */
  readonly verify?: () => Promise<void> | void;
}

/** What should have been measured, and why it was not. */
export interface Absent {
  readonly name: string;
  readonly role: Role;
  readonly notMeasured: string;
}

interface Plan {
  readonly name: string;
  readonly unit: string;
  readonly isLowerBetter?: boolean;
  readonly rounds?: number;
  readonly hasWarmUp?: boolean;
  readonly candidates: readonly (Candidate | Absent)[];
}

export async function measureTable(plan: Plan): Promise<Table> {
  const { name, unit, isLowerBetter = false, rounds = ROUNDS, hasWarmUp = true } = plan;
  const takings = plan.candidates.map((each) => new Taking(each));
  settleDisk();
  if (hasWarmUp) for (const taking of takings) await taking.warmUp();
  for (let round = 0; round < rounds; round++)
    for (const taking of takings) await taking.takeRound();
  for (const taking of takings) await taking.verify();
  return { name, unit, isLowerBetter, rows: takings.map((taking) => taking.toRow()) };
}

let repeatsTotal = 0;

/** A candidate and what has been taken of it so far. */
class Taking {
  readonly #candidate: Candidate | Absent;
  readonly #rounds: Round[] = [];
  #repeats = 0;
  #failure: string | undefined;

  constructor(candidate: Candidate | Absent) {
    this.#candidate = candidate;
  }

  warmUp(): Promise<void> {
    return this.#attempt(async ({ measure }) => void (await measure(WARM_UP_SECONDS)));
  }

  takeRound(): Promise<void> {
    return this.#attempt(async (candidate) => {
      for (let repeats = 0; ; repeats++) {
        const countOthers = watchOthers();
        const { created: _created, ...sample } = await candidate.measure(ROUND_SECONDS);
        if (sample.value === 0) throw new Error(`nothing was answered within ${ROUND_SECONDS} s`);
        const foreignCores = countOthers();
        const isDisturbed = foreignCores > FOREIGN_CORES_MAX;
        if (!isDisturbed || repeats === REPEATS_MAX || repeatsTotal === REPEATS_TOTAL_MAX) {
          this.#rounds.push({ ...sample, foreignCores, isDisturbed });
          return;
        }
        print(`  repeated: others took ${foreignCores.toFixed(2)} cores from ${candidate.name}`);
        repeatsTotal++;
        this.#repeats++;
      }
    });
  }

  verify(): Promise<void> {
    return this.#attempt(async ({ verify }) => verify?.());
  }

  toRow(): Row {
    const { name, role } = this.#candidate;
    const notMeasured =
      "notMeasured" in this.#candidate ? this.#candidate.notMeasured : this.#failure;
    if (notMeasured !== undefined) return { name, role, rounds: [], repeats: 0, notMeasured };
    const { measure: _measure, verify: _verify, ...about } = this.#candidate as Candidate;
    return { ...about, rounds: this.#rounds, repeats: this.#repeats };
  }

  /** A peer that answers wrongly has no figure. Where we do, nobody has. */
  async #attempt(act: (candidate: Candidate) => Promise<void>): Promise<void> {
    if (!("measure" in this.#candidate) || this.#failure !== undefined) return;
    try {
      await act(this.#candidate);
    } catch (error) {
      if (this.#candidate.role !== "peer") throw error;
      this.#failure = (error as Error).message;
    }
  }
}
