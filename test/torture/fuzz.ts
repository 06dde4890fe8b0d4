/** Mutated requests without end: whatever is sent, the process lives, answers properly, and stores what it acknowledged. */

import { Database } from "bun:sqlite";
import { limits } from "../support/limits.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom, type Random } from "../support/random.ts";
import { connectRaw, formatRequest, type WireAnswer } from "../support/wire.ts";
import { compare, judge, judgeForm } from "./fuzz-judge.ts";
import {
  firstIdOf,
  format,
  HIDDEN_NAME,
  makeCreate,
  makeRaw,
  makeSound,
  type SoundRequest,
} from "./fuzz-requests.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";
import { startTorturedService, type TorturedService } from "./service.ts";

const BODY_BYTES_MAX = 65_536;
const LANES = 96;
/** Of the connections; the others send many requests each. */
const RAW_PERCENT = 85;
const SOUND_REQUESTS_EACH = 30;
/** Connections between two looks at the whole store. */
const ROUND_LENGTH = 4_000;
const SHORT_ROUND_LENGTH = 700;
/** The parser's own, which may come in the middle of an answer. */
const RUNTIME_REFUSAL = /HTTP\/1\.1 (400|413|431|505) /;
const FAULTS_MAX = 50;

export const fuzz: Scenario = {
  title: "no mutated request ends the process, is answered improperly, or is stored unacknowledged",
  run,
};

/** What is not HTTP goes to a service of its own: nobody knows what of it is to be stored. */
async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  const settings = {
    ...limits({ bodyBytesMax: BODY_BYTES_MAX }),
    PLANTSTORE_LOG_LEVEL: "warn",
  };
  await using sound = await startTorturedService(settings);
  await using raw = await startTorturedService(settings);
  const campaign = new Campaign(sound, raw, random.below(2 ** 32));
  const isOver = endsAfter(seconds);
  const isAlive = (): boolean => sound.isAlive() && raw.isAlive();
  do {
    await campaign.runRound(isShort ? SHORT_ROUND_LENGTH : ROUND_LENGTH, isAlive);
    tell(`${campaign.sent} requests, ${campaign.faults.length} faults`);
  } while (!isOver() && isAlive() && campaign.faults.length < FAULTS_MAX);
  const { faults } = campaign;
  for (const service of [sound, raw]) {
    if (!service.isAlive()) faults.push("the process died");
    const { exitCode, complaints } = await service.stop();
    faults.push(...complaints);
    if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  }
  return { figures: campaign.figures(), faults };
}

class Campaign {
  readonly faults: string[] = [];
  readonly #sound: TorturedService;
  readonly #raw: TorturedService;
  readonly #seed: number;
  readonly #stored: Parameters<typeof compare>[1] = new Map();
  readonly #statuses = new Map<number, number>();
  readonly #counts = { raw: 0, sound: 0 };
  #connections = 0;

  constructor(sound: TorturedService, raw: TorturedService, seed: number) {
    this.#sound = sound;
    this.#raw = raw;
    this.#seed = seed;
  }

  get sent(): number {
    return this.#counts.raw + this.#counts.sound;
  }

  figures(): Record<string, string | number> {
    const byStatus = [...this.#statuses].toSorted(([one], [other]) => one - other);
    return {
      "requests, mutated as bytes": this.#counts.raw,
      "requests, mutated in their values": this.#counts.sound,
      connections: this.#connections,
      "answers by status": byStatus.map(([status, count]) => `${status}: ${count}`).join(", "),
      "plants stored": this.#stored.size,
    };
  }

  /** So many connections, and then a look at the whole store. */
  async runRound(length: number, isAlive: () => boolean): Promise<void> {
    const end = this.#connections + length;
    const work = async (): Promise<void> => {
      while (this.#connections < end && isAlive()) await this.#connect(this.#connections++);
    };
    await Promise.all(Array.from({ length: LANES }, work));
    if (!isAlive()) return;
    // Behind it nothing is under way that was not begun before.
    await this.#askSoundly(this.#connections++, []);
    const faults = compare(readSettledPlants(this.#sound.path), this.#stored);
    this.faults.push(...faults.slice(0, FAULTS_MAX));
    for (const { id, name } of readSettledPlants(this.#raw.path))
      if (name === HIDDEN_NAME) this.faults.push(`${id}: hidden in another request, and stored`);
  }

  async #connect(index: number): Promise<void> {
    // The same choices for the same index, whatever else happens.
    const random = createRandom(this.#seed ^ Math.imul(index + 1, 0x9e3779b1));
    if (random.chance(RAW_PERCENT)) return this.#sendRaw(index, random);
    const own = firstIdOf(index);
    const requests = Array.from({ length: SOUND_REQUESTS_EACH }, (_, nth) =>
      makeSound(own, own + 1n + BigInt(nth), random),
    );
    return this.#askSoundly(index, requests);
  }

  async #sendRaw(index: number, random: Random): Promise<void> {
    const bytes = makeRaw(firstIdOf(index), random);
    this.#counts.raw++;
    const { status, faults } = await sendRaw(this.#raw.url, bytes);
    if (status !== undefined) this.#count(status);
    this.#report(faults, index, bytes);
  }

  /** A sound create, and then whatever requests; on a new connection where the last has ended. */
  async #askSoundly(index: number, requests: readonly SoundRequest[]): Promise<void> {
    const { url } = this.#sound;
    let connection = await connectRaw(url);
    for (const request of [makeCreate(firstIdOf(index)), ...requests]) {
      const bytes = format(request);
      if (!connection.isOpen()) connection = await connectRaw(url);
      this.#counts.sound++;
      let answer: WireAnswer | undefined;
      const faults: string[] = [];
      try {
        answer = await connection.ask(bytes);
        if (answer === undefined) faults.push("closed without an answer");
        else this.#count(answer.status);
      } catch (error) {
        faults.push((error as Error).message);
      }
      const circumstances = { stored: this.#stored, owner: index, bodyBytesMax: BODY_BYTES_MAX };
      faults.push(...judge(request, answer, circumstances));
      if (answer === undefined || answer.headers.get("connection") === "close") {
        connection.abort();
        await connection.closed;
      }
      this.#report(faults, index, bytes);
    }
    connection.abort();
  }

  #count(status: number): void {
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
  }

  #report(faults: readonly string[], index: number, bytes: Buffer): void {
    const shown = JSON.stringify(bytes.toString("latin1", 0, 3_000));
    for (const fault of faults)
      this.faults.push(`connection ${index}: ${fault}\n    sent ${shown}`);
  }
}

/** Its first answer, unless there is none although another client has been served meanwhile. */
export async function sendRaw(
  url: string,
  bytes: Buffer,
): Promise<{ readonly status?: number; readonly faults: readonly string[] }> {
  const connection = await connectRaw(url);
  const answering = connection.ask(bytes).catch((error: Error) => error.message);
  const answer = await Promise.race([answering, serveAnother(url)]);
  connection.abort();
  if (answer === undefined) return { faults: [] };
  if (typeof answer === "string") return { faults: RUNTIME_REFUSAL.test(answer) ? [] : [answer] };
  const isHead = bytes.toString("latin1", 0, 5) === "HEAD ";
  return { status: answer.status, faults: judgeForm(answer, isHead) };
}

/** What came before it has had its turn. */
async function serveAnother(url: string): Promise<undefined> {
  const connection = await connectRaw(url);
  await connection.ask(formatRequest("POST", "/plants", '{"id":1,"name":"another"}'));
  await connection.ask(formatRequest("GET", "/plants/1"));
  connection.abort();
}

/** With all writing held for a moment: what was under way is over then. */
function readSettledPlants(path: string): StoredPlant[] {
  using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  db.run("PRAGMA busy_timeout = 60000");
  db.run("BEGIN IMMEDIATE");
  return db.query<StoredPlant, []>("SELECT id, name, tag FROM plants").all();
}
