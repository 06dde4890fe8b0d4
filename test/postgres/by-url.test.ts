/** The contract suite on a server of the tester's own, as docs/scaling.md tells those with a compatible engine to run it. */

import { expect, test } from "bun:test";
import { join } from "node:path";
import { isLong } from "../support/long.ts";
import { sharedPostgres } from "../support/postgres-server.ts";
import { runSync } from "../support/processes.ts";

test.skipIf(!isLong)(
  "PLANTSTORE_TEST_URL runs the contract suite there, and leaves nothing",
  async () => {
    const server = await sharedPostgres();
    const PLANTSTORE_TEST_URL = `${server.url}?sslmode=disable`;
    const command = [process.execPath, "test", "test/contract/tags.test.ts"];
    const env = { ...process.env, PLANTSTORE_TEST_ENGINE: "postgres", PLANTSTORE_TEST_URL };
    const cwd = join(import.meta.dir, "../..");
    const { exitCode, stderr } = runSync(command, { cwd, env });
    const said = stderr.toString();
    expect(exitCode, said).toBe(0);
    expect(said).toMatch(/^ +[1-9]\d* pass$/m);
    expect(server.log()).toContain("CREATE DATABASE plantstore_test_");
    const left = "SELECT datname FROM pg_database WHERE datname LIKE 'plantstore_test_%'";
    expect(await server.run(left)).toEqual([]);
  },
);
