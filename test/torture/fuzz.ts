/** Mutated requests without end: whatever is sent, the process lives, answers properly, and stores what it acknowledged. */

import { Database } from "bun:sqlite";
import { limits } from "../support/limits.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom, type Random } from "../support/random.ts";
import { connectRaw, formatRequest } from "../support/wire.ts";
import { type Circumstances, compare, judge, judgeForm } from "./fuzz-judge.ts";
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
import { startTorturedService } from "./service.ts";

const BODY_BYTES_MAX = 65_536;
const LANES = 96;
/** The share of connections with one raw request; the others send many requests each. */
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

async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  const settings = { ...limits({ bodyBytesMax: BODY_BYTES_MAX }), PLANTSTORE_LOG_LEVEL: "warn" };
  await using sound = await startTorturedService(settings);
  // Raw bytes go to a separate service: what it stores of them cannot be predicted.
  await using raw = await startTorturedService(settings);
  const isAlive = (): boolean => sound.isAlive() && raw.isAlive();
  const seed = random.below(2 ** 32);
  const faults: string[] = [];
  const stored: Circumstances["stored"] = new Map();
  const statuses = new Map<number, number>();
  const sent = { raw: 0, sound: 0 };
  let connections = 0;

  const note = (index: number, bytes: Buffer, { status, faults: found }: Heard): void => {
    if (status !== undefined) statuses.set(status, (statuses.get(status) ?? 0) + 1);
    const shown = JSON.stringify(bytes.toString("latin1", 0, 3_000));
    faults.push(...found.map((fault) => `connection ${index}: ${fault}\n    sent ${shown}`));
  };

  /** On a new connection where the last has ended. */
  const askSoundly = async (index: number, requests: Iterable<SoundRequest>): Promise<void> => {
    let connection = await connectRaw(sound.url);
    for (const request of requests) {
      const bytes = format(request);
      if (!connection.isOpen()) connection = await connectRaw(sound.url);
      sent.sound++;
      let lack = "closed without an answer";
      const answer = await connection
        .ask(bytes)
        .catch((error: Error) => void (lack = error.message));
      const circumstances = { stored, owner: index, bodyBytesMax: BODY_BYTES_MAX };
      const found = judge(request, answer ?? undefined, circumstances);
      if (answer === undefined) found.push(lack);
      if (answer === undefined || answer.headers.get("connection") === "close") {
        connection.abort();
        await connection.closed;
      }
      note(index, bytes, { status: answer?.status, faults: found });
    }
    connection.abort();
  };

  const connect = async (index: number): Promise<void> => {
    // The same choices for the same index, whatever else happens.
    const choices = createRandom(seed ^ Math.imul(index + 1, 0x9e3779b1));
    const own = firstIdOf(index);
    if (choices.chance(RAW_PERCENT)) {
      const bytes = makeRaw(own, choices);
      sent.raw++;
      return note(index, bytes, await sendRaw(raw.url, bytes));
    }
    return askSoundly(index, makeRequests(own, choices));
  };

  const isOver = endsAfter(seconds);
  do {
    const end = connections + (isShort ? SHORT_ROUND_LENGTH : ROUND_LENGTH);
    const work = async (): Promise<void> => {
      while (connections < end && isAlive()) await connect(connections++);
    };
    await Promise.all(Array.from({ length: LANES }, work));
    if (!isAlive()) break;
    // Behind it nothing is under way that was not begun before.
    await askSoundly(connections, [makeCreate(firstIdOf(connections++))]);
    faults.push(...compare(readSettledPlants(sound.path), stored).slice(0, FAULTS_MAX));
    for (const { id, name } of readSettledPlants(raw.path))
      if (name === HIDDEN_NAME) faults.push(`${id}: hidden in another request, and stored`);
    tell(`${sent.raw + sent.sound} requests, ${faults.length} faults`);
  } while (!isOver() && isAlive() && faults.length < FAULTS_MAX);
  for (const service of [sound, raw]) faults.push(...(await service.stop()));
  const byStatus = [...statuses].toSorted(([one], [other]) => one - other);
  return {
    figures: {
      "requests, mutated as bytes": sent.raw,
      "requests, mutated in their values": sent.sound,
      connections,
      "answers by status": byStatus.map(([status, count]) => `${status}: ${count}`).join(", "),
      "plants stored": stored.size,
    },
    faults,
  };
}

/** A sound create, and then anything. Made one by one: to make them takes long, and connections wait meanwhile. */
function* makeRequests(own: bigint, random: Random): Generator<SoundRequest> {
  yield makeCreate(own);
  for (let nth = 1; nth <= SOUND_REQUESTS_EACH; nth++)
    yield makeSound(own, own + BigInt(nth), random);
}

interface Heard {
  readonly status?: number | undefined;
  readonly faults: readonly string[];
}

/** Its first answer, unless there is none although another client has been served meanwhile. */
export async function sendRaw(url: string, bytes: Buffer): Promise<Heard> {
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
