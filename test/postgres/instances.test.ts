/** Three services on one database, killed at random under load: together they keep what each has acknowledged. */

import { describe, expect, test } from "bun:test";
import { migrations } from "../../src/store/postgres/migrations.ts";
import { runCommand } from "../support/child.ts";
import { Fleet } from "../support/fleet.ts";
import { compareGardens, Gardeners } from "../support/gardener.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { Quarrel } from "../support/quarrel.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";

const INSTANCES = 3;
const KILLS = 8;
const STARTS = 3;
const GARDENERS = 12;
const QUARRELLERS = 12;
const WRITES_BETWEEN_MAX = 400;
const TEST_MS_MAX = 90_000;
/** As the command line promises. */
const REVOKED_SECONDS_MAX = 5;

test(
  `${INSTANCES} instances, killed at random under load, lose nothing and do not contradict each other`,
  () =>
    tellingSeed(async () => {
      const random = createRandom();
      const server = await sharedPostgres();
      await using database = await createTestDatabase(server);
      await using fleet = new Fleet(server, database.url, { PLANTSTORE_TOKEN: TEST_TOKEN });
      await fleet.start(INSTANCES);
      const surroundings = {
        findUrl: () => fleet.findUrl(random),
        untilQuiet: () => fleet.untilQuiet(),
      };
      await using gardeners = new Gardeners(GARDENERS, surroundings, random);
      await using quarrel = new Quarrel(QUARRELLERS, surroundings, random);
      for (let kills = 0; kills < KILLS; kills++) {
        await gardeners.untilAcknowledged(1 + random.below(WRITES_BETWEEN_MAX));
        await fleet.replaceAny(random);
      }
      await gardeners.untilAcknowledged(WRITES_BETWEEN_MAX);
      await Promise.all([gardeners.stop(), quarrel.stop()]);

      const rows = await server.run<StoredPlant>("SELECT id, name, tag FROM plants", database.name);
      const tended = rows.filter(({ id }) => id >= 0n);
      const contested = rows.filter(({ id }) => id < 0n);
      expect(compareGardens(gardeners.all, tended).slice(0, 10)).toEqual([]);
      expect(quarrel.compare(contested).slice(0, 10)).toEqual([]);
      // Otherwise nothing was shown: nobody was cut off, or nobody quarrelled.
      expect(gardeners.unsettled).toBeGreaterThan(KILLS);
      expect(Math.min(...Object.values(quarrel.counts))).toBeGreaterThan(KILLS);
    }),
  TEST_MS_MAX,
);

describe("instances that start at the same moment", () => {
  test(
    "on an empty database make its schema once, and one first token that all of them take",
    async () => {
      const server = await sharedPostgres();
      for (let start = 0; start < STARTS; start++) {
        await using database = await createTestDatabase(server);
        await using fleet = new Fleet(server, database.url);
        const services = await fleet.start(INSTANCES);
        const tokens = services.flatMap(({ started }) => started.token ?? []);
        expect(tokens).toHaveLength(1);
        for (const { started } of services)
          expect(await readStatus(started.url, tokens[0])).toBe(200);
        const schema = "SELECT version, locked_by FROM plantstore_schema";
        expect(await server.run(schema, database.name)).toEqual([
          { version: migrations.length, locked_by: null },
        ]);
        expect(await server.run("SELECT name FROM plantstore_tokens", database.name)).toEqual([
          { name: "first" },
        ]);
      }
    },
    TEST_MS_MAX,
  );
});

test(
  `a token that the command line has revoked is refused by every instance within ${REVOKED_SECONDS_MAX} seconds`,
  async () => {
    const server = await sharedPostgres();
    await using database = await createTestDatabase(server);
    const env = { DATABASE_URL: database.url, PLANTSTORE_TOKEN: TEST_TOKEN };
    await using fleet = new Fleet(server, database.url, env);
    const services = await fleet.start(INSTANCES);
    const { stdout } = await runCommand(["token", "create", "--name", "shop"], env);
    const token = stdout.trim();
    for (const { started } of services) expect(await readStatus(started.url, token)).toBe(200);
    // Used without a pause, so that each instance has seen it a moment before it is revoked.
    const refusals = services.map(async ({ started }) => {
      while ((await readStatus(started.url, token)) === 200) await Bun.sleep(10);
      return { atMs: performance.now(), status: await readStatus(started.url, token) };
    });
    const revokingAtMs = performance.now();
    expect((await runCommand(["token", "revoke", "shop"], env)).exitCode).toBe(0);
    const revokedAtMs = performance.now();
    for (const { atMs, status } of await Promise.all(refusals)) {
      expect(status).toBe(401);
      expect(atMs).toBeWithin(revokingAtMs, revokedAtMs + REVOKED_SECONDS_MAX * 1_000);
    }
  },
  TEST_MS_MAX,
);

async function readStatus(url: string, token = ""): Promise<number> {
  const response = await fetch(`${url}/plants`, { headers: { authorization: `Bearer ${token}` } });
  await response.bytes();
  return response.status;
}
