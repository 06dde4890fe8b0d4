/** One sync of the disk hangs: only writes wait for it, each is answered in time, and none is stored after its refusal. */

import { catalogue } from "../../src/domain/errors.ts";
import type { ServiceProcess } from "../support/command.ts";
import { lackOfShim } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { isReplay, type StoredPlant, toBody } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import { makePlantsFrom } from "./creators.ts";
import { type Budget, deal, type Finding, type Scenario, within } from "./scenario.ts";
import { ShimmedDisk } from "./shimmed-disk.ts";

interface Terms {
  readonly hangMs: number;
  readonly queueSecondsMax: number;
  readonly drainSecondsMax: number;
  /** For what needs no commit. */
  readonly answerMsMax: number;
  /** From the beginning of the hang until readiness is answered 503. */
  readonly readyMsMax: number;
  /** What a deadline may be missed by. */
  readonly slackMs: number;
}

/** The product's own limits, and what is promised. */
const promised: Terms = {
  hangMs: 20_000,
  queueSecondsMax: 5,
  drainSecondsMax: 10,
  answerMsMax: 100,
  readyMsMax: 2_000,
  slackMs: 1_000,
};

/** A busy machine keeps to these, and a service that waits for the disk does not. */
const short: Terms = {
  hangMs: 6_000,
  queueSecondsMax: 1,
  drainSecondsMax: 1,
  answerMsMax: 1_500,
  readyMsMax: 3_000,
  slackMs: 2_000,
};

const WRITERS = 8;
const BEGIN_MS_MAX = 10_000;
const RECOVERY_MS_MAX = 20_000;
const ACKNOWLEDGED_MIN = 20;
const ASK_EVERY_MS = 25;
const headers = { authorization: `Bearer ${TEST_TOKEN}` };

/** Whether the hang passes, or the service is told to stop during it. */
type Ending = "passes" | "stop";
const endings: readonly Ending[] = ["passes", "stop"];

/** A setup that cannot keep a promise. */
interface Cheat {
  readonly ending: Ending;
  readonly limits?: { readonly queueSecondsMax?: number; readonly drainSecondsMax?: number };
  /** A proxy refuses what takes longer than the deadline, and leaves it in the queue. */
  readonly isRefusedInFront?: boolean;
  /** All threads of the process stand still while the disk does. */
  readonly isWholeProcess?: boolean;
  /** What has to be noticed. */
  readonly fault: RegExp;
}

class DiskHangs {
  readonly faults: string[] = [];
  readonly #terms: Terms;
  readonly #random: Random;
  readonly #counts = { hangs: 0, acknowledged: 0, refused: 0, compared: 0 };
  /** The slowest of each kind. */
  readonly #ms = new Map<string, number>();

  constructor(terms: Terms, random: Random) {
    this.#terms = terms;
    this.#random = random;
  }

  get figures(): Finding["figures"] {
    const { hangs, acknowledged, refused, compared } = this.#counts;
    return {
      hangs,
      ...Object.fromEntries(
        [...this.#ms].map(([what, ms]) => [what, `after ${Math.round(ms)} ms at most`]),
      ),
      "writes acknowledged": acknowledged,
      "writes refused": refused,
      "plants compared": compared,
    };
  }

  async liveThrough(disk: ShimmedDisk, ending: Ending, cheat?: Cheat): Promise<void> {
    const { queueSecondsMax, drainSecondsMax, hangMs } = this.#terms;
    const service = await disk.start({
      ...limits({ queueSecondsMax, drainSecondsMax, ...cheat?.limits }),
      PLANTSTORE_WORKERS: this.#random.pick(["1", "2"]),
      PLANTSTORE_LOG_LEVEL: "error",
    });
    if (service === undefined) throw new Error("the service was killed");
    await using stack = new AsyncDisposableStack();
    stack.use(service);
    const url =
      cheat?.isRefusedInFront === true
        ? stack.use(refuseInFront(service.started.url, queueSecondsMax * 1000)).url
        : service.started.url;
    const writers = new Writers(url);
    stack.defer(() => writers.stop());
    if (!(await comes(() => writers.acknowledged >= ACKNOWLEDGED_MIN, BEGIN_MS_MAX)))
      throw new Error("the service acknowledged nothing");

    const beganAtMs = await beginHang(disk, hangMs);
    // The sync began later than it was told to, so it ends later than this.
    const endsAtMs = beganAtMs + hangMs;
    writers.behindUntilMs = endsAtMs;
    this.#counts.hangs++;
    if (cheat?.isWholeProcess === true) {
      service.kill("SIGSTOP");
      setTimeout(() => service.kill("SIGCONT"), hangMs);
    }
    if (ending === "stop") await Bun.sleep(this.#random.below(hangMs / 4));
    else {
      const known = writers.ledger.listCertain();
      await Promise.all([
        ...["/livez", "/", "/docs"].map((path) => this.#watch(url, () => ({ path }), endsAtMs)),
        this.#watch(url, () => this.#chooseLookUp(known), endsAtMs),
        this.#watchReadiness(url, beganAtMs, endsAtMs),
      ]);
      await this.#requireRecovery(url, writers, endsAtMs);
    }
    await this.#stop(service, writers, ending);
    this.#compare(disk, writers);
  }

  #chooseLookUp(known: readonly StoredPlant[]): { path: string; name: string; text: string } {
    const plant = this.#random.pick(known);
    return { path: `/plants/${plant.id}`, name: "/plants/{id}", text: toBody(plant) };
  }

  /** Asks again and again until then. */
  async #watch(
    url: string,
    choose: () => { readonly path: string; readonly name?: string; readonly text?: string },
    untilMs: number,
  ): Promise<void> {
    do {
      const { path, name = path, text } = choose();
      const answer = await ask(url + path, this.#patienceMs);
      this.#note(`GET ${name} answered`, answer.ms, this.#terms.answerMsMax);
      if (answer.status !== 200) this.faults.push(`GET ${name} was answered ${answer.status}`);
      else if (text !== undefined && answer.text !== text)
        this.faults.push(`GET ${path} was answered ${answer.text} instead of ${text}`);
      await Bun.sleep(ASK_EVERY_MS);
    } while (performance.now() < untilMs);
  }

  /** It may be ready for a moment, by an earlier probe. Then it is not, until the end. */
  async #watchReadiness(url: string, beganAtMs: number, endsAtMs: number): Promise<void> {
    const { readyMsMax } = this.#terms;
    let isRefused = false;
    while (performance.now() < endsAtMs) {
      const { status, ms } = await ask(`${url}/readyz`, this.#patienceMs);
      const answeredAtMs = performance.now();
      this.#note("GET /readyz answered", ms, readyMsMax);
      if (!isRefused && status === 503) {
        isRefused = true;
        this.#note("GET /readyz answered 503", answeredAtMs - beganAtMs, readyMsMax);
      } else if (status !== 503 && isRefused && answeredAtMs < endsAtMs)
        this.faults.push(`GET /readyz was answered ${status} while the disk hung`);
      await Bun.sleep(ASK_EVERY_MS);
    }
    if (!isRefused) this.faults.push("GET /readyz was never answered 503 while the disk hung");
  }

  async #requireRecovery(url: string, writers: Writers, endsAtMs: number): Promise<void> {
    const before = writers.acknowledged;
    const isWriting = await comes(
      () => writers.acknowledged >= before + ACKNOWLEDGED_MIN,
      RECOVERY_MS_MAX,
    );
    if (!isWriting) this.faults.push("nothing was acknowledged after the hang");
    let status = 0;
    while (status !== 200 && performance.now() < endsAtMs + RECOVERY_MS_MAX)
      ({ status } = await ask(`${url}/readyz`, this.#patienceMs));
    if (status !== 200) this.faults.push("GET /readyz was not answered 200 after the hang");
    this.#note("ready, and writing, again", performance.now() - endsAtMs, RECOVERY_MS_MAX);
  }

  async #stop(service: ServiceProcess, writers: Writers, ending: Ending): Promise<void> {
    const stopMsMax = this.#terms.drainSecondsMax * 1000 + this.#terms.slackMs;
    // A hang that passes has been judged: what comes next is a stop as any other.
    if (ending === "passes") await writers.stop();
    writers.isServiceEnding = true;
    const toldAtMs = performance.now();
    service.kill("SIGTERM");
    const code = await within(this.#terms.hangMs + RECOVERY_MS_MAX, service.exited);
    const name = ending === "stop" ? "SIGTERM during a hang ended it" : "SIGTERM ended it";
    this.#note(name, performance.now() - toldAtMs, stopMsMax);
    if (code === undefined) service.kill("SIGKILL");
    await service.exited;
    // By a signal, such as that of a crash.
    if (code !== undefined && (code > 127 || (ending === "passes" && code !== 0)))
      this.faults.push(`exited with ${code}: ${await service.stderr}`);
    await writers.stop();
  }

  #compare(disk: ShimmedDisk, writers: Writers): void {
    const { queueSecondsMax, slackMs } = this.#terms;
    this.#note("writes answered", writers.answerMsMax, queueSecondsMax * 1000 + slackMs);
    const integrity = checkIntegrity(disk.storePath);
    if (integrity !== "ok") this.faults.push(`integrity: ${integrity}`);
    this.faults.push(...writers.faults, ...writers.ledger.compare(readPlants(disk.storePath)));
    this.#counts.acknowledged += writers.acknowledged;
    this.#counts.refused += writers.refused;
    this.#counts.compared += writers.ledger.size;
  }

  #note(what: string, ms: number, msMax: number): void {
    this.#ms.set(what, Math.max(this.#ms.get(what) ?? 0, ms));
    if (ms > msMax)
      this.faults.push(`${what} after ${Math.round(ms)} ms, and ${msMax} are allowed`);
  }

  /** Far longer than anything may take. */
  get #patienceMs(): number {
    return this.#terms.hangMs + RECOVERY_MS_MAX;
  }
}

/** Clients that create one plant after the other, and know what has to become of each. */
class Writers {
  readonly ledger = new Ledger();
  readonly faults: string[] = [];
  acknowledged = 0;
  refused = 0;
  answerMsMax = 0;
  /** What is sent and refused before this is in no commit: the one that hangs had begun. */
  behindUntilMs = 0;
  /** From now on an answer may fail to come. */
  isServiceEnding = false;
  readonly #url: string;
  readonly #plants = makePlantsFrom(1);
  readonly #running: Promise<void>[];
  #isOver = false;

  constructor(url: string) {
    this.#url = url;
    this.#running = Array.from({ length: WRITERS }, () => this.#run());
  }

  /** Resolves when every client has its last answer. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#running);
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      const plant = this.#plants.next().value;
      const settle = this.ledger.begin({ kind: "create", plant });
      const isBehind = this.behindUntilMs > 0;
      const sentAtMs = performance.now();
      const response = await sendPlant(this.#url, plant).catch(() => undefined);
      const body = await response?.text().catch(() => undefined);
      if (response === undefined || body === undefined) {
        if (this.isServiceEnding) return;
        this.faults.push(`${plant.id}: the connection was closed`);
        continue;
      }
      const answeredAtMs = performance.now();
      this.answerMsMax = Math.max(this.answerMsMax, answeredAtMs - sentAtMs);
      if (response.status === 200) {
        this.acknowledged++;
        settle({ status: 200, body, isReplay: isReplay(response) });
        continue;
      }
      this.refused++;
      if (response.status !== 503) this.faults.push(`${plant.id}: ${response.status} ${body}`);
      if (saysNothingStored(body) || (isBehind && answeredAtMs < this.behindUntilMs))
        settle("refused");
      // A service that stops refuses at once.
      if (this.isServiceEnding) await Bun.sleep(ASK_EVERY_MS);
    }
  }
}

const saysNothingStored = (body: string): boolean =>
  (["overloaded", "store_busy"] as const).some((name) =>
    body.includes(`"error":${catalogue[name].code},`),
  );

/** Resolves when a sync hangs, with the time at which it was told to. */
async function beginHang(disk: ShimmedDisk, hangMs: number): Promise<number> {
  const { control } = disk;
  const before = control.faults;
  const toldAtMs = performance.now();
  control.set({ hangMs });
  if (!(await comes(() => control.faults > before, BEGIN_MS_MAX)))
    throw new Error("no sync has begun to hang");
  return toldAtMs;
}

/** False where it does not come in time. */
async function comes(isSo: () => boolean, msMax: number): Promise<boolean> {
  const endsAtMs = performance.now() + msMax;
  while (!isSo()) {
    if (performance.now() > endsAtMs) return false;
    await Bun.sleep(1);
  }
  return true;
}

/** Status 0 if there was no answer. */
async function ask(
  url: string,
  patienceMs: number,
): Promise<{ readonly status: number; readonly text: string; readonly ms: number }> {
  const askedAtMs = performance.now();
  const since = (): number => performance.now() - askedAtMs;
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(patienceMs) });
    return { status: response.status, text: await response.text(), ms: since() };
  } catch {
    return { status: 0, text: "", ms: since() };
  }
}

/** A proxy with a deadline, in front of a service without one. */
function refuseInFront(behind: string, deadlineMs: number): AsyncDisposable & { url: string } {
  const refusal = { error: catalogue.store_busy.code, message: catalogue.store_busy.meaning };
  const http = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers: given } = request;
      const body = method === "POST" ? await request.text() : null;
      const answered = fetch(behind + pathname + search, { method, headers: given, body })
        .then(async (response) => new Response(await response.bytes(), { status: response.status }))
        .catch(() => new Response(null, { status: 502 }));
      const answer = method === "POST" ? await within(deadlineMs, answered) : await answered;
      return answer ?? Response.json(refusal, { status: 503 });
    },
  });
  return { url: `http://127.0.0.1:${http.port}`, [Symbol.asyncDispose]: () => http.stop(true) };
}

/** Fails only when all are over: none may leave its service running. */
async function allEnded<Result>(running: readonly Promise<Result>[]): Promise<Result[]> {
  await Promise.allSettled(running);
  return Promise.all(running);
}

async function run({ seconds, random, isShort = false }: Budget): Promise<Finding> {
  const hangs = new DiskHangs(isShort ? short : promised, random);
  if (isShort) {
    using disks = new DisposableStack();
    // The compiler would hold up what is measured.
    const prepared = endings.map((ending) => [disks.use(new ShimmedDisk()), ending] as const);
    await allEnded(prepared.map(([disk, ending]) => hangs.liveThrough(disk, ending)));
    return hangs;
  }
  const endsAtMs = performance.now() + seconds * 1000;
  for (const { kind, haveAllCome } of deal(endings, random)) {
    using disk = new ShimmedDisk();
    await hangs.liveThrough(disk, kind);
    if (haveAllCome && performance.now() > endsAtMs) return hangs;
  }
  return hangs;
}

export const diskHang: Scenario = {
  title: "one sync of the disk hangs, and only writes wait for it",
  missing: lackOfShim,
  run,
};

const cheats: Readonly<Record<string, Cheat>> = {
  "a process that stands still with its disk": {
    ending: "passes",
    isWholeProcess: true,
    fault: /^GET \/livez answered after/,
  },
  "a queue whose writes outlive their refusal": {
    ending: "passes",
    limits: { queueSecondsMax: 20 },
    isRefusedInFront: true,
    fault: /stored although it was removed or refused$/,
  },
  "a stop that waits for the disk": {
    ending: "stop",
    limits: { queueSecondsMax: 20, drainSecondsMax: 60 },
    fault: /^SIGTERM during a hang ended it after/,
  },
};

async function runCheats({ random }: Budget): Promise<Finding> {
  using disks = new DisposableStack();
  const prepared = Object.entries(cheats).map(
    (entry) => [disks.use(new ShimmedDisk()), entry] as const,
  );
  const found = await allEnded(
    prepared.map(async ([disk, [name, cheat]]) => {
      const hangs = new DiskHangs(short, random);
      await hangs.liveThrough(disk, cheat.ending, cheat);
      return [name, hangs.faults.filter((fault) => cheat.fault.test(fault)).length] as const;
    }),
  );
  return {
    figures: Object.fromEntries(found.map(([name, count]) => [`${name}: faults found`, count])),
    faults: found
      .filter(([, count]) => count === 0)
      .map(([name]) => `${name} has done nothing that was noticed`),
  };
}

export const diskHangCheat: Scenario = {
  title: "without its protection, a hang is found to hold up or to store what it may not",
  missing: lackOfShim,
  run: runCheats,
};
