/** One sync of the disk hangs: only writes wait for it, each is answered, and none is stored after its refusal. */

import { catalogue } from "../../src/domain/errors.ts";
import { lackOfShim } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import { Ledger } from "../support/model.ts";
import { isReplay, toBody } from "../support/plants.ts";
import { sendPlant } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import { makePlantsFrom } from "./creators.ts";
import { type Budget, endsAfter, type Finding, type Scenario, within } from "./scenario.ts";
import { ask } from "./service.ts";
import { ShimmedDisk } from "./shimmed-disk.ts";

/** What is promised, with the limits of the product and nothing else on the machine. */
const PROMISED_MS = { answer: 100, ready: 2_000, write: 6_000, stop: 11_000 };
const WRITERS = 8;
const ACKNOWLEDGED_MIN = 20;
/** Of each kind, while the disk hangs. */
const LOOKS = 20;
/** Each takes as long as the probe of the store may. */
const READINESS_LOOKS = 3;
const ASK_EVERY_MS = 25;

/** Whether the hang passes, or the service is told to stop during it. */
type Ending = "passes" | "stop";

class DiskHangs implements Finding {
  readonly faults: string[] = [];
  readonly figures: Record<string, number> = {};
  readonly #budget: Budget;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  async liveThrough(ending: Ending): Promise<void> {
    const { random, isShort = false } = this.#budget;
    using disk = new ShimmedDisk();
    const service = await disk.start({
      ...limits(isShort ? { queueSecondsMax: 1, drainSecondsMax: 1 } : {}),
      PLANTSTORE_WORKERS: random.pick(["1", "2"]),
      PLANTSTORE_LOG_LEVEL: "error",
    });
    if (service === undefined) throw new Error("the service was killed");
    await using stack = new AsyncDisposableStack();
    stack.use(service);
    const { url } = service.started;
    const writers = new Writers(url);
    stack.defer(() => writers.stop());
    const untilAcknowledged = (count: number): Promise<void> =>
      until(`${count} writes are acknowledged`, () => writers.acknowledged >= count);
    await untilAcknowledged(ACKNOWLEDGED_MIN);

    const before = disk.control.faults;
    disk.control.set({ hangs: 1 });
    await until("a sync hangs", () => disk.control.faults > before);
    writers.isBehindHang = true;
    this.#count("hangs");
    if (ending === "stop") {
      writers.isServiceEnding = true;
      service.kill("SIGTERM");
      await this.#time("SIGTERM ended it", PROMISED_MS.stop, service.exited);
    } else {
      await this.#look(url, writers);
      // Of the writes that come now, each that is refused has its answer before the disk goes on.
      await until("every client was refused twice", () =>
        writers.refusals.every((count) => count > 1),
      );
    }
    writers.isBehindHang = false;
    disk.control.set({});
    if (ending === "passes") {
      await untilAcknowledged(writers.acknowledged + ACKNOWLEDGED_MIN);
      await until("it is ready again", async () => (await ask(`${url}/readyz`)).status === 200);
      // The hang has been judged: what comes next is a stop as any other.
      await writers.stop();
    }
    service.kill("SIGTERM");
    const code = await service.exited;
    // By a signal, such as that of a crash.
    if (code > 127 || (ending === "passes" && code !== 0))
      this.faults.push(`exited with ${code}: ${await service.stderr}`);
    await writers.stop();
    const integrity = checkIntegrity(disk.storePath);
    if (integrity !== "ok") this.faults.push(`integrity: ${integrity}`);
    this.faults.push(...writers.faults, ...writers.ledger.compare(readPlants(disk.storePath)));
    this.#judge("a write was answered", writers.answerMsMax, PROMISED_MS.write);
    this.#count("writes acknowledged", writers.acknowledged);
    this.#count(
      "writes refused",
      writers.refusals.reduce((sum, count) => sum + count, 0),
    );
    this.#count("plants compared", writers.ledger.size);
  }

  /** Everything that needs no commit is answered while the disk hangs, and readiness says that writes are not. */
  async #look(url: string, { ledger }: Writers): Promise<void> {
    const { random } = this.#budget;
    const known = ledger.listCertain();
    for (let look = 0; look < LOOKS && this.faults.length === 0; look++) {
      const plant = random.pick(known);
      for (const path of ["/livez", "/", "/docs", `/plants/${plant.id}`]) {
        const name = path.startsWith("/plants/") ? "/plants/{id}" : path;
        const answer = await this.#time(`GET ${name}`, PROMISED_MS.answer, ask(url + path));
        if (answer === undefined) return;
        if (answer.status !== 200) this.faults.push(`GET ${name} was answered ${answer.status}`);
        else if (name !== path && answer.text !== toBody(plant))
          this.faults.push(`GET ${path} was answered ${answer.text}`);
      }
    }
    const isRefused = async (): Promise<boolean> => (await ask(`${url}/readyz`)).status === 503;
    // It may be ready for a moment, by an earlier probe. Then it is not, until the end.
    const refused = until("GET /readyz is answered 503", isRefused).then(() => true);
    await this.#time("GET /readyz turned 503", PROMISED_MS.ready, refused);
    for (let look = 0; look < READINESS_LOOKS; look++)
      if (!(await isRefused())) this.faults.push("GET /readyz was not answered 503 to the end");
  }

  async #time<Result>(
    what: string,
    msMax: number,
    answering: Promise<Result>,
  ): Promise<Result | undefined> {
    const askedAtMs = performance.now();
    const answer = await within(PATIENCE_MS, answering);
    if (answer === undefined) this.faults.push(`${what}: not while the disk hung`);
    else this.#judge(what, performance.now() - askedAtMs, msMax);
    return answer;
  }

  /** For some seconds, beside other tests, only what comes after the hang is judged to be late. */
  #judge(what: string, ms: number, msMax: number): void {
    const name = `${what}, ms at most`;
    this.figures[name] = Math.max(this.figures[name] ?? 0, ms);
    if (this.#budget.isShort !== true && ms > msMax)
      this.faults.push(`${what} after ${Math.round(ms)} ms, and ${msMax} are allowed`);
  }

  #count(name: string, by = 1): void {
    this.figures[name] = (this.figures[name] ?? 0) + by;
  }
}

/** Clients that create one plant after the other, and know what has to become of each. */
class Writers {
  readonly ledger = new Ledger();
  readonly faults: string[] = [];
  acknowledged = 0;
  answerMsMax = 0;
  /** Of each client. */
  readonly refusals = Array.from({ length: WRITERS }, () => 0);
  /** What is sent and refused before its end is in no commit: the one that hangs had begun. */
  isBehindHang = false;
  /** From now on an answer may fail to come. */
  isServiceEnding = false;
  readonly #url: string;
  readonly #plants = makePlantsFrom(1);
  readonly #running: Promise<unknown>;
  #isOver = false;

  constructor(url: string) {
    this.#url = url;
    this.#running = Promise.all(this.refusals.map((_, nth) => this.#run(nth)));
  }

  /** Resolves when every client has its last answer. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }

  async #run(nth: number): Promise<void> {
    while (!this.#isOver) {
      const plant = this.#plants.next().value;
      const settle = this.ledger.begin({ kind: "create", plant });
      const isBehind = this.isBehindHang;
      const sentAtMs = performance.now();
      const response = await sendPlant(this.#url, plant).catch(() => undefined);
      const body = await response?.text().catch(() => undefined);
      if (response === undefined || body === undefined) {
        if (this.isServiceEnding) return;
        this.faults.push(`${plant.id}: the connection was closed`);
        continue;
      }
      this.answerMsMax = Math.max(this.answerMsMax, performance.now() - sentAtMs);
      if (response.status === 200) {
        this.acknowledged++;
        settle({ status: 200, body, isReplay: isReplay(response) });
        continue;
      }
      this.refusals[nth] = (this.refusals[nth] ?? 0) + 1;
      if (response.status !== 503) this.faults.push(`${plant.id}: ${response.status} ${body}`);
      if (saysNothingStored(body) || (isBehind && this.isBehindHang)) settle("refused");
      // A service that stops refuses at once.
      if (this.isServiceEnding) await Bun.sleep(ASK_EVERY_MS);
    }
  }
}

const saysNothingStored = (body: string): boolean =>
  (["overloaded", "store_busy"] as const).some((name) =>
    body.includes(`"error":${catalogue[name].code},`),
  );

export const diskHang: Scenario = {
  title: "while a sync hangs only writes wait, and none is stored after its refusal",
  missing: lackOfShim,
  run: async (budget) => {
    const hangs = new DiskHangs(budget);
    const isOver = endsAfter(budget.seconds);
    do for (const ending of ["passes", "stop"] as const) await hangs.liveThrough(ending);
    while (!isOver());
    return hangs;
  },
};
