/** Prefer: respond-async: the service finishes a bulk change without its client, and any service of the store knows it. */

import { describe, expect, test } from "bun:test";
import type { Job } from "../../src/domain/job.ts";
import { catalogue, Refusal } from "../../src/domain/errors.ts";
import { describeApi } from "../../src/http/description.ts";
import { openStoreAt } from "../support/database.ts";
import { expectError } from "../support/expect.ts";
import { makeJob } from "../support/job.ts";
import { limits } from "../support/limits.ts";
import { call, listTools } from "../support/mcp.ts";
import {
  bearer,
  getJson,
  grantToken,
  send,
  startService,
  storePlants,
  type TestService,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const NDJSON = "application/x-ndjson";
const ASYNC = { prefer: "respond-async" };

interface Shown {
  readonly batch: string;
  readonly kind: string;
  readonly by: string;
  readonly state: string;
  readonly report: Readonly<Record<string, unknown>>;
  readonly left: readonly object[];
}

const start = (to: TestService, method: string, query: string, headers = {}, body?: string) =>
  send(to, method, `/plants${query}`, {
    headers: { ...ASYNC, ...headers },
    ...(body === undefined ? {} : { body }),
  });

async function accept(...given: Parameters<typeof start>): Promise<Shown> {
  let response = await start(...given);
  // The rate of a slow token may allow no request yet.
  while (response.status === 429) {
    await Bun.sleep(20);
    response = await start(...given);
  }
  expect([response.status, response.headers.get("preference-applied")]).toEqual([
    202,
    "respond-async",
  ]);
  return (await response.json()) as Shown;
}

const list = (from: TestService, query = ""): Promise<Shown[]> => getJson(from, `/jobs${query}`);
const find = async (from: TestService, batch: string): Promise<Shown | undefined> =>
  (await list(from, `?batch=${encodeURIComponent(batch)}`))[0];
const stop = (at: TestService, batch: string): Promise<Response> =>
  send(at, "DELETE", `/jobs?batch=${encodeURIComponent(batch)}`);

async function untilEnded(from: TestService, batch: string): Promise<Shown> {
  await until(`${batch} has ended`, async () => (await find(from, batch))?.state === "ended");
  return (await find(from, batch)) as Shown;
}

/** A rate makes it write a few plants at a time. */
const grantSlow = async (to: TestService, rate = "100/s") =>
  bearer(await grantToken(to, ["plants:read", "plants:write"], { rate }));

const countLeft = async ({ readPlants }: TestService): Promise<number> =>
  (await readPlants()).filter(({ name }) => name.startsWith("n")).length;

const untilBegun = (own: TestService): Promise<void> =>
  until("it has begun", async () => (await own.store.findPlant(0n)) === undefined);

describe("a request with respond-async", () => {
  test("is answered at once, and finished without its client", async () => {
    await using own = await startService();
    await storePlants(own, 100);
    // Slow enough for a busy machine to be in time with its own write.
    const slow = await grantSlow(own, "20/s");
    const job = await accept(own, "PATCH", "?name=n&batch=b", slow, '{"tag":"t"}');
    expect(job).toMatchObject({ batch: "b", kind: "change", state: "running", left: [] });
    expect(job.report).toMatchObject({ batch: "b", complete: false });
    await until("it has begun", async () => (await own.store.findPlant(0n))?.tag === "t");
    await own.store.replacePlant({ id: 99n, name: "n, theirs", tag: undefined }, {});
    const ended = await untilEnded(own, "b");
    expect(ended.report).toEqual({
      plants: 100,
      replaced: 99,
      removed: 0,
      unchanged: 0,
      changedSince: 1,
      refused: 0,
      batch: "b",
      complete: true,
    });
    expect(ended.left).toEqual([
      {
        id: 99,
        status: 412,
        error: catalogue.precondition_failed.code,
        message: expect.any(String),
      },
    ]);
    expect((await own.store.countPlants({ tag: "t" })).count).toBe(99);
    const revert = await send(own, "POST", "/changes/revert", {
      body: '{"batch":"b"}',
      headers: ASYNC,
    });
    expect(revert.status).toBe(202);
    const { batch } = (await revert.json()) as Shown;
    expect((await untilEnded(own, batch)).report).toMatchObject({ reverted: 99, complete: true });
    expect((await own.store.countPlants({ tag: "t" })).count).toBe(0);
    expect((await list(own)).map(({ kind }) => kind)).toEqual(["change", "revert"]);
  });

  test("shows progress about every second", async () => {
    await using own = await startService();
    await storePlants(own, 400);
    await accept(own, "DELETE", "?name=n&batch=b", await grantSlow(own));
    await until("there is progress", async () => {
      const { removed } = (await find(own, "b"))?.report ?? {};
      return Number(removed) > 0 && Number(removed) < 400;
    });
    expect((await untilEnded(own, "b")).report).toMatchObject({ removed: 400, complete: true });
  });

  test("keeps its name to itself while it runs", async () => {
    await using own = await startService();
    await storePlants(own, 300);
    const slow = await grantSlow(own);
    await accept(own, "DELETE", "?name=n&batch=b", slow);
    await untilBegun(own);
    expect(await accept(own, "DELETE", "?name=n&batch=b", slow)).toMatchObject({
      state: "running",
    });
    await expectError(await start(own, "DELETE", "?tag=n&batch=b"), "job_running");
    await expectError(await start(own, "DELETE", "?name=n&batch=b"), "job_running");
    const revert = { body: '{"batch":"x"}', headers: ASYNC };
    await expectError(await send(own, "POST", "/changes/revert?batch=b", revert), "job_running");
    const plain = await send(own, "PATCH", "/plants?name=n&batch=b", { body: '{"tag":"t"}' });
    await expectError(plain, "job_running");
    expect(await list(own)).toHaveLength(1);
    expect((await untilEnded(own, "b")).report).toMatchObject({ removed: 300, complete: true });
    // An ended one does not keep its name.
    await accept(own, "DELETE", "?name=n&batch=b");
    expect((await untilEnded(own, "b")).report).toMatchObject({ plants: 0, complete: true });
  });

  test("keeps its name from every request that may have one, at every service", async () => {
    // It runs for as long as its record says so.
    await using own = await startService(limits({ jobLostSeconds: 600 }));
    await using other = await startService({
      ...limits({ jobLostSeconds: 600 }),
      DATABASE_URL: own.database.url,
    });
    await own.store.createPlant({ id: 1n, name: "n", tag: undefined });
    const running = makeJob("run/1");
    await own.store.putJob(running, undefined);
    const { newest } = await own.store.readChanges({ after: 0, limit: 0 });

    const json = (body: string) => ({ body });
    const lines = { body: '{"id":2,"name":"x"}\n', headers: { "content-type": NDJSON } };
    const plant = '{"id":2,"name":"x"}';
    const sent: Readonly<Record<string, readonly object[]>> = {
      "POST /plants": [json(plant)],
      "PUT /plants/{id}": [json('{"name":"x"}')],
      "PATCH /plants/{id}": [json('{"name":"x"}')],
      "DELETE /plants/{id}": [{}],
      "PATCH /plants": [json('{"name":"x"}'), { ...json('{"name":"x"}'), headers: ASYNC }],
      "DELETE /plants": [{}, { headers: ASYNC }],
      "POST /plants/batch": [json(`[${plant}]`), lines],
      "POST /changes/revert": [json('{"from":1}'), { ...json('{"from":1}'), headers: ASYNC }],
    };
    const more: Readonly<Record<string, readonly string[]>> = {
      "PATCH /plants": ["all=true", "name=n"],
      "DELETE /plants": ["all=true", "name=n"],
      "POST /plants/batch": ["", "upsert=true", "atomic=true"],
    };
    const { paths } = describeApi(own.config) as { paths: Record<string, Record<string, object>> };
    const named = Object.entries(paths).flatMap(([path, operations]) =>
      Object.entries(operations)
        .filter(([method]) => /^(post|put|patch|delete)$/.test(method) && path !== "/jobs")
        .filter(([, operation]) =>
          JSON.stringify(operation).includes('"name":"batch","in":"query"'),
        )
        .map(([method]) => `${method.toUpperCase()} ${path}`),
    );
    expect(Object.keys(sent).toSorted()).toEqual(named.toSorted());

    const id = "1";
    const given: Readonly<Record<string, object>> = {
      create_plant: { id: "2", name: "x" },
      replace_plant: { id, name: "x" },
      patch_plant: { id, patch: { name: "x" } },
      remove_plant: { id },
      write_plants: { writes: [{ id: "2", name: "x" }], dryRun: false },
      change_plants: { name: "n", patch: { name: "x" }, dryRun: false },
      remove_plants: { all: true, dryRun: false },
    };
    const tools = (await listTools(own))
      // That one selects the changes of a batch.
      .filter(({ name }) => name !== "revert_changes")
      .filter(({ inputSchema }) => "batch" in (inputSchema.properties ?? {}));
    expect(tools.map(({ name }) => name).toSorted()).toEqual(Object.keys(given).toSorted());

    const { code } = catalogue.job_running;
    for (const service of [own, other]) {
      for (const [at, requests] of Object.entries(sent))
        for (const request of requests)
          for (const query of more[at] ?? [""]) {
            const [method = "", path = ""] = at.replace("{id}", id).split(" ");
            const refused = await send(service, method, `${path}?batch=b&${query}`, request);
            await expectError(refused, "job_running");
          }
      for (const [tool, input] of Object.entries(given))
        for (const also of tool === "write_plants" ? [{}, { atomic: true }] : [{}])
          expect([tool, await call(service, tool, { ...input, ...also, batch: "b" })]).toEqual([
            tool,
            expect.objectContaining({ isError: true, error: code }),
          ]);
      // What writes nothing needs no name.
      expect((await send(service, "DELETE", "/plants?name=n&batch=b&dry_run=true")).status).toBe(
        200,
      );
      const dry = json('[{"id":1,"name":"x"}]');
      const path = "/plants/batch?batch=b&dry_run=true";
      expect((await send(service, "POST", path, dry)).status).toBe(200);
      expect(await call(service, "remove_plants", { name: "n", batch: "b" })).toMatchObject({
        plants: 1,
      });
    }
    expect((await own.store.readChanges({ after: 0, limit: 0 })).newest).toBe(newest);

    await own.store.putJob({ ...running, state: "ended", version: "run/2" }, running);
    for (const service of [own, other]) {
      const done = await send(service, "PATCH", "/plants?all=true&batch=b", json('{"tag":"t"}'));
      expect(await done.json()).toMatchObject({ batch: "b", complete: true });
    }
  });

  test("is refused if four run, also if all are started at once", async () => {
    // Threads that start jobs in the same moment may pass the limit.
    await using own = await startService({ PLANTSTORE_WORKERS: "1" });
    await storePlants(own, 900);
    const slow = await grantSlow(own, "300/s");
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        start(own, "PATCH", `?name=n&batch=new-${index}`, slow, `{"tag":"${index}"}`),
      ),
    );
    const isAccepted = ({ status }: Response): boolean => status === 202;
    for (const refused of answers.filter((each) => !isAccepted(each)))
      await expectError(refused, "jobs_full");
    const names = answers.flatMap((each, index) => (isAccepted(each) ? [`new-${index}`] : []));
    expect(names).toHaveLength(4);
    expect((await list(own)).map(({ batch }) => batch).toSorted()).toEqual(names);
    await expectError(await start(own, "DELETE", "?name=n"), "jobs_full");
    // A dry run needs no job.
    expect((await start(own, "DELETE", "?name=n&dry_run=true")).status).toBe(200);
  });

  test("is kept until 32 others follow", async () => {
    await using own = await startService();
    for (let index = 0; index < 34; index++) {
      await accept(own, "DELETE", `?tag=x&batch=b-${index}`);
      await untilEnded(own, `b-${index}`);
    }
    const names = (await list(own)).map(({ batch }) => batch);
    expect(names).toHaveLength(32);
    expect([names[0], names.at(-1)]).toEqual(["b-2", "b-33"]);
  });

  test.each(["return=minimal", 'note="a, respond-async"', "respond-asynchronously", "wait=5"])(
    "is not one with Prefer: %s",
    async (prefer) => {
      await using own = await startService();
      const response = await send(own, "DELETE", "/plants?name=n", { headers: { prefer } });
      expect([response.status, await list(own)]).toEqual([200, []]);
    },
  );

  test("has its faults answered at once", async () => {
    await using own = await startService();
    await storePlants(own, 3);
    await expectError(await start(own, "DELETE", ""), "invalid_query", "expected a filter");
    await expectError(await start(own, "PATCH", "?name=n", {}, '{"id":1}'), "invalid_body");
    const reader = bearer(await grantToken(own, ["plants:read"]));
    await expectError(await start(own, "DELETE", "?name=n", reader), "insufficient_scope");
    expect(await list(own)).toEqual([]);
    expect(await countLeft(own)).toBe(3);
  });
});

describe("an upsert batch with respond-async", () => {
  const sendBatch = (to: TestService, body: string, headers = {}, query = "?upsert=true&batch=b") =>
    send(to, "POST", `/plants/batch${query}`, { body, headers: { ...ASYNC, ...headers } });

  test("is finished without its client, each line only if its condition holds", async () => {
    await using own = await startService();
    await storePlants(own, 700);
    const { headers } = await send(own, "GET", "/plants/600");
    await own.store.replacePlant({ id: 600n, name: "n, theirs", tag: undefined }, {});
    const lines: object[] = Array.from({ length: 700 }, (_, id) => ({ id, removed: true }));
    lines[600] = { ...lines[600], ifMatch: headers.get("etag") };
    lines.push({ id: 1_000, name: "new" }, { id: 699, removed: true });
    lines.push({ id: 1_001, name: "x" }, { id: 1_001, name: "y" });
    const body = JSON.stringify(lines);
    const slow = await grantSlow(own, "400/s");
    const accepted = await sendBatch(own, body, slow);
    expect([accepted.status, accepted.headers.get("preference-applied")]).toEqual([
      202,
      "respond-async",
    ]);
    expect(await accepted.json()).toMatchObject({ batch: "b", kind: "upsert", state: "running" });
    // The same again is the same job, as soon as the rate of the token allows a request.
    const sendAgain = async () => (await sendBatch(own, body, slow)).status;
    await until("it is accepted", async () => (await sendAgain()) === 202);
    await expectError(await sendBatch(own, "[]"), "job_running");
    const { report, left } = await untilEnded(own, "b");
    expect(report).toEqual({
      plants: 704,
      created: 2,
      replaced: 1,
      removed: 699,
      unchanged: 1,
      changedSince: 1,
      refused: 0,
      batch: "b",
      complete: true,
    });
    expect(left).toMatchObject([{ id: 600, error: catalogue.precondition_failed.code }]);
    expect((await own.readPlants()).map(({ id, name }) => `${id} ${name}`)).toEqual([
      "600 n, theirs",
      "1000 new",
      "1001 y",
    ]);
    const revert = await send(own, "POST", "/changes/revert", { body: '{"batch":"b"}' });
    const reverted = Bun.JSONL.parse(await revert.text()).at(-1);
    expect(reverted).toMatchObject({ reverted: 701, complete: true });
    expect(await countLeft(own)).toBe(700);
  });

  test("is stopped at a commit, and sent again it does the rest", async () => {
    await using own = await startService({ PLANTSTORE_WORKERS: "1" });
    await storePlants(own, 600);
    const lines = Array.from({ length: 600 }, (_, id) => `{"id":${id},"removed":true}\n`).join("");
    const type = { "content-type": "application/x-ndjson" };
    const { store } = own;
    const writePlants = store.writePlants.bind(store);
    store.writePlants = async (...given) => {
      store.writePlants = writePlants;
      expect((await stop(own, "b")).status).toBe(200);
      return writePlants(...given);
    };
    expect((await sendBatch(own, lines, type)).status).toBe(202);
    const { code } = catalogue.job_stopped;
    const { report } = await untilEnded(own, "b");
    expect(report).toMatchObject({ complete: false, error: code });
    const rest = await countLeft(own);
    expect(report["removed"]).toBe(600 - rest);
    expect(rest).toBeGreaterThan(0);
    expect((await sendBatch(own, lines, type)).status).toBe(202);
    expect((await untilEnded(own, "b")).report).toMatchObject({
      removed: rest,
      unchanged: 600 - rest,
      complete: true,
    });
  });

  test("with a line that is wrong, or too large, is refused whole", async () => {
    await using own = await startService();
    const wrong = '[{"id":1,"name":"a"},{"id":2,"removed":false}]';
    await expectError(await sendBatch(own, wrong), "invalid_plant", "line 2: removed: expected");
    const large = `[{"id":1,"name":"${"x".repeat(1_048_576)}"}]`;
    await expectError(await sendBatch(own, large), "body_too_large");
    expect([await own.readPlants(), await list(own)]).toEqual([[], []]);
  });

  test("is no job if it is atomic, or only creates", async () => {
    await using own = await startService();
    for (const query of ["?atomic=true&upsert=true", ""]) {
      const answer = await sendBatch(own, '[{"id":1,"name":"a"}]', {}, query);
      expect([answer.status, answer.headers.get("preference-applied")]).toEqual([200, null]);
      await answer.text();
    }
    expect(await list(own)).toEqual([]);
  });
});

describe("a job", () => {
  test("is stopped at a commit, and sent again it does the rest", async () => {
    await using own = await startService();
    await storePlants(own, 300);
    const slow = await grantSlow(own);
    await accept(own, "DELETE", "?name=n&batch=b", slow);
    await untilBegun(own);
    const stopped = await stop(own, "b");
    expect([stopped.status, (await stopped.json()) as Shown]).toEqual([
      200,
      expect.objectContaining({ batch: "b", state: "stopping" }),
    ]);
    const { code, status } = catalogue.job_stopped;
    const ended = await untilEnded(own, "b");
    expect(ended.report).toMatchObject({ complete: false, error: code, status });
    const left = await countLeft(own);
    expect(ended.report["removed"]).toBe(300 - left);
    expect(left).toBeGreaterThan(0);
    // Stopping it again changes nothing.
    expect(await (await stop(own, "b")).json()).toEqual(ended);
    await accept(own, "DELETE", "?name=n&batch=b");
    expect((await untilEnded(own, "b")).report).toMatchObject({ removed: left, complete: true });
  });

  test("is stopped only by its name, with a token that may write", async () => {
    await using own = await startService();
    await accept(own, "DELETE", "?name=n&batch=b");
    await expectError(await stop(own, "c"), "job_not_found");
    await expectError(await send(own, "DELETE", "/jobs"), "invalid_query");
    await expectError(await send(own, "GET", "/jobs?state=ended"), "invalid_query");
    for (const scope of ["plants:read", "plants:write"] as const) {
      const headers = bearer(await grantToken(own, [scope]));
      const refused = await send(own, "DELETE", "/jobs?batch=b", { headers });
      await expectError(refused, "insufficient_scope");
    }
    const headers = bearer(await grantToken(own, ["plants:write"]));
    await expectError(await send(own, "GET", "/jobs", { headers }), "insufficient_scope");
    // Nor does it start what it could not follow.
    const started = send(own, "POST", "/plants/batch?upsert=true", {
      body: '[{"id":1,"name":"a"}]',
      headers: { ...ASYNC, ...headers },
    });
    await expectError(await started, "insufficient_scope");
  });

  test("can be stopped by another service on the store", async () => {
    await using own = await startService();
    await using other = await startService({ DATABASE_URL: own.database.url });
    await storePlants(own, 600);
    await accept(own, "DELETE", "?name=n&batch=b", await grantSlow(own));
    await untilBegun(own);
    expect(await find(other, "b")).toMatchObject({ batch: "b", state: "running" });
    await stop(other, "b");
    // From the answer on it changes nothing.
    const left = await countLeft(own);
    const { report } = await untilEnded(other, "b");
    expect(report).toMatchObject({ removed: 600 - left, refused: 0, complete: false });
    expect(await countLeft(own)).toBe(left);
    expect(left).toBeGreaterThan(0);
    expect((await untilEnded(own, "b")).report).toMatchObject({ complete: false });
  });

  test("ends with its token", async () => {
    await using own = await startService();
    await storePlants(own, 900);
    const slow = await grantSlow(own);
    await accept(own, "DELETE", "?name=n&batch=b", slow);
    await untilBegun(own);
    for (const { hash, rate } of await own.store.listTokens({ after: "", limit: 9 }))
      if (rate !== undefined) await own.store.revokeToken(hash, Date.now());
    const { code } = catalogue.token_invalid;
    expect((await untilEnded(own, "b")).report).toMatchObject({ complete: false, error: code });
    expect(await countLeft(own)).toBeGreaterThan(0);
  });

  test("ends at a commit when its service shuts down, which is on record", async () => {
    await using other = await startService();
    {
      await using own = await startService({ DATABASE_URL: other.database.url });
      await storePlants(own, 900);
      await accept(own, "DELETE", "?name=n&batch=b", await grantSlow(own));
      await untilBegun(own);
    }
    const { code } = catalogue.shutting_down;
    const job = (await find(other, "b")) as Shown;
    expect(job).toMatchObject({ state: "ended", report: { complete: false, error: code } });
    expect(job.report["removed"]).toBe(900 - (await countLeft(other)));
  });

  test("whose service was killed is lost until it is sent again", async () => {
    // Each thread finds out for itself.
    const settings = { ...limits({ jobLostSeconds: 0 }), PLANTSTORE_WORKERS: "1" };
    await using own = await startService(settings);
    await storePlants(own, 3);
    for (const [run, end] of [
      ["one", () => stop(own, "b")],
      // So does a write under its name.
      ["two", () => send(own, "PATCH", "/plants?name=n&batch=b", { body: '{"tag":"t"}' })],
    ] as const) {
      const killed = makeJob(`${run}/1`);
      await own.store.putJob(killed, await own.store.findJob("b"));
      await until("it is lost", async () => (await find(own, "b"))?.state === "lost");
      expect((await end()).status).toBe(200);
      // Its service may only stand still.
      const { code: error } = catalogue.job_stopped;
      const ended = { state: "ended", report: { plants: 1, complete: false, error } };
      expect(await find(own, "b")).toMatchObject(ended);
    }
    expect((await own.store.countPlants({ tag: "t" })).count).toBe(3);
    await accept(own, "DELETE", "?name=n&batch=b");
    expect((await untilEnded(own, "b")).report).toMatchObject({ removed: 3, complete: true });
  });

  test("that another one replaced, because it seemed lost, ends", async () => {
    await using own = await startService();
    await storePlants(own, 900);
    await accept(own, "DELETE", "?name=n&batch=b", await grantSlow(own));
    await untilBegun(own);
    await using store = await openStoreAt(own.database.url);
    let job: Job | undefined;
    do job = (await store.listJobs())[0];
    while (!(await store.putJob({ ...(job as Job), state: "ended", version: "other/1" }, job)));
    await until("it is logged", () => own.logLines.join("").includes("bulk_broken_off"));
    expect(await countLeft(own)).toBeGreaterThan(0);
    expect((await store.listJobs())[0]?.version).toBe("other/1");
  });

  test("lists at most 100 of the plants that it left alone", async () => {
    await using own = await startService({ PLANTSTORE_WORKERS: "1" });
    await storePlants(own, 150);
    own.store.writePlants = async (writes) => writes.map(() => new Refusal("precondition_failed"));
    await accept(own, "DELETE", "?name=n&batch=b");
    const { report, left } = await untilEnded(own, "b");
    expect(report).toMatchObject({ plants: 150, changedSince: 150, complete: true });
    expect(left).toHaveLength(100);
  });

  test("outlasts an outage of the store, also one in which an answer was lost", async () => {
    await using own = await startService({ PLANTSTORE_WORKERS: "1" });
    await storePlants(own, 30);
    const { store } = own;
    const writePlants = store.writePlants.bind(store);
    const readPlants = store.readPlants.bind(store);
    let [writes, reads] = [0, 0];
    store.writePlants = async (...given) => {
      const outcomes = await writePlants(...given);
      return writes++ < 2 ? outcomes.map(() => new Refusal("store_unavailable")) : outcomes;
    };
    store.readPlants = (...given) =>
      reads++ < 1 ? Promise.reject(new Refusal("store_down")) : readPlants(...given);
    await accept(own, "DELETE", "?name=n&batch=b");
    const { report, left } = await untilEnded(own, "b");
    expect(report).toMatchObject({ plants: 30, refused: 0, changedSince: 0, complete: true });
    expect([left, await countLeft(own)]).toEqual([[], 0]);
  });
});
