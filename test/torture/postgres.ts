/** Several services under load, on a PostgreSQL server to which everything happens that happens to servers. */

import type { StoredPlant } from "../support/plants.ts";
import type { PostgresServer } from "../support/postgres-server.ts";
import { signal } from "../support/processes.ts";
import { fork, type Random } from "../support/random.ts";
import { sendPlant } from "../support/service.ts";
import {
  compare,
  examine,
  findMissingPostgres,
  openScene,
  probe,
  type Scene,
} from "./postgres-scene.ts";
import { type Budget, deal, endsAfter, type Finding, type Scenario, within } from "./scenario.ts";

const WRITES_BETWEEN_MAX = 300;
const CALM_PERCENT = 75;
const ENDS_BETWEEN_MS_MAX = 3_000;
/** From the end of a mishap to a write that every service has acknowledged, on a busy machine. */
const RECOVERY_MS_MAX = 120_000;
/** For the load to flow as before. */
const FLOW_MS_MAX = 120_000;
const PROBE_MS = 20;

/** How a service ends. A killed one promises nothing; one that gets SIGTERM exits with 0. */
const ends: Readonly<Record<string, NodeJS.Signals>> = {
  "instance killed": "SIGKILL",
  "instance told to stop": "SIGTERM",
};

export const postgres: Scenario = {
  title: "three services, and a PostgreSQL server that is killed, paused, cut off, and so are they",
  missing: findMissingPostgres,
  run: async (budget) => {
    const { random } = budget;
    await using scene = await openScene(random);
    const course = new Course(scene, budget);
    await Promise.all([course.troubleServer(fork(random)), course.troubleInstances(fork(random))]);
    await course.recover("in the end");
    await Promise.all([scene.clients.stop(), scene.contest.stop()]);
    // Not without waiting: the scene would be over.
    return await conclude(scene, course);
  },
};

/** Two rows of mishaps at one time; each goes on until the time is over, and in a long run until every kind has come. */
class Course {
  /** Until all was well again after each kind, at most; zero if the end was not waited for. */
  readonly timesMs: Record<string, number> = {};
  readonly #scene: Scene;
  readonly #budget: Budget;
  readonly #isTimeOver: () => boolean;
  #isServerDone = false;

  constructor(scene: Scene, budget: Budget) {
    this.#scene = scene;
    this.#budget = budget;
    this.#isTimeOver = endsAfter(budget.seconds);
  }

  async troubleServer(random: Random): Promise<void> {
    for (const { kind, haveAllCome } of deal(Object.keys(mishaps), random)) {
      this.#budget.tell(kind);
      await mishaps[kind]?.({ ...this.#scene, random });
      // Every now and then the next one comes before all is well again.
      const isCalm = random.chance(CALM_PERCENT);
      this.#note(kind, isCalm ? await this.recover(kind) : 0);
      if (isCalm) await this.#flow(kind, 1 + random.below(WRITES_BETWEEN_MAX));
      if ((haveAllCome || this.#budget.isShort) && this.#isTimeOver()) break;
    }
    this.#isServerDone = true;
  }

  async troubleInstances(random: Random): Promise<void> {
    for (const { kind, haveAllCome } of deal(Object.keys(ends), random)) {
      await Bun.sleep(random.below(ENDS_BETWEEN_MS_MAX));
      this.#budget.tell(kind);
      const endedAtMs = performance.now();
      const { exited, started } = await this.#scene.fleet.replaceAny(random, ends[kind]);
      this.#note(kind, performance.now() - endedAtMs);
      const exitCode = await exited;
      if (ends[kind] === "SIGTERM" && exitCode !== 0)
        this.#scene.faults.push(`${started.url} did not stop in order: exit ${exitCode}`);
      if (haveAllCome && this.#isServerDone) return;
    }
  }

  /** Resolves when every service takes writes, unless it was ended meanwhile; to the time that it took. */
  async recover(kind: string): Promise<number> {
    const { fleet, faults } = this.#scene;
    const wellAtMs = performance.now();
    await Promise.all(
      fleet.services.map(async (service) => {
        while (!(await takesWrites(service.started.url))) {
          if (fleet.ended.includes(service)) return;
          if (performance.now() - wellAtMs > RECOVERY_MS_MAX)
            return faults.push(
              `${kind}: ${service.started.url} takes no writes ${RECOVERY_MS_MAX} ms after that`,
            );
          await Bun.sleep(PROBE_MS);
        }
      }),
    );
    return performance.now() - wellAtMs;
  }

  #note(kind: string, ms: number): void {
    this.timesMs[kind] = Math.max(this.timesMs[kind] ?? 0, ms);
  }

  async #flow(kind: string, writes: number): Promise<void> {
    const { clients, faults } = this.#scene;
    if ((await within(FLOW_MS_MAX, clients.untilAcknowledged(writes))) === undefined)
      faults.push(`${kind}: the load does not flow as before`);
  }
}

/** The same plant every time: a replay needs a commit as well. */
async function takesWrites(url: string): Promise<boolean> {
  const sending = sendPlant(url, probe).then(
    ({ status }) => status === 200,
    () => false,
  );
  return (await within(RECOVERY_MS_MAX, sending)) ?? false;
}

async function conclude(scene: Scene, { timesMs }: Course): Promise<Finding> {
  const { clients, contest } = scene;
  const faults = await compare(scene);
  return {
    figures: {
      ...timesMs,
      "writes acknowledged": clients.acknowledged,
      "writes refused for now, or cut off": clients.unsettled,
      "longest answer (ms)": Math.round(clients.answerMsMax),
      ...Object.fromEntries(
        Object.entries(contest.counts).map(([name, count]) => [`contest: ${name}`, count]),
      ),
    },
    faults: [...scene.faults, ...faults, ...(await examine(scene))],
  };
}

type Mishap = (scene: Pick<Scene, "server" | "proxy"> & { random: Random }) => Promise<void>;

/** Longer than a request may wait, every now and then. */
const OUTAGE_MS_MAX = 3_500;
const TERMINATED_MAX = 12;
const CUTS_MAX = 5;
const BETWEEN_MS_MAX = 150;

const mishaps: Readonly<Record<string, Mishap>> = {
  "server killed": async ({ server, random }) => {
    await server.kill();
    await outage(random);
    await server.start();
  },

  "server restarted": ({ server }) => server.restart(),

  "server paused": async ({ server, random }) => {
    await server.pause();
    await outage(random);
    server.resume();
  },

  "single backends terminated": async ({ server, random }) => {
    const count = 1 + random.below(TERMINATED_MAX);
    for (let terminated = 0; terminated < count; terminated++) {
      const pid = await pickBackend(server, random);
      if (pid !== undefined) await server.run(`SELECT pg_terminate_backend(${pid})`);
      await Bun.sleep(random.below(BETWEEN_MS_MAX));
    }
  },

  // The server then ends all other backends as well, and recovers.
  "single backend killed": async ({ server, random }) => {
    const pid = await pickBackend(server, random);
    if (pid !== undefined) signal(pid, "SIGKILL");
    while (!(await answers(server))) await Bun.sleep(10);
  },

  "connections cut": async ({ proxy, random }) => {
    for (let cuts = random.below(CUTS_MAX); cuts >= 0; cuts--) {
      proxy.cut();
      await Bun.sleep(random.below(BETWEEN_MS_MAX));
    }
  },

  "network silent": async ({ proxy, random }) => {
    proxy.freeze(true);
    await outage(random);
    proxy.freeze(false);
  },
};

/** Mostly short, because more happens while something begins or ends than in between. */
const outage = (random: Random): Promise<void> =>
  Bun.sleep(random.below(random.chance(50) ? OUTAGE_MS_MAX : OUTAGE_MS_MAX / 10));

async function pickBackend(server: PostgresServer, random: Random): Promise<number | undefined> {
  const rows = await server.run<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'instance-%' ORDER BY pid",
  );
  return rows.length === 0 ? undefined : random.pick(rows).pid;
}

const answers = (server: PostgresServer): Promise<boolean> =>
  server.run("SELECT").then(
    () => true,
    () => false,
  );

const CHEATED_WRITES = 500;

/** The server writes nothing of its log before it is asked to sync, which the cheat prevents. */
const LAZY = {
  wal_buffers: "16MB",
  wal_writer_delay: "10s",
  wal_writer_flush_after: "1GB",
};

/** Behind the back of the service, which refuses a server that says so. */
const CHEAT = `CREATE FUNCTION cheat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); RETURN NULL; END $$;
  CREATE TRIGGER cheat AFTER INSERT OR UPDATE OR DELETE ON plants EXECUTE FUNCTION cheat()`;

export const postgresCheat: Scenario = {
  title:
    "a PostgreSQL server that acknowledges too early, and is killed: the losses have to be found",
  missing: findMissingPostgres,
  run: async ({ random }) => {
    await using scene = await openScene(random, LAZY);
    const { server, database, clients, contest } = scene;
    // A replay would sync what was written before.
    await contest.stop();
    for (const statement of CHEAT.split(/;\s+(?=CREATE)/)) await server.run(statement, database);
    await clients.untilAcknowledged(CHEATED_WRITES);
    await server.kill();
    await clients.stop();
    await server.start();
    const rows = await server.run<StoredPlant>("SELECT id, name, tag FROM plants", database);
    const found = clients.compare(rows.filter(({ id }) => id >= 0n));
    return {
      figures: { "losses found": found.length },
      faults: found.length > 0 ? [] : ["no loss was found, and there has to be some"],
    };
  },
};
