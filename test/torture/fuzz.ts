/** Requests with anything in their values: the process lives, answers properly, and stores what it acknowledged. */

import { Database } from "bun:sqlite";
import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom } from "../support/random.ts";
import type { WireAnswer } from "../support/wire.ts";
import { Connection, endsConnection } from "./connection.ts";
import { judge } from "./fuzz-judge.ts";
import { firstIdOf, formatCreate, makeSound, parseSound } from "./fuzz-requests.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";
import { startTorturedService, type TorturedService } from "./service.ts";

const BODY_BYTES_MAX = 65_536;
const LANES = 96;
/** Each connection sends so many. */
const REQUESTS_EACH = 30;
/** Connections between two looks at the whole store. */
const ROUND_LENGTH = 600;
const SHORT_ROUND_LENGTH = 105;
const FAULTS_MAX = 50;

export const fuzz: Scenario = {
  title: "no request ends the process, is answered improperly, or is stored unacknowledged",
  run,
};

async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  await using service = await startTorturedService({
    ...limits({ bodyBytesMax: BODY_BYTES_MAX }),
    PLANTSTORE_LOG_LEVEL: "warn",
  });
  const campaign = new Campaign(service, random.below(2 ** 32));
  const isOver = endsAfter(seconds);
  do {
    await campaign.runRound(isShort ? SHORT_ROUND_LENGTH : ROUND_LENGTH);
    tell(`${campaign.sent} requests, ${campaign.faults.length} faults`);
  } while (!isOver() && service.isAlive() && campaign.faults.length < FAULTS_MAX);
  const { faults } = campaign;
  if (!service.isAlive()) faults.push("the process died");
  const { exitCode, complaints } = await service.stop();
  faults.push(...complaints);
  if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  return { figures: campaign.figures(), faults };
}

class Campaign {
  readonly faults: string[] = [];
  readonly #service: TorturedService;
  readonly #seed: number;
  readonly #ledger = new Ledger();
  readonly #statuses = new Map<number, number>();
  sent = 0;
  #connections = 0;

  constructor(service: TorturedService, seed: number) {
    this.#service = service;
    this.#seed = seed;
  }

  figures(): Record<string, string | number> {
    const byStatus = [...this.#statuses].toSorted(([one], [other]) => one - other);
    return {
      requests: this.sent,
      connections: this.#connections,
      "answers by status": byStatus.map(([status, count]) => `${status}: ${count}`).join(", "),
      "plants stored": this.#ledger.size,
    };
  }

  /** So many connections, and then a look at the whole store. */
  async runRound(length: number): Promise<void> {
    const { isAlive, path } = this.#service;
    const end = this.#connections + length;
    const work = async (): Promise<void> => {
      while (this.#connections < end && isAlive()) await this.#connect(this.#connections++);
    };
    await Promise.all(Array.from({ length: LANES }, work));
    if (!isAlive()) return;
    // Behind it nothing is under way that was not begun before.
    await this.#askSoundly(this.#connections++, []);
    const rows = readSettledPlants(path);
    // The answers have been judged one by one.
    this.#ledger.faults.length = 0;
    this.faults.push(...this.#ledger.compare(rows).slice(0, FAULTS_MAX));
    this.#ledger.adopt(rows);
  }

  async #connect(index: number): Promise<void> {
    // The same choices for the same index, whatever else happens.
    const random = createRandom(this.#seed ^ Math.imul(index + 1, 0x9e3779b1));
    const own = firstIdOf(index);
    const requests = Array.from({ length: REQUESTS_EACH }, (_, nth) =>
      makeSound(own, own + 1n + BigInt(nth), random),
    );
    return this.#askSoundly(index, requests);
  }

  /** A sound create, and then whatever requests; on a new connection where the last has ended. */
  async #askSoundly(index: number, requests: readonly Buffer[]): Promise<void> {
    const { url } = this.#service;
    let connection = await Connection.open(url);
    for (const bytes of [formatCreate(firstIdOf(index)), ...requests]) {
      if (!connection.isOpen) connection = await Connection.open(url);
      this.sent++;
      let answer: WireAnswer | undefined;
      const faults: string[] = [];
      try {
        answer = await connection.ask(bytes);
        if (answer === undefined) faults.push("closed without an answer");
        else this.#count(answer);
      } catch (error) {
        faults.push((error as Error).message);
      }
      const circumstances = { ledger: this.#ledger, owner: index, bodyBytesMax: BODY_BYTES_MAX };
      faults.push(...judge(parseSound(bytes), answer, circumstances));
      if (answer === undefined || endsConnection(answer)) connection.abort();
      this.#report(faults, index, bytes);
    }
    connection.abort();
  }

  #count({ status }: WireAnswer): void {
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
  }

  #report(faults: readonly string[], index: number, bytes: Buffer): void {
    const shown = JSON.stringify(bytes.toString("latin1", 0, 3_000));
    for (const fault of faults)
      this.faults.push(`connection ${index}: ${fault}\n    sent ${shown}`);
  }
}

/** With all writing held for a moment: what was under way is over then. */
function readSettledPlants(path: string): StoredPlant[] {
  using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  db.run("PRAGMA busy_timeout = 60000");
  db.run("BEGIN IMMEDIATE");
  return db.query<StoredPlant, []>("SELECT id, name, tag FROM plants").all();
}
