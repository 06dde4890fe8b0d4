/** What can befall a PostgreSQL server and the way to it. Each is over when it resolves, and all is well again then. */

import type { PostgresServer } from "../support/postgres-server.ts";
import { signal } from "../support/processes.ts";
import type { Proxy } from "../support/proxy.ts";
import type { Random } from "../support/random.ts";
import { within } from "./postgres-times.ts";

interface Victim {
  readonly server: PostgresServer;
  /** All services come by it. */
  readonly proxy: Proxy;
  readonly random: Random;
}

type Mishap = (victim: Victim) => Promise<void>;

/** Longer than a request may wait, every now and then. */
const OUTAGE_MS_MAX = 3_500;
const TERMINATED_MAX = 12;
const CUTS_MAX = 5;
const BETWEEN_MS_MAX = 150;
/** For a statement to come, or its answer; under load there are hundreds in that time. */
const CATCH_MS_MAX = 5_000;

const WRITES = ["INSERT INTO plants ", "UPDATE plants p SET", "DELETE FROM plants p"];

export const mishaps: Readonly<Record<string, Mishap>> = {
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

  // The server then ends all others as well, and recovers by itself.
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

  "write lost on its way": async ({ proxy, random }) => {
    const caught = await catchWhole(proxy.holdStatement(random.pick(WRITES)));
    caught?.cut();
  },

  "answer lost after the commit": async ({ proxy, random }) => {
    const caught = await catchWhole(proxy.holdAnswer(random.pick(WRITES)));
    caught?.cut();
  },

  "write delivered late": async ({ proxy, random }) => {
    const caught = await catchWhole(proxy.holdStatement(random.pick(WRITES)));
    caught?.cutClient();
    await outage(random);
    caught?.release();
    if (caught !== undefined) await within(CATCH_MS_MAX, caught.served);
    caught?.cut();
  },
};

type Caught = Awaited<ReturnType<Proxy["holdAnswer"]>>;

/** Undefined where nothing came. What is caught after that is let go, or it would be held for ever. */
async function catchWhole(catching: Promise<Caught>): Promise<Caught | undefined> {
  const caught = await within(CATCH_MS_MAX, catching);
  if (caught === undefined) void catching.then((late) => late.cut());
  else await within(CATCH_MS_MAX, caught.whole);
  return caught;
}

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
