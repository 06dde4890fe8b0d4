/** Several services under load, on a PostgreSQL server to which everything happens that happens to servers. */

import { type StoredPlant, toBody } from "../support/plants.ts";
import type { PostgresServer } from "../support/postgres-server.ts";
import { signal } from "../support/processes.ts";
import { fork, type Random } from "../support/random.ts";
import { PATIENCE_MS, until } from "../support/until.ts";
import { examine, findMissingPostgres, openScene, probe, type Scene } from "./postgres-scene.ts";
import { type Budget, deal, endsAfter, noticing, type Scenario } from "./scenario.ts";
import { ask } from "./service.ts";

const WRITES_BETWEEN_MAX = 300;
const CALM_PERCENT = 75;
const ENDS_BETWEEN_MS_MAX = 3_000;

/** How a service ends. A killed one promises nothing; one that gets SIGTERM exits with 0. */
const ends: Readonly<Record<string, NodeJS.Signals>> = {
  "instance killed": "SIGKILL",
  "instance told to stop": "SIGTERM",
};

export const postgres: Scenario = {
  title: "three services, and a PostgreSQL server that is killed, paused, cut off, and so are they",
  missing: findMissingPostgres,
  run: async (budget) => {
    await using scene = await openScene(budget.random);
    const { found, load } = scene;
    await trouble(scene, budget);
    await recover(scene, "in the end");
    found.faults.push(...(await examine(scene)));
    found.count("writes acknowledged", load.clients.acknowledged);
    found.count("writes refused for now, or cut off", load.clients.unsettled);
    found.note("longest answer (ms)", Math.round(load.clients.answerMsMax));
    for (const [name, count] of Object.entries(load.contest.counts))
      found.count(`contest: ${name}`, count);
    return found;
  },
};

/**
 * Two rows of mishaps at one time. Notes the longest time until all was well again after each kind; zero if the end
 * was not waited for.
 */
async function trouble(scene: Scene, budget: Budget): Promise<void> {
  const { fleet, load, found } = scene;
  const isTimeOver = endsAfter(budget.seconds);
  let isServerDone = false;

  const troubleServer = async (random: Random): Promise<void> => {
    for (const kind of deal(Object.keys(mishaps), { ...budget, random }, isTimeOver)) {
      budget.tell(kind);
      await mishaps[kind]?.({ ...scene, random });
      // Every now and then the next one comes before all is well again.
      const isCalm = random.chance(CALM_PERCENT);
      found.note(kind, isCalm ? await recover(scene, kind) : 0);
      if (!isCalm) continue;
      const standstill = await load.flow(1 + random.below(WRITES_BETWEEN_MAX));
      found.faults.push(...standstill.map((fault) => `${kind}: ${fault}`));
    }
    isServerDone = true;
  };

  const troubleInstances = async (random: Random): Promise<void> => {
    for (const kind of deal(Object.keys(ends), { random }, () => isServerDone)) {
      await Bun.sleep(random.below(ENDS_BETWEEN_MS_MAX));
      budget.tell(kind);
      const endedAtMs = performance.now();
      const { exited, started } = await fleet.replaceAny(random, ends[kind]);
      found.note(kind, performance.now() - endedAtMs);
      const exitCode = await exited;
      if (ends[kind] === "SIGTERM" && exitCode !== 0)
        found.faults.push(`${started.url} did not stop in order: exit ${exitCode}`);
    }
  };

  await Promise.all([troubleServer(fork(budget.random)), troubleInstances(fork(budget.random))]);
}

/** Resolves when every service takes writes, unless it was ended meanwhile; to the time that it took. */
async function recover({ fleet, found }: Scene, kind: string): Promise<number> {
  const wellAtMs = performance.now();
  await Promise.all(
    fleet.services.map((service) =>
      until(
        `${kind}: ${service.started.url} takes writes`,
        async () => (await takesWrites(service.started.url)) || fleet.ended.includes(service),
      ).catch((error: Error) => found.faults.push(error.message)),
    ),
  );
  return performance.now() - wellAtMs;
}

/** The same plant every time: a replay needs a commit as well. */
async function takesWrites(url: string): Promise<boolean> {
  const headers = { "content-type": "application/json" };
  const patience = { signal: AbortSignal.timeout(PATIENCE_MS) };
  const sent = { method: "POST", headers, body: toBody(probe), ...patience };
  return (await ask(`${url}/plants`, sent)).status === 200;
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
    const isBack = (): Promise<boolean> => server.run("SELECT").then(Array.isArray, () => false);
    await until("the server answers", isBack);
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

const CHEATED_WRITES = 500;

/** The server writes nothing of its log before it is asked to sync, which the cheat prevents. */
const LAZY = { wal_buffers: "16MB", wal_writer_delay: "10s", wal_writer_flush_after: "1GB" };

/** Behind the back of the service, which refuses a server that says so. */
const CHEAT = `CREATE FUNCTION cheat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); RETURN NULL; END $$;
  CREATE TRIGGER cheat AFTER INSERT OR UPDATE OR DELETE ON plants EXECUTE FUNCTION cheat()`;

export const postgresCheat: Scenario = {
  title:
    "a PostgreSQL server that acknowledges too early, and is killed: the losses have to be found",
  missing: findMissingPostgres,
  run: noticing(async ({ random }) => {
    await using scene = await openScene(random, LAZY);
    const { server, database, load } = scene;
    const { clients, contest } = load;
    // A replay would sync what was written before.
    await contest.stop();
    for (const statement of CHEAT.split(/;\s+(?=CREATE)/)) await server.run(statement, database);
    await clients.untilAcknowledged(CHEATED_WRITES);
    await server.kill();
    await clients.stop();
    await server.start();
    const rows = await server.run<StoredPlant>("SELECT id, name, tag FROM plants", database);
    return { figures: {}, faults: clients.compare(rows.filter(({ id }) => id >= 0n)) };
  }),
};
