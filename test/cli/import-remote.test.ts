/** plantstore import --url: through a running service, past its restarts and its refusals. */

import { expect, test } from "bun:test";
import { type Finished, runCommand, spawnService, startCommand } from "../support/command.ts";
import { importPrints } from "../support/expect.ts";
import { lines, makeWorkplace } from "../support/folder.ts";
import { grantToken, startService, TEST_TOKEN } from "../support/service.ts";
import { countPlants, readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";

const token = { PLANTSTORE_TOKEN: TEST_TOKEN };

/** Interrupts an import whose first request has been answered; it gets that answer afterwards, or never. */
async function interruptImport(
  count: number,
  answer: (request: Request) => Promise<Response>,
  { isSent }: { isSent: boolean },
): Promise<Finished> {
  using at = makeWorkplace({ "plants.ndjson": lines(1, count) });
  const answered = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  let requests = 0;
  using server = Bun.serve({
    port: 0,
    idleTimeout: 30,
    fetch: async (request) => {
      if (requests++ > 0) return new Promise<never>(() => undefined);
      const response = await answer(request);
      answered.resolve();
      await released.promise;
      return response;
    },
  });
  const args = ["import", at.file("plants.ndjson"), "--url", server.url.origin];
  const command = startCommand(args, token);
  await answered.promise;
  command.kill("SIGINT");
  await Bun.sleep(200);
  if (isSent) released.resolve();
  return await command.finished;
}

test("import and export --url to another machine are compressed, and to this one are not", async () => {
  await using service = await startService();
  using at = makeWorkplace({ "plants.ndjson": lines(1, 500) });
  const seen = new Set<string>();
  using proxy = Bun.serve({
    hostname: "0.0.0.0",
    port: 0,
    fetch: async ({ method, url, headers, body }) => {
      const { pathname, search } = new URL(url);
      const answer = await fetch(`${service.url}${pathname}${search}`, {
        method,
        headers,
        body: method === "POST" ? body : null,
        decompress: false,
      } as RequestInit);
      if (pathname === "/plants/batch") seen.add(`sent ${headers.get("content-encoding")}`);
      else if (search === "") seen.add(`got ${answer.headers.get("content-encoding")}`);
      return answer;
    },
  });
  // Not a loopback address, although it leads here.
  for (const host of ["0.0.0.0", "127.0.0.1"]) {
    const url = ["--url", `http://${host}:${proxy.port}`];
    const imported = await runCommand(["import", at.file("plants.ndjson"), ...url], token);
    expect(imported.exitCode).toBe(0);
    const exported = await runCommand(["export", ...url], token);
    expect(exported.stdout).toBe(lines(1, 500));
  }
  expect([...seen].filter((each) => each.startsWith("sent"))).toEqual(["sent gzip", "sent null"]);
  expect([...seen].filter((each) => each.startsWith("got"))).toContain("got zstd");
});

test("import --url stores through a running service, and refuses what it refuses", async () => {
  await using service = await startService();
  using at = makeWorkplace({
    "plants.csv": `id,name,tag\n1,a,x\n2,b,""\n1,other,\nx,c,\n${"3,c,\n".repeat(3_000)}`,
  });
  const rejects = at.file("rejects.csv");
  const args = ["import", at.file("plants.csv"), "--url", `${service.url}/`];
  expect(await runCommand([...args, "--rejects", rejects], token)).toEqual({
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
  for (const [PLANTSTORE_TOKEN, says] of [
    ["sixteen-letters-and-more", "The bearer token is malformed"],
    [await grantToken(service, ["plants:read"]), "The token lacks the scope plants:write."],
  ] as const) {
    const { exitCode, stderr } = await runCommand(args, { PLANTSTORE_TOKEN });
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`does not accept the token: ${says}`);
    expect(stderr).toContain("0 plants are known to be stored");
    const removal = ["remove", "--tag", "t", "--yes", "--url", service.url];
    const refused = await runCommand(removal, { PLANTSTORE_TOKEN });
    expect(refused.stderr).toMatch(/^plantstore: .+ does not accept the token: .+\n$/);
  }
  expect(readPlants(service.database.path)).toEqual([]);
});

test("an address where nothing listens, or another service, fails at once", async () => {
  using at = makeWorkplace({ "plants.ndjson": lines(1, 1) });
  const importTo = (url: string | URL): Promise<Finished> =>
    runCommand(["import", at.file("plants.ndjson"), "--url", String(url)], token);
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

test("import --url resumes after the service was killed and restarted", async () => {
  using at = makeWorkplace();
  const env = { ...at.env, ...token };
  await using first = await spawnService(env);
  const { url } = first.started;
  const command = startCommand(["import", "-", "--format", "ndjson", "--url", url], token);
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
  // The answer to the first hundred may have died with the service.
  expect(stdout).toMatch(/^created (300, replayed 0|200, replayed 100), refused 0\n$/);
  expect(second.started.url).toBe(url);
  expect(countPlants(at.store)).toBe(300);
});

// The last ones wait for the most part.
test.concurrent("on SIGINT it counts what the request under way has stored", async () => {
  await using service = await startService();
  const forward = async (request: Request): Promise<Response> => {
    const { method, headers } = request;
    const body = await request.text();
    const stored = await fetch(`${service.url}/plants/batch`, { method, headers, body });
    const type = { "content-type": "application/x-ndjson" };
    return new Response(await stored.text(), { headers: type });
  };
  const finished = await interruptImport(5_000, forward, { isSent: true });
  const stored = countPlants(service.database.path);
  expect(stored).toBeGreaterThan(0);
  expect(finished).toEqual({
    exitCode: 130,
    stdout: `created ${stored}, replayed 0, refused 0\n`,
    stderr: importPrints(
      "",
      `plantstore: interrupted. ${stored} plants are known to be stored. Running it again is safe.\n`,
    ),
  });
});

test.concurrent("on SIGINT it does not wait for an answer that does not come", async () => {
  const take = async (request: Request) => new Response(await request.text());
  expect(await interruptImport(3, take, { isSent: false })).toEqual({
    exitCode: 130,
    stdout: "created 0, replayed 0, refused 0\n",
    stderr: "plantstore: interrupted. 0 plants are known to be stored. Running it again is safe.\n",
  });
});
