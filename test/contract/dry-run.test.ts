/** POST /plants/batch with dry_run: what each line would do, and nothing is changed. */

import { beforeEach, describe, expect, test } from "bun:test";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { expectError } from "../support/expect.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import {
  bearer,
  grantToken,
  readMetric,
  removeAll,
  send,
  startService,
  startShared,
} from "../support/service.ts";
import { batchHead, chunk, connectRaw } from "../support/wire.ts";

const service = await startShared();

const ROSE = '{"id":1,"name":"Rose","tag":"shrub"}';
const FERN = '{"id":4,"name":"Fern"}';

beforeEach(async () => {
  await removeAll(service);
  for (const plant of [ROSE, FERN]) await service.create(plant);
});

const ask = (query: string, body: string, headers = {}): Promise<Response> =>
  send(service, "POST", `/plants/batch?${query}`, {
    body,
    headers: { "content-type": "application/x-ndjson", ...headers },
  });

async function write(lines: readonly string[], query: string, headers = {}) {
  const response = await ask(query, lines.join("\n"), headers);
  expect(response.status).toBe(200);
  return parseLines(await response.text()) as Result[];
}

interface Result {
  readonly line: number;
  readonly status: number;
  readonly now?: object | undefined;
}

/** Only a dry run shows what it would replace or remove. */
const withoutPlants = (results: readonly Result[]): Result[] =>
  results.map((result) => ({ ...result, now: undefined }));

const lines = [
  ROSE,
  '{"id":1,"name":"Wild rose"}',
  '{"id":1,"name":"Wild rose"}',
  `{"id":1,"removed":true,"ifMatch":${JSON.stringify(entityTagOf(ROSE))}}`,
  `{"id":4,"removed":true,"ifMatch":${JSON.stringify(entityTagOf(FERN))}}`,
  '{"id":4,"removed":true}',
  '{"id":2,"name":"Tulip"}',
  '{"id":2,"removed":true}',
  '{"id":2,"name":"Tulip","tag":"bulb"}',
  '{"id":3}',
  "x",
];
const did = (name?: "replaced" | "removed" | "replayed", now?: object) => ({
  status: 200,
  ...(name !== undefined && { [name]: true }),
  ...(now !== undefined && { now }),
});
const [rose, fern, tulip] = [{ name: "Rose", tag: "shrub" }, { name: "Fern" }, { name: "Tulip" }];

describe("a dry run", () => {
  test.each([
    [
      "upsert=true",
      [
        did("replayed"),
        did("replaced", rose),
        did("replayed"),
        { status: 412 },
        did("removed", fern),
        did("replayed"),
        did(),
        did("removed", tulip),
        did(),
        { status: 400 },
        { status: 400 },
      ],
    ],
    [
      "batch=spring",
      [
        did("replayed"),
        { status: 409 },
        { status: 409 },
        did("removed", rose),
        did("removed", fern),
        { status: 404 },
        did(),
        did("removed", tulip),
        did(),
        { status: 400 },
        { status: 400 },
      ],
    ],
  ])("with %s answers as the batch does, and changes nothing", async (query, outcomes) => {
    const plants = await service.readPlants();
    const { newest } = await service.store.readChanges({ after: 0, limit: 0 });
    const dry = await write(lines, `dry_run=true&${query}`);
    expect(dry).toMatchObject(outcomes.map((outcome, index) => ({ line: index + 1, ...outcome })));
    expect(dry.map(({ now }) => now)).toEqual(
      outcomes.map((outcome) => ("now" in outcome ? outcome.now : undefined)),
    );
    const minimal = { prefer: "return=minimal" };
    const counts = await write(lines, `dry_run=true&${query}`, minimal);
    const array = await ask(`dry_run=true&${query}`, `[${lines.slice(0, -1).join(",")}]`, {
      "content-type": "application/json",
    });
    expect(await array.json()).toEqual(dry.slice(0, -1));
    expect(await service.readPlants()).toEqual(plants);
    expect((await service.store.readChanges({ after: 0, limit: 0 })).newest).toBe(newest);

    expect(await write(lines, `dry_run=false&${query}`)).toEqual(withoutPlants(dry));
    await removeAll(service);
    for (const plant of [ROSE, FERN]) await service.create(plant);
    expect(await write(lines, query, minimal)).toEqual(counts);
  });

  test("sees what earlier lines would do, as far as the last 10,000 plants", async () => {
    const name = (id: number) => `{"id":${id},"name":"n"}`;
    const many = Array.from({ length: 10_000 }, (_, index) => name(index + 10));
    // More lines than a block has: then the first plant is forgotten.
    const more = Array.from({ length: 600 }, (_, index) => name(index + 10_010));
    const body = [...many, '{"id":10,"name":"other"}', many[9_999] ?? "", ...more, name(10)];
    const results = await write(body, "dry_run=true");
    const isCreated = (result: Result): boolean => result.status === 200 && !("replayed" in result);
    expect(results.slice(0, 10_000).every(isCreated)).toBe(true);
    expect(results.slice(10_000, 10_002)).toMatchObject([{ status: 409 }, did("replayed")]);
    expect(results.slice(10_002)).toHaveLength(601);
    expect(results.slice(10_002).every(isCreated)).toBe(true);
    expect(await service.readPlants()).toHaveLength(2);
  });

  test("of a batch that is one transaction is refused, and one that might be a job is none", async () => {
    const body = '{"id":1,"name":"Tulip"}';
    const atomic = await ask("dry_run=true&atomic=true", body);
    await expectError(atomic, "invalid_query", "dry_run: expected nothing with atomic=true");
    for (const value of ["", "1", "TRUE"])
      await expectError(await ask(`dry_run=${value}`, body), "invalid_query");
    const prefer = { prefer: "respond-async" };
    expect(await write([body], "dry_run=true&upsert=true&batch=b", prefer)).toEqual([
      { line: 1, ...did("replaced", rose) },
    ]);
    expect(await (await send(service, "GET", "/jobs?batch=b")).json()).toEqual([]);
  });

  test("needs both scopes", async () => {
    for (const scope of ["plants:read", "plants:write"] as const) {
      const headers = bearer(await grantToken(service, [scope]));
      await expectError(await ask("dry_run=true", ROSE, headers), "insufficient_scope");
    }
  });

  test("takes the rate of its token", async () => {
    const scopes = ["plants:read", "plants:write"] as const;
    const headers = bearer(await grantToken(service, scopes, { rate: "20/h" }));
    const twelve = Array.from({ length: 12 }, () => ROSE);
    expect(await write(twelve, "dry_run=true", headers)).toHaveLength(12);
    let allowed = 0;
    while ((await send(service, "GET", "/token", { headers })).status === 200) allowed++;
    expect(allowed).toBe(7);
  });

  test("of a token with tags says what the batch says, and nothing of hidden plants", async () => {
    const headers = bearer(await grantToken(service, undefined, { tags: ["bulb"] }));
    const own = [
      ROSE,
      '{"id":1,"removed":true}',
      '{"id":1,"name":"x","tag":"bulb"}',
      '{"id":1,"name":"x","tag":"bulb","ifMatch":"*"}',
      '{"id":4,"name":"x"}',
      '{"id":2,"name":"Tulip","tag":"bulb"}',
      '{"id":2,"name":"Tulip","tag":"bulb"}',
    ];
    const dry = await write(own, "dry_run=true&upsert=true", headers);
    const statuses = dry.map(({ status }) => status);
    expect(statuses).toEqual([403, 200, 409, 412, 403, 200, 200]);
    expect(dry[1]).toEqual({ line: 2, ...did("replayed") });
    expect(await write(own, "upsert=true", headers)).toEqual(dry);
  });
});

test("a dry run is no create in the metrics, and is not refused by a full store", async () => {
  await using full = await startService({ PLANTSTORE_PLANTS_MAX: "1" });
  const body = `[${ROSE},${FERN}]`;
  const dry = await send(full, "POST", "/plants/batch?dry_run=true", { body });
  expect(await dry.json()).toMatchObject([{ status: 200 }, { status: 200 }]);
  expect(await readMetric(full, "plantstore_create_seconds_count")).toBe(0);
});

test("a dry run holds the memory of what later lines see, until it ends", async () => {
  const memory = limits({ bodyBytesTotalMax: 3_200_000 });
  await using crowded = await startService({ PLANTSTORE_WORKERS: "1", ...memory });
  const name = "n".repeat(50_000);
  const createLarge = (): Promise<Response> => crowded.create(JSON.stringify({ id: -1, name }));
  const holder = await connectRaw(crowded.url);
  const head = batchHead().replace("/plants/batch ", "/plants/batch?dry_run=true ");
  holder.send(head + chunk(makeLines(0, 1)));
  await holder.receive(/"line":1,/);
  expect((await createLarge()).status).toBe(200);
  holder.send(chunk(makeLines(1, 2_200)));
  await holder.receive(/"line":2201,/);
  await expectError(await createLarge(), "overloaded");
  holder.send(chunk(makeLines(0, 1)));
  await holder.receive(/"line":2202,/);
  await expectError(await createLarge(), "overloaded");
  holder.send("0\r\n\r\n");
  await holder.receive(/\r\n0\r\n\r\n$/);
  expect((await createLarge()).status).toBe(200);
});
