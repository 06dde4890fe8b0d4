/** A disk hangs on one sync, or on every read: each write is answered, and none is stored after its refusal. */

import { lackOfShim, type Trouble } from "../support/disk-shim.ts";
import { limits } from "../support/limits.ts";
import type { Ledger } from "../support/model.ts";
import { toBody } from "../support/plants.ts";
import { fork } from "../support/random.ts";
import { bearer } from "../support/service.ts";
import { checkIntegrity, readPlants } from "../support/stores.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import { Creators, startControl } from "./creators.ts";
import {
  type Budget,
  endsAfter,
  type Finding,
  Findings,
  noticing,
  runEach,
  type Scenario,
  within,
} from "./scenario.ts";
import { ask } from "./service.ts";
import { ShimmedDisk } from "./shimmed-disk.ts";

/** What is promised with the limits of the product, beside what the machine takes in the same moments. */
const PROMISED_MS = { answer: 100, ready: 2_000, metrics: 3_000, write: 6_000, stop: 11_000 };
const WRITERS = 8;
const ACKNOWLEDGED_MIN = 20;
/** Of each kind, while the disk hangs. */
const LOOKS = 20;
/** Each takes as long as the probe of the store may. */
const READINESS_LOOKS = 3;

/** One sync, or whatever looks at the files, and reads pages that are not in the kernel's cache. */
type Hang = "sync" | "reads";

const troubles: Readonly<Record<Hang, Trouble>> = { sync: { hangs: 1 }, reads: { readsHang: 1 } };

/** Whether the hang passes, or the service is stopped during it. */
type Ending = "passes" | "stop";

/** A setup that cannot keep a promise. */
interface Cheat {
  readonly ending: Ending;
  readonly limits?: { readonly queueSecondsMax?: number; readonly drainSecondsMax?: number };
  /** All threads of the process stand still while the disk does. */
  readonly isWholeProcess?: boolean;
  /** What has to be noticed. */
  readonly fault: RegExp;
}

class DiskHangs extends Findings {
  readonly #budget: Budget;
  /** How long what waits for the disk is waited for. Only a fault takes it. */
  #patienceMs = PATIENCE_MS;
  #findMachineMs = (): number => 0;

  constructor(budget: Budget) {
    super();
    this.#budget = budget;
  }

  async liveThrough(hang: Hang, ending: Ending, cheat?: Cheat): Promise<void> {
    const { random, isShort = false } = this.#budget;
    if (cheat !== undefined) this.#patienceMs = CHEATED_MS;
    using disk = new ShimmedDisk();
    const given =
      cheat?.limits ?? (isShort ? { queueSecondsMax: 1, drainSecondsMax: 1 } : undefined);
    const service = await disk.start({
      // Else those of the product: what is promised depends on them.
      ...(given !== undefined && limits(given)),
      // The shim knows the first HTTP thread alone.
      PLANTSTORE_WORKERS: hang === "reads" ? "1" : random.pick(["1", "2"]),
      PLANTSTORE_LOG_LEVEL: "error",
    });
    if (service === undefined) throw new Error("the service was killed");
    await using stack = new AsyncDisposableStack();
    stack.use(service);
    this.#findMachineMs = stack.use(await startControl(fork(random))).findMsMax;
    const { url } = service.started;
    const writers = new Creators(url, fork(random));
    const { ledger } = writers;
    const endWriters = await writers.start(WRITERS);
    stack.defer(endWriters);
    const untilAcknowledged = (count: number): Promise<void> =>
      until(`${count} writes are acknowledged`, () => writers.acknowledged >= count);
    await untilAcknowledged(ACKNOWLEDGED_MIN);
    const token = await createToken(url);

    const before = disk.control.faults;
    disk.control.set(troubles[hang]);
    await until(`a hang of ${hang}`, () => disk.control.faults > before);
    writers.isBehindHang = true;
    this.count(`hangs of ${hang}`);
    if (cheat?.isWholeProcess === true) service.kill("SIGSTOP");
    if (ending === "stop") {
      writers.isServiceEnding = true;
      service.kill("SIGTERM");
      await this.#time("SIGTERM ended it", PROMISED_MS.stop, service.exited);
    } else {
      await this.#look(url, ledger, token);
      // Of the writes that come now, each that is refused has its answer before the disk recovers.
      if (cheat === undefined)
        await until("every client was refused twice", async () => {
          // A token in use does not wait for its look-up.
          await ask(`${url}/token`, { headers: bearer(token) });
          return writers.refusals.every((count) => count > 1);
        });
      // By now a look-up of the token has been given up, too.
      if (this.faults.length === 0) await this.#look(url, ledger, token);
    }
    writers.isBehindHang = false;
    disk.control.set({});
    service.kill("SIGCONT");
    if (ending === "passes") {
      await untilAcknowledged(writers.acknowledged + ACKNOWLEDGED_MIN);
      await until("it is ready again", async () => (await ask(`${url}/readyz`)).status === 200);
      // The hang has been judged: what comes next is a stop as any other.
      await endWriters();
    }
    service.kill("SIGTERM");
    const code = await service.exited;
    // By a signal, such as that of a crash.
    if (code > 127 || (ending === "passes" && code !== 0))
      this.faults.push(`exited with ${code}: ${await service.stderr}`);
    await endWriters();
    const integrity = checkIntegrity(disk.storePath);
    if (integrity !== "ok") this.faults.push(`integrity: ${integrity}`);
    this.faults.push(...writers.faults, ...ledger.compare(readPlants(disk.storePath)));
    this.#judge("a write was answered", writers.answerMsMax, PROMISED_MS.write);
    this.count("writes acknowledged", writers.acknowledged);
    this.count(
      "writes refused",
      writers.refusals.reduce((sum, count) => sum + count, 0),
    );
    this.count("plants compared", ledger.size);
  }

  /** Everything that needs no commit is answered while the disk hangs, and readiness says that writes are not. */
  async #look(url: string, ledger: Ledger, token: string): Promise<void> {
    const { random } = this.#budget;
    const headers = bearer(token);
    const known = ledger.listCertain();
    for (let look = 0; look < LOOKS && this.faults.length === 0; look++) {
      const plant = random.pick(known);
      for (const path of ["/livez", "/", "/docs", `/plants/${plant.id}`]) {
        const name = path.startsWith("/plants/") ? "/plants/{id}" : path;
        const asking = ask(url + path, { headers });
        const answer = await this.#time(`GET ${name}`, PROMISED_MS.answer, asking);
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
    // With the figures that it has: those that need the disk are left out.
    const asking = ask(`${url}/metrics`, { headers });
    const metrics = await this.#time("GET /metrics", PROMISED_MS.metrics, asking);
    if (metrics?.status !== 200) this.faults.push(`GET /metrics was answered ${metrics?.status}`);
    for (let look = 0; look < READINESS_LOOKS; look++)
      if (!(await isRefused())) this.faults.push("GET /readyz was not answered 503 to the end");
  }

  async #time<Result>(
    what: string,
    msMax: number,
    answering: Promise<Result>,
  ): Promise<Result | undefined> {
    const askedAtMs = performance.now();
    const answer = await within(this.#patienceMs, answering);
    if (answer === undefined) this.faults.push(`${what}: not while the disk hung`);
    else this.#judge(what, performance.now() - askedAtMs, msMax);
    return answer;
  }

  /** For some seconds, beside other tests, only what comes after the hang is judged to be late. */
  #judge(what: string, ms: number, msMax: number): void {
    this.note(`${what}, ms at most`, ms);
    const dueMs = msMax + this.#findMachineMs();
    if (this.#budget.isShort !== true && ms > dueMs)
      this.faults.push(`${what} after ${Math.round(ms)} ms, and ${Math.round(dueMs)} are allowed`);
  }
}

/** One of the store: that of the environment is never looked up. */
async function createToken(url: string): Promise<string> {
  const body = JSON.stringify({ name: "till", scopes: ["plants:read"] });
  const created = await ask(`${url}/tokens`, { method: "POST", body, headers: JSON_BODY });
  const { token } = JSON.parse(created.text) as { readonly token: string };
  // In use, as a token that was good a moment ago.
  const { status } = await ask(`${url}/token`, { headers: bearer(token) });
  if (status !== 200) throw new Error(`the token was answered ${status}`);
  return token;
}

const JSON_BODY = { "content-type": "application/json" };

export const diskHang: Scenario = {
  title: "while the disk hangs only what needs it waits, and no write is stored after its refusal",
  missing: lackOfShim,
  run: async (budget) => {
    const hangs = new DiskHangs(budget);
    const isOver = endsAfter(budget.seconds);
    do
      for (const hang of ["sync", "reads"] as const)
        for (const ending of ["passes", "stop"] as const) await hangs.liveThrough(hang, ending);
    while (!isOver());
    return hangs;
  },
};

/** What takes this long is held up: the setups of the cheats would take forever. */
const CHEATED_MS = 5_000;

const cheats: Readonly<Record<string, Cheat>> = {
  "a process that stands still with its disk": {
    ending: "passes",
    isWholeProcess: true,
    fault: /^GET \/livez: not while the disk hung/,
  },
  "a stop that waits for the disk": {
    ending: "stop",
    limits: { queueSecondsMax: 20, drainSecondsMax: 60 },
    fault: /^SIGTERM ended it: not while/,
  },
};

export const diskHangCheat: Scenario = {
  title: "a service that a hanging disk holds up is found out",
  missing: lackOfShim,
  run: (budget) =>
    runEach(Object.keys(cheats), budget, (name) => {
      const cheat = cheats[name] as Cheat;
      const run = async (): Promise<Finding> => {
        const hangs = new DiskHangs(budget);
        await hangs.liveThrough("sync", cheat.ending, cheat);
        return hangs;
      };
      return noticing(run, cheat.fault)(budget);
    }),
};
