/** plantstore import --url: through a running service, past its restarts and its refusals. */

import { describe, expect, test } from "bun:test";
import { runCommand, spawnService, startCommand } from "./support/command.ts";
import { importPrints } from "./support/expect.ts";
import { lines, makeWorkplace } from "./support/folder.ts";
import { grantToken, startService, TEST_TOKEN } from "./support/service.ts";
import { countPlants, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

describe("plantstore import --url", () => {
  test("stores through a running service, and refuses what it refuses", async () => {
    await using service = await startService();
    using at = makeWorkplace({
      "plants.csv": `id,name,tag\n1,a,x\n2,b,""\n1,other,\nx,c,\n${"3,c,\n".repeat(3_000)}`,
    });
    const rejects = at.file("rejects.csv");
    const finished = await runCommand(
      ["import", at.file("plants.csv"), "--url", `${service.url}/`, "--rejects", rejects],
      { PLANTSTORE_TOKEN: TEST_TOKEN },
    );
    expect(finished).toEqual({
      exitCode: 3,
      stdout: "created 3, replayed 2999, refused 2\n",
      stderr: importPrints(""),
    });
    expect(await Bun.file(rejects).text()).toBe(
      "line,reason,id,name,tag\n" +
        '4,"A different plant has the id 1; nothing was changed. (error 3001)",1,other,\n' +
        '5,"The id is not a whole number: ""x"". (error 1003)",x,c,\n',
    );
    expect(readPlants(service.database.path)).toEqual([
      { id: 1n, name: "a", tag: "x" },
      { id: 2n, name: "b", tag: "" },
      { id: 3n, name: "c", tag: null },
    ]);
  });

  test("a token that is not accepted, or may not write, fails at once", async () => {
    await using service = await startService();
    using at = makeWorkplace({ "plants.ndjson": lines(1, 1) });
    const args = ["import", at.file("plants.ndjson"), "--url", service.url];
    const unknown = await runCommand(args, { PLANTSTORE_TOKEN: "sixteen-letters-and-more" });
    expect(unknown.exitCode).toBe(1);
    expect(unknown.stderr).toContain("does not accept the token: The bearer token is malformed");
    const reader = await grantToken(service, ["plants:read"]);
    const forbidden = await runCommand(args, { PLANTSTORE_TOKEN: reader });
    expect(forbidden.exitCode).toBe(1);
    expect(forbidden.stderr).toContain(
      "does not accept the token: The token lacks the scope plants:write.",
    );
    expect(forbidden.stderr).toContain("0 plants are known to be stored");
    expect(readPlants(service.database.path)).toEqual([]);
  });

  test("an address where nothing listens, or another service, fails at once", async () => {
    using at = makeWorkplace({ "plants.ndjson": lines(1, 1) });
    const env = { PLANTSTORE_TOKEN: TEST_TOKEN };
    const importTo = (url: string | URL): ReturnType<typeof runCommand> =>
      runCommand(["import", at.file("plants.ndjson"), "--url", String(url)], env);
    expect((await importTo("http://127.0.0.1:1")).stderr).toContain("cannot be reached");
    expect((await importTo("http://plants.invalid:8080/base")).stderr).toStartWith(
      "plantstore: http://plants.invalid:8080/base cannot be reached: there is no host plants.invalid.\n",
    );
    const seen: (string | null)[] = [];
    using elsewhere = Bun.serve({
      port: 0,
      fetch: (request) => {
        seen.push(request.headers.get("authorization"));
        return new Response("hello");
      },
    });
    expect((await importTo(elsewhere.url)).stderr).toContain("does not answer as a plant store");
    using moved = Bun.serve({ port: 0, fetch: () => Response.redirect(`${elsewhere.url.href}x`) });
    const finished = await importTo(moved.url);
    expect(finished.exitCode).toBe(1);
    expect(finished.stderr).toContain(`refers to ${elsewhere.url.href}x`);
    // The token has not been carried to where the answer pointed.
    expect(seen).toEqual([`Bearer ${TEST_TOKEN}`]);
  });

  test("goes on where it was when the service is killed and started again", async () => {
    using at = makeWorkplace();
    const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN };
    await using first = await spawnService(env);
    const { url } = first.started;
    const command = startCommand(["import", "-", "--format", "ndjson", "--url", url], {
      PLANTSTORE_TOKEN: TEST_TOKEN,
    });
    await command.write(lines(1, 100));
    await until("100 plants are stored", () => countPlants(at.store) === 100);
    first.kill("SIGKILL");
    await first.exited;
    await command.write(lines(101, 100));
    await until("it tries again", () => command.stderr().includes("Trying again"));
    await using second = await spawnService({ ...env, PORT: new URL(url).port });
    await command.write(lines(201, 100));
    await command.end();
    const { exitCode, stdout, stderr } = await command.finished;
    expect(exitCode).toBe(0);
    expect(stderr).toContain("Trying again in");
    // Of the first hundred, the answer may have died with the service.
    expect(stdout).toMatch(/^created (300, replayed 0|200, replayed 100), refused 0\n$/);
    expect(second.started.url).toBe(url);
    expect(countPlants(at.store)).toBe(300);
  });

  // The last ones wait for the most part.
  test.concurrent("on SIGINT counts what the request under way has stored", async () => {
    await using service = await startService();
    using at = makeWorkplace({ "plants.ndjson": lines(1, 5_000) });
    const arrived = Promise.withResolvers<undefined>();
    const interrupted = Promise.withResolvers<undefined>();
    // Holds an answer back until the command has been interrupted, and gives no other.
    using slow = Bun.serve({
      port: 0,
      fetch: async (request) => {
        const body = await request.text();
        if (Bun.peek.status(arrived.promise) === "fulfilled")
          return new Promise<never>(() => undefined);
        const { method, headers } = request;
        const answer = await fetch(`${service.url}/plants/batch`, { method, headers, body });
        const results = await answer.text();
        arrived.resolve(undefined);
        await interrupted.promise;
        return new Response(results, { headers: { "content-type": "application/x-ndjson" } });
      },
    });
    const args = ["import", at.file("plants.ndjson"), "--url", slow.url.origin];
    const command = startCommand(args, { PLANTSTORE_TOKEN: TEST_TOKEN });
    await arrived.promise;
    command.kill("SIGINT");
    await Bun.sleep(200);
    interrupted.resolve(undefined);
    const { exitCode, stdout, stderr } = await command.finished;
    const stored = countPlants(service.database.path);
    expect(stored).toBeGreaterThan(0);
    expect({ exitCode, stdout, stderr }).toEqual({
      exitCode: 130,
      stdout: `created ${stored}, replayed 0, refused 0\n`,
      stderr: importPrints(
        "",
        `plantstore: interrupted. ${stored} plants are known to be stored. Running it again is safe.\n`,
      ),
    });
  });

  test.concurrent("on SIGINT does not wait for an answer that does not come", async () => {
    using at = makeWorkplace({ "plants.ndjson": lines(1, 3) });
    const arrived = Promise.withResolvers<undefined>();
    using silent = Bun.serve({
      port: 0,
      idleTimeout: 30,
      fetch: async (request) => {
        await request.text();
        arrived.resolve(undefined);
        return new Promise<never>(() => undefined);
      },
    });
    const args = ["import", at.file("plants.ndjson"), "--url", silent.url.origin];
    const command = startCommand(args, { PLANTSTORE_TOKEN: TEST_TOKEN });
    await arrived.promise;
    command.kill("SIGINT");
    expect(await command.finished).toEqual({
      exitCode: 130,
      stdout: "created 0, replayed 0, refused 0\n",
      stderr:
        "plantstore: interrupted. 0 plants are known to be stored. Running it again is safe.\n",
    });
  });
});
