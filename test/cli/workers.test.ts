/** plantstore serve --workers: several threads share a port among themselves, and with nobody else. */

import { describe, expect, test } from "bun:test";
import { runCommand, spawnService } from "../support/command.ts";
import { failure } from "../support/expect.ts";
import { makeWorkplace } from "../support/folder.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { findFreePort } from "../support/postgres-files.ts";

const isLinux = process.platform === "linux";
const token = { PLANTSTORE_TOKEN: TEST_TOKEN };
const fern = { id: 1n, name: "fern", tag: null };

/** Sends the same plant until a service listens; that service has to answer. */
async function createWhenListening(url: string): Promise<number> {
  for (;;)
    try {
      return (await sendPlant(url, fern)).status;
    } catch {
      await Bun.sleep(1);
    }
}

describe.skipIf(!isLinux)("several threads", () => {
  async function expectPortInUse(port: number, workers: string): Promise<void> {
    using at = makeWorkplace();
    const args = ["serve", "--workers", workers, "--port", String(port)];
    const says = `Port ${port} of 127.0.0.1 is in use.`;
    expect(await runCommand(args, at.env)).toEqual(failure(1, says));
  }

  test("are refused a port that somebody else has, and let no second service have theirs", async () => {
    using other = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
    await expectPortInUse(other.port as number, "2");
    using at = makeWorkplace();
    await using service = await spawnService({ ...at.env, PLANTSTORE_WORKERS: "2" });
    const port = Number(new URL(service.started.url).port);
    for (const workers of ["1", "2"]) await expectPortInUse(port, workers);
  });

  test("answer what comes as soon as they listen, before that is announced", async () => {
    for (let start = 0; start < 3; start++) {
      using at = makeWorkplace();
      const port = findFreePort();
      const settings = { PLANTSTORE_WORKERS: "2", PORT: String(port) };
      const starting = spawnService({ ...token, ...at.env, ...settings });
      const status = await createWhenListening(`http://127.0.0.1:${port}`);
      await using service = await starting;
      expect([service.started.url, status]).toEqual([`http://127.0.0.1:${port}`, 200]);
    }
  });
});

test.skipIf(isLinux)(
  "--workers 2 is refused where the system does not spread connections",
  async () => {
    const finished = await runCommand(["serve", "--workers", "2"]);
    expect(finished).toEqual(failure(2, "on Linux only"));
  },
);
