/** What is wrong with a change of plants, on every way in: a catalogued error each time, and nothing is changed. */

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  Client,
  type Filter,
  type PlantPatch,
  ServiceError,
  type Upsert,
} from "../../client/client.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { expectError, rejectionOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { call } from "../support/mcp.ts";
import { removeAll, send, type Sent, startShared, TEST_TOKEN } from "../support/service.ts";

const BODY_BYTES_MAX = 10_000;
const service = await startShared(limits({ bodyBytesMax: BODY_BYTES_MAX }));
const client = new Client(service.url, TEST_TOKEN);
const plants = [
  { id: 1n, name: "Rose", tag: "t" },
  { id: 2n, name: "Fern", tag: null },
];
const ASYNC = { prefer: "respond-async" };
const NDJSON = { "content-type": "application/x-ndjson" };

const newest = async (): Promise<number> =>
  (await service.store.readChanges({ after: 0, limit: 0 })).newest;
let before = 0;

beforeEach(async () => {
  await removeAll(service);
  await service.store.createPlants(
    plants.map((plant) => ({ ...plant, tag: plant.tag ?? undefined })),
  );
  before = await newest();
});

afterEach(async () => {
  expect(await service.readPlants()).toEqual(plants);
  expect(await newest()).toBe(before);
  expect(await service.store.listJobs()).toEqual([]);
});

const refuse = async (
  reason: ErrorName,
  method: string,
  path: string,
  sent?: Sent,
  says = "",
): Promise<void> => void (await expectError(await send(service, method, path, sent), reason, says));

/** Of a tool: its dry run refuses what it would refuse. */
async function refuseTool(reason: ErrorName, name: string, given: object): Promise<void> {
  const { code: error } = catalogue[reason];
  const runs = name === "patch_plant" ? [{}] : [{}, { dryRun: true }, { dryRun: false }];
  for (const run of runs)
    expect([name, run, await call(service, name, { ...given, ...run })]).toMatchObject([
      name,
      run,
      { isError: true, error },
    ]);
}

async function refuseCall(reason: ErrorName, result: Promise<unknown>): Promise<void> {
  const error = await rejectionOf(result);
  expect(error).toBeInstanceOf(ServiceError);
  expect(error).toMatchObject({ reason });
}

describe("a patch that is wrong", () => {
  test.each<[patch: unknown, says: string]>([
    [[], "expected an object"],
    [null, "expected an object"],
    [7, "expected an object"],
    ["name", "expected an object"],
    [{ id: 1 }, "id: expected nothing"],
    [{ id: 1, name: "x" }, "id: expected nothing"],
    [{ colour: "red" }, "unknown; allowed: name, tag"],
    [{ removed: true }, "unknown; allowed: name, tag"],
    [{ name: null }, "name: expected a string"],
    [{ name: 7, tag: [] }, "tag: expected a string, or null"],
    [{ tag: "\0" }, "tag: expected text without U+0000"],
  ])("%j", async (patch, says) => {
    const body = JSON.stringify(patch);
    for (const path of ["/plants/1", "/plants?tag=t", "/plants?tag=t&dry_run=true"])
      for (const headers of [{}, ASYNC])
        await refuse("invalid_body", "PATCH", path, { body, headers }, says);
    for (const [name, given] of [
      ["patch_plant", { id: "1" }],
      ["change_plants", { tag: "t" }],
    ] as const)
      await refuseTool("invalid_body", name, { ...given, patch });
    const given = patch as PlantPatch;
    await refuseCall("invalid_body", client.patch(1n, given));
    await refuseCall("invalid_body", client.previewPatch({ tag: "t" }, given));
    await refuseCall("invalid_body", client.patchMatching({ tag: "t" }, given));
  });
});

describe("a line that is wrong", () => {
  test.each<[members: object, isRefusedByClient: boolean]>([
    [{ name: "x", removed: false }, true],
    [{ name: "x", removed: "true" }, true],
    [{ removed: false }, true],
    [{ removed: true, ifMatch: "abc" }, true],
    [{ removed: true, ifMatch: "" }, true],
    [{ name: "x", ifMatch: "abc" }, true],
    [{ name: "x", ifMatch: 7 }, true],
    [{ name: "x", ifMatch: null }, true],
    // The client sends no name with a removal.
    [{ name: "x", removed: true }, false],
    [{ tag: "x", removed: true }, false],
  ])("%j", async (members, isRefusedByClient) => {
    const line = JSON.stringify({ id: 1, ...members });
    const body = `[${line}]`;
    for (const query of ["", "?upsert=true"])
      for (const sent of [{ body }, { body: line, headers: NDJSON }]) {
        const response = await send(service, "POST", `/plants/batch${query}`, sent);
        const [result] = [await response.json()].flat() as object[];
        expect(result).toMatchObject({ status: 400, error: catalogue.invalid_plant.code });
      }
    for (const query of ["?atomic=true", "?atomic=true&upsert=true"])
      for (const sent of [{ body }, { body: line, headers: NDJSON }])
        await refuse("invalid_plant", "POST", `/plants/batch${query}`, sent, "line 1: ");
    for (const upsert of [true, false])
      for (const atomic of [true, false])
        await refuseTool("invalid_body", "write_plants", {
          writes: [{ id: "1", ...members }],
          upsert,
          atomic,
        });
    if (!isRefusedByClient) return;
    const write = { id: 1n, ...members } as unknown as Upsert;
    await refuseCall("invalid_plant", client.writeAtomic([write], { upsert: true }));
    const outcomes: unknown[] = [];
    await client.upsertBatch([write], (_, outcome) => void outcomes.push(outcome));
    expect(outcomes).toMatchObject([{ reason: "invalid_plant" }]);
  });
});

describe("no filter", () => {
  test.each<Filter>([
    {},
    { name: "" },
    { q: " " },
    { q: "", name: "" },
    // Accents are ignored, so these have no word.
    { q: "\u0301" },
    { q: "\u034f \u0308\u0301\u00a0\ufeff\u0345", name: "" },
  ])("%j", async (filter) => {
    const query = `?${new URLSearchParams(filter as Record<string, string>).toString()}`;
    for (const dry of ["", "&dry_run=true", "&dry_run=false"])
      for (const headers of [{}, ASYNC]) {
        const path = `/plants${query}${dry}`;
        await refuse("invalid_query", "PATCH", path, { body: '{"name":"x"}', headers });
        // The filter is refused before the body is read.
        await refuse("invalid_query", "PATCH", path, { body: "[", headers });
        await refuse("invalid_query", "DELETE", path, { headers });
      }
    await refuseTool("invalid_query", "change_plants", { ...filter, patch: { name: "x" } });
    await refuseTool("invalid_query", "remove_plants", filter);
    const patch = { name: "x" };
    await refuseCall("invalid_query", client.previewPatch(filter, patch));
    await refuseCall("invalid_query", client.patchMatching(filter, patch));
    await refuseCall("invalid_query", client.previewRemoval(filter));
    await refuseCall("invalid_query", client.removeMatching(filter));
  });
});

describe("a batch name that is wrong", () => {
  test.each(["", "a\nb", "x".repeat(1_000)])("%j", async (batch) => {
    const named = `batch=${encodeURIComponent(batch)}`;
    const body = '{"name":"x"}';
    for (const headers of [{}, ASYNC]) {
      await refuse("invalid_query", "PATCH", `/plants?tag=t&${named}`, { body, headers });
      await refuse("invalid_query", "DELETE", `/plants?tag=t&${named}`, { headers });
      await refuse("invalid_query", "DELETE", `/plants?tag=t&dry_run=true&${named}`, { headers });
      const revert = { body: '{"batch":"b"}', headers };
      await refuse("invalid_query", "POST", `/changes/revert?${named}`, revert);
    }
    await refuse("invalid_query", "PATCH", `/plants/1?${named}`, { body });
    for (const atomic of [true, false]) {
      const path = `/plants/batch?upsert=true&atomic=${atomic}&${named}`;
      await refuse("invalid_query", "POST", path, { body: '[{"id":1,"removed":true}]' });
    }
    await refuse("invalid_query", "DELETE", `/jobs?${named}`);
    await refuseTool("invalid_body", "change_plants", { tag: "t", patch: { name: "x" }, batch });
    await refuseTool("invalid_body", "remove_plants", { tag: "t", batch });
    await refuseTool("invalid_body", "write_plants", { writes: [{ id: "1", name: "x" }], batch });
    await refuseTool("invalid_body", "patch_plant", { id: "1", patch: { name: "x" }, batch });
    await refuseCall("invalid_query", client.patchMatching({ tag: "t" }, { name: "x" }, { batch }));
    await refuseCall("invalid_query", client.removeMatching({ tag: "t" }, { batch }));
    await refuseCall("invalid_query", client.writeAtomic([{ id: 1n, removed: true }], { batch }));
  });
});

test("an atomic batch beyond the limit of a body is refused, packed or not, as an array and as lines", async () => {
  const line = JSON.stringify({ id: 3, name: "x".repeat(BODY_BYTES_MAX / 2) });
  for (const [body, headers] of [
    [`[{"id":1,"removed":true},${line},${line}]`, {}],
    [`{"id":1,"removed":true}\n${line}\n${line}\n`, NDJSON],
  ] as const) {
    const packed = {
      body: Bun.gzipSync(body),
      headers: { ...headers, "content-encoding": "gzip" },
    };
    for (const query of ["atomic=true", "atomic=true&upsert=true"])
      for (const sent of [{ body, headers }, packed])
        await refuse("body_too_large", "POST", `/plants/batch?${query}`, sent);
  }
  const writes = [1n, 3n, 4n].map((id) => ({ id, name: "x".repeat(BODY_BYTES_MAX / 2) }));
  await refuseCall("body_too_large", client.writeAtomic(writes, { upsert: true }));
});

test("a dry run is never a job", async () => {
  const body = '{"name":"x"}';
  for (const [method, sent] of [
    ["PATCH", { body, headers: ASYNC }],
    ["DELETE", { headers: ASYNC }],
  ] as const) {
    const response = await send(service, method, "/plants?tag=t&dry_run=true", sent);
    expect([response.status, response.headers.get("preference-applied")]).toEqual([200, null]);
    expect(await response.json()).toMatchObject({ plants: 1, exact: true });
  }
});
