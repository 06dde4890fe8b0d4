/** Mutated requests without end: whatever is sent, the process lives, answers properly, and stores what it acknowledged. */

import { Database } from "bun:sqlite";
import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom, type Random } from "../support/random.ts";
import { type Answer, Connection, exchangeBytes } from "./connection.ts";
import { type Doubtful, findFraming } from "./fuzz-framing.ts";
import { type Circumstances, isOfRuntime, judge } from "./fuzz-judge.ts";
import { firstIdOf, formatCreate, makeSound, makeWireCase } from "./fuzz-requests.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import { startTorturedService, type TorturedService } from "./service.ts";

const BODY_BYTES_MAX = 65_536;
const LANES = 96;
/** Of the connections; the others send many requests each. */
const WIRE_PERCENT = 85;
const SOUND_REQUESTS_EACH = 30;
/** Connections between two looks at the whole store. */
const ROUND_LENGTH = 4_000;
const SHORT_ROUND_LENGTH = 700;
const WAIT_MS_MAX = { forAnswer: 60_000, forEnd: 10_000 };
const RUNTIME_REFUSAL = /HTTP\/1\.1 (400|413|431|505) /;
const FAULTS_MAX = 50;
/** To find out who sent something, all that was sent is made again. */
const EXPLAINED_MAX = 5;

export const fuzz: Scenario = {
  title: "mutated requests: bytes of heads and framing, JSON, queries, conditions, tokens",
  run,
};

async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  await using service = await startTorturedService({
    ...limits({ bodyBytesMax: BODY_BYTES_MAX }),
    PLANTSTORE_LOG_LEVEL: "warn",
  });
  const campaign = new Campaign(service, random.below(2 ** 32));
  const startedAtMs = performance.now();
  const secondsSince = (): number => (performance.now() - startedAtMs) / 1000;
  do {
    await campaign.runRound(isShort ? SHORT_ROUND_LENGTH : ROUND_LENGTH);
    tell(`${campaign.sent} requests, ${campaign.faults.length} faults`);
  } while (secondsSince() < seconds && service.isAlive() && campaign.faults.length < FAULTS_MAX);
  const tookSeconds = secondsSince();
  const figures = { ...campaign.figures(), "requests a second": campaign.sent / tookSeconds };
  if (!service.isAlive()) return { figures, faults: [...campaign.faults, "the process died"] };
  const { exitCode, complaints } = await service.stop();
  const ending = exitCode === 0 ? [] : [`the service ended with ${exitCode}`];
  return { figures, faults: [...campaign.faults, ...complaints, ...ending] };
}

class Campaign {
  readonly faults: string[] = [];
  readonly #service: TorturedService;
  readonly #seed: number;
  readonly #address: { readonly hostname: string; readonly port: number };
  readonly #ledger = new Ledger();
  readonly #statuses = new Map<number, number>();
  readonly #counts = { wire: 0, sound: 0, unanswered: 0, "closed without an answer": 0 };
  #connections = 0;
  #comparedAt = 0;

  constructor(service: TorturedService, seed: number) {
    const { hostname, port } = new URL(service.url);
    this.#address = { hostname, port: Number(port) };
    this.#service = service;
    this.#seed = seed;
  }

  get sent(): number {
    return this.#counts.wire + this.#counts.sound;
  }

  figures(): Record<string, string | number> {
    const byStatus = [...this.#statuses].toSorted(([one], [other]) => one - other);
    return {
      "requests, mutated as bytes": this.#counts.wire,
      "requests, mutated in their values": this.#counts.sound,
      connections: this.#connections,
      "answers by status": byStatus.map(([status, count]) => `${status}: ${count}`).join(", "),
      "closed without an answer": this.#counts["closed without an answer"],
      "plants stored": this.#ledger.size,
    };
  }

  /** So many connections, and then a look at the whole store. */
  async runRound(length: number): Promise<void> {
    const end = this.#connections + length;
    const work = async (): Promise<void> => {
      while (this.#connections < end && this.#service.isAlive())
        await this.#connect(this.#connections++);
    };
    await Promise.all(Array.from({ length: LANES }, work));
    if (!this.#service.isAlive()) return;
    // Behind it nothing is under way that was not begun before.
    await this.#askSoundly(this.#connections++, () => []);
    const rows = readSettledPlants(this.#service.path);
    // The answers have been judged one by one.
    this.#ledger.faults.length = 0;
    const differences = this.#ledger.compare(rows).slice(0, FAULTS_MAX);
    for (const [nth, difference] of differences.entries())
      this.faults.push(nth < EXPLAINED_MAX ? this.#explain(difference) : difference);
    this.#ledger.adopt(rows);
    this.#comparedAt = this.#connections;
  }

  /** The same choices for the same index, whatever else happens. */
  #randomOf = (index: number): Random =>
    createRandom(this.#seed ^ Math.imul(index + 1, 0x9e3779b1));

  async #connect(index: number): Promise<void> {
    const random = this.#randomOf(index);
    if (random.chance(WIRE_PERCENT)) await this.#sendWire(index, random);
    else await this.#askSoundly(index, (own) => soundRequests(own, random));
  }

  async #sendWire(index: number, random: Random): Promise<void> {
    const { bytes, segments } = makeWireCase(index, random);
    const { requests, tail, doubtful } = findFraming(bytes);
    this.#counts.wire += requests.length + (tail === "nothing" ? 0 : 1);
    const expected = {
      toHeads: requests.map(({ method }) => method === "HEAD"),
      isClosed: tail === "malformed",
    };
    const { answers, isClosed, nonsense } = await exchangeBytes(
      this.#address,
      segments,
      expected,
      WAIT_MS_MAX,
    );
    for (const answer of answers) this.#count(answer);
    const faults: string[] = [];
    // Behind an answer that is still being made, the parser's own refusal comes in the middle of it.
    if (nonsense !== undefined && !(tail !== "nothing" && RUNTIME_REFUSAL.test(nonsense)))
      faults.push(nonsense);
    // What is cut short may be answered before it is whole, and again when it turns out to be malformed.
    const answersMax = requests.length + { nothing: 0, incomplete: 1, malformed: 2 }[tail];
    if (answers.length > answersMax)
      faults.push(`${answers.length} answers to ${requests.length} requests`);
    if (answers.length < requests.length && !isClosed && nonsense === undefined)
      faults.push(`no answer within ${WAIT_MS_MAX.forAnswer} ms`);
    if (answers.length === 0 && isClosed) this.#counts["closed without an answer"]++;
    for (const [nth, request] of requests.entries()) {
      const answer = answers[nth];
      // What stands behind a request that is pending may be refused before it is answered.
      const isOfAnother =
        answer !== undefined &&
        isOfRuntime(answer) &&
        (nth < requests.length - 1 || tail !== "nothing");
      faults.push(
        ...judge(request, isOfAnother ? undefined : answer, this.#circumstances(index, false)),
      );
    }
    if (doubtful !== undefined && mayBeExecuted(doubtful, tail, segments.length))
      judge(doubtful.request, undefined, this.#circumstances(index, false));
    this.#report(faults, index, bytes);
  }

  /** A sound create, and then whatever requests; on a new connection where the last has ended. */
  async #askSoundly(index: number, makeRequests: (own: bigint) => Iterable<Buffer>): Promise<void> {
    const own = firstIdOf(index);
    let connection = await Connection.open(this.#service.url);
    for (const bytes of [formatCreate(own), ...makeRequests(own)]) {
      if (!connection.isOpen) connection = await Connection.open(this.#service.url);
      this.#counts.sound++;
      const { requests, tail } = findFraming(bytes);
      const [request] = requests;
      if (request === undefined || requests.length !== 1 || tail !== "nothing")
        throw new Error(`not a sound request: ${JSON.stringify(bytes.toString("latin1"))}`);
      let answer: Answer | undefined;
      const faults: string[] = [];
      try {
        answer = await connection.ask(bytes);
        if (answer === undefined) faults.push("closed without an answer");
        else this.#count(answer);
      } catch (error) {
        faults.push((error as Error).message);
      }
      faults.push(...judge(request, answer, this.#circumstances(index, true)));
      if (answer?.endsConnection ?? true) connection.abort();
      this.#report(faults, index, bytes);
    }
    connection.abort();
  }

  #circumstances(owner: number, isSound: boolean): Circumstances {
    return { ledger: this.#ledger, owner, bodyBytesMax: BODY_BYTES_MAX, isSound };
  }

  #count({ status }: Answer): void {
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
  }

  #report(faults: readonly string[], index: number, bytes: Buffer): void {
    for (const fault of faults)
      this.faults.push(`connection ${index}: ${fault}\n    sent ${show(bytes)}`);
  }

  /** With all bytes since the last look that name the id, with which the difference begins. */
  #explain(difference: string): string {
    const [id = ""] = difference.split(":");
    const suspects: string[] = [];
    for (let index = this.#comparedAt; index < this.#connections; index++) {
      const random = this.#randomOf(index);
      const sent = random.chance(WIRE_PERCENT)
        ? [makeWireCase(index, random).bytes]
        : soundRequests(firstIdOf(index), random);
      for (const bytes of sent)
        if (bytes.includes(id)) suspects.push(`connection ${index}: ${show(bytes)}`);
    }
    return [difference, ...suspects.slice(0, 5)].join("\n    ");
  }
}

/** With all writing held for a moment: what was under way is over then. */
function readSettledPlants(path: string): StoredPlant[] {
  using db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  db.run("PRAGMA busy_timeout = 5000");
  db.run("BEGIN IMMEDIATE");
  return db.query<StoredPlant, []>("SELECT id, name, tag FROM plants").all();
}

/** A batch is stored line by line as it comes; what is wrong with a body in one piece is seen before it is stored. */
function mayBeExecuted({ request, isWhole }: Doubtful, tail: string, segments: number): boolean {
  if (request.target.includes("/plants/batch")) return true;
  return isWhole && (tail === "incomplete" || segments > 1);
}

function soundRequests(own: bigint, random: Random): Buffer[] {
  return Array.from({ length: SOUND_REQUESTS_EACH }, (_, nth) =>
    makeSound(own, own + 1n + BigInt(nth), random),
  );
}

const SHOWN_BYTES_MAX = 3_000;

const show = (bytes: Buffer): string =>
  JSON.stringify(bytes.subarray(0, SHOWN_BYTES_MAX).toString("latin1"));
