/** PATCH and DELETE /plants by filter: what matches is changed, what others changed meanwhile is left alone. */

import { beforeEach, describe, expect, test } from "bun:test";
import { readMatching } from "../../src/domain/bulk.ts";
import { catalogue } from "../../src/domain/errors.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { expectError } from "../support/expect.ts";
import { parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import {
  bearer,
  grantToken,
  removeAll,
  send,
  startService,
  startShared,
  storePlants,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const service = await startShared();
const MAX = 2n ** 63n - 1n;

const plants: readonly Plant[] = [
  { id: -5n, name: "Old rose", tag: "shrub" },
  { id: 1n, name: "Rose", tag: "shrub" },
  { id: 2n, name: "Tulip", tag: "bulb" },
  { id: 3n, name: "Rosé", tag: undefined },
  { id: MAX, name: "Last rose", tag: "shrub" },
];

beforeEach(async () => {
  await removeAll(service);
  await service.store.createPlants(plants);
});

const ask = (method: string, query: string, body?: string, headers = {}, to = service) =>
  send(to, method, `/plants${query}`, { ...(body === undefined ? {} : { body }), headers });

/** The lines of the answer; the last one is the report. */
async function change(method: string, query: string, body?: string) {
  const response = await ask(method, query, body);
  expect([response.status, response.headers.get("content-type")]).toEqual([
    200,
    "application/x-ndjson",
  ]);
  return parseLines(await response.text());
}

const shown = async (): Promise<string[]> =>
  (await service.readPlants()).map(({ id, name, tag }) => `${id} ${name} ${tag ?? "-"}`);
const all = plants.map(({ id, name, tag }) => `${id} ${name} ${tag ?? "-"}`);
const newest = async () => (await service.store.readChanges({ after: 0, limit: 0 })).newest;

const counts = { replaced: 0, removed: 0, unchanged: 0, changedSince: 0, refused: 0 };

describe("PATCH /plants", () => {
  test("changes only what the patch has, of plants that match every filter", async () => {
    const before = await newest();
    expect(await change("PATCH", "?tag=shrub&q=rose&batch=tidy", '{"tag":"roses"}')).toEqual([
      { ...counts, plants: 3, replaced: 3, batch: "tidy", complete: true },
    ]);
    expect(await shown()).toEqual([
      "-5 Old rose roses",
      "1 Rose roses",
      "2 Tulip bulb",
      "3 Rosé -",
      `${MAX} Last rose roses`,
    ]);
    const { changes } = await service.store.readChanges({ after: before, limit: 9 });
    expect(changes.map(({ json }) => JSON.parse(json))).toMatchObject(
      Array.from({ length: 3 }, () => ({
        type: "replaced",
        batch: "tidy",
        plant: { tag: "roses" },
      })),
    );
  });

  test("writes nothing for plants that are so already", async () => {
    await change("PATCH", "?q=rose", '{"tag":null}');
    const before = await newest();
    expect(await change("PATCH", "?q=rose", '{"tag":null}')).toMatchObject([
      { plants: 4, replaced: 0, unchanged: 4, complete: true },
    ]);
    expect(await newest()).toBe(before);
    expect(await change("PATCH", "?tag=none", '{"name":"x"}')).toMatchObject([{ plants: 0 }]);
  });

  test("tags the plants without a tag", async () => {
    expect(await change("PATCH", "?tagged=false", '{"tag":"new"}')).toMatchObject([
      { plants: 1, replaced: 1, complete: true },
    ]);
    expect(await shown()).toContain("3 Rosé new");
  });

  test("is reverted by the name of its batch, which it answers", async () => {
    const [report] = await change("PATCH", "?tag=shrub", '{"name":"same","tag":null}');
    const { batch } = report as { batch: string };
    expect(batch).toMatch(/^change \d{4}-\d\d-\d\dT[\d:.]+Z$/);
    const body = JSON.stringify({ batch });
    const reverted = await send(service, "POST", "/changes/revert", { body });
    expect(await reverted.json()).toMatchObject({ reverted: 3, complete: true });
    expect(await shown()).toEqual(all);
  });
});

test("DELETE /plants removes the plants that match, until it is undone", async () => {
  expect(await change("DELETE", "?tag=shrub&batch=away")).toEqual([
    { ...counts, plants: 3, removed: 3, batch: "away", complete: true },
  ]);
  expect(await shown()).toEqual(["2 Tulip bulb", "3 Rosé -"]);
  expect(await change("DELETE", "?tag=shrub")).toMatchObject([
    { plants: 0, removed: 0, batch: expect.stringMatching(/^remove /) },
  ]);
  await send(service, "POST", "/changes/revert", { body: '{"batch":"away"}' });
  expect(await shown()).toEqual(all);
});

describe("all=true and except", () => {
  test("concern the whole store without some plants, until it is undone", async () => {
    const preview = await ask("DELETE", `?all=true&except=1,${MAX},77,1&dry_run=true`);
    expect(await preview.json()).toMatchObject({ plants: 3, sample: [{ id: -5 }, { id: 2 }, {}] });
    expect(await change("DELETE", `?all=true&except=1,${MAX},77&batch=nearly%20all`)).toEqual([
      { ...counts, plants: 3, removed: 3, batch: "nearly all", complete: true },
    ]);
    expect(await shown()).toEqual(["1 Rose shrub", `${MAX} Last rose shrub`]);
    await send(service, "POST", "/changes/revert", { body: '{"batch":"nearly all"}' });
    expect(await change("PATCH", "?all=true", '{"tag":"t"}')).toMatchObject([{ replaced: 5 }]);
    expect((await service.store.countPlants({ tag: "t" })).count).toBe(5);
  });

  test("except leaves out plants that match a filter", async () => {
    const preview = await ask("DELETE", "?tag=shrub&except=-5,2&dry_run=true");
    expect(await preview.json()).toMatchObject({ plants: 2, sample: [{ id: 1 }, {}] });
    expect(await change("DELETE", "?tag=shrub&except=-5,2")).toMatchObject([{ removed: 2 }]);
    expect(await shown()).toEqual(["-5 Old rose shrub", "2 Tulip bulb", "3 Rosé -"]);
  });

  test.each([
    ["all=false", "expected a filter"],
    ["except=1", "expected a filter"],
    ["all=true&tag=shrub", "all: expected no filter with it"],
    ["all=yes", "all: expected true or false"],
    ["all=true&except=", "except: expected ids"],
    ["all=true&except=1,,2", "except: expected ids"],
    ["all=true&except=9223372036854775808", "except: expected ids"],
    ["all=true&except=1&except=2", "except: given more than once"],
  ])("%s is refused, and nothing changes", async (query, message) => {
    for (const more of ["", "&dry_run=true"]) {
      await expectError(await ask("DELETE", `?${query}${more}`), "invalid_query", message);
      const patched = await ask("PATCH", `?${query}${more}`, '{"tag":"t"}');
      await expectError(patched, "invalid_query", message);
    }
    expect(await shown()).toEqual(all);
  });
});

describe("dry_run", () => {
  test("answers how many match and what they would be", async () => {
    const before = await newest();
    const patched = await ask("PATCH", "?tag=shrub&dry_run=true", '{"tag":"bush"}');
    expect(patched.headers.get("content-type")).toBe("application/json");
    const text = await patched.text();
    expect(text).toContain(`{"id":${MAX},"now":{"name":"Last rose","tag":"shrub"}`);
    expect(JSON.parse(text)).toMatchObject({
      plants: 3,
      exact: true,
      sample: [{ id: -5, now: { tag: "shrub" }, after: { name: "Old rose", tag: "bush" } }, {}, {}],
    });
    const removed = await ask("DELETE", "?name=tulip&dry_run=true");
    expect(await removed.json()).toEqual({
      plants: 1,
      exact: true,
      sample: [{ id: 2, now: { name: "Tulip", tag: "bulb" } }],
    });
    expect(await newest()).toBe(before);
  });

  test("shows 20 plants of many", async () => {
    await storePlants(service, 100, "many");
    const many = (await (await ask("DELETE", "?name=many&dry_run=true")).json()) as {
      sample: unknown[];
    };
    expect(many).toMatchObject({ plants: 97 });
    expect(many.sample).toHaveLength(20);
  });

  test("of a patch that changes nothing has no sample", async () => {
    const same = await ask("PATCH", "?tag=bulb&dry_run=true", '{"tag":"bulb"}');
    expect(await same.json()).toEqual({ plants: 1, exact: true, sample: [] });
  });

  test("is none with dry_run=false", async () => {
    expect(await change("DELETE", "?tag=bulb&dry_run=false")).toMatchObject([{ removed: 1 }]);
  });
});

describe("what is wrong", () => {
  test.each([
    "",
    "?",
    "?batch=b",
    "?name=",
    "?q=%20",
    "?q=&name=",
    "?dry_run=true",
    "?dry_run=false",
  ])("no filter at all: /plants%s is refused, and nothing changes", async (query) => {
    for (const [method, body] of [
      ["PATCH", '{"name":"x"}'],
      ["DELETE", undefined],
    ] as const)
      await expectError(await ask(method, query, body), "invalid_query", "expected a filter");
    expect(await shown()).toEqual(all);
  });

  test.each(["limit=1", "after=1", "order=asc", "id=1", "dryRun=true", "dry_run=1", "batch="])(
    "%s is refused beside a filter, and nothing changes",
    async (query) => {
      await expectError(await ask("DELETE", `?tag=shrub&${query}`), "invalid_query");
      expect(await shown()).toEqual(all);
    },
  );

  test.each(["if-match", "if-none-match"])("%s is refused, and nothing changes", async (name) => {
    const answers = [
      await ask("DELETE", "?tag=shrub", undefined, { [name]: "*" }),
      await ask("PATCH", "?tag=shrub&dry_run=true", '{"name":"x"}', { [name]: '"0"' }),
    ];
    for (const answer of answers) await expectError(answer, "invalid_precondition", "one plant");
    expect(await shown()).toEqual(all);
  });

  test.each(["[]", "7", '{"id":1}', '{"name":null}', '{"colour":"red"}', '{"tag":"\\u0000"}'])(
    "the patch %s is refused, also by a dry run, and nothing changes",
    async (body) => {
      for (const query of ["?tag=shrub", "?tag=shrub&dry_run=true"])
        await expectError(await ask("PATCH", query, body), "invalid_body");
      expect(await shown()).toEqual(all);
    },
  );

  test("a patch of another type, not JSON, or too large is refused", async () => {
    const type = { "content-type": "text/plain" };
    const refused = await ask("PATCH", "?tag=shrub", "{}", type);
    expect(refused.headers.get("accept-patch")).toContain("application/merge-patch+json");
    await expectError(refused, "unsupported_media_type");
    await expectError(await ask("PATCH", "?tag=shrub", "{"), "invalid_json");
    const large = `{"name":"${"x".repeat(1_048_576)}"}`;
    await expectError(await ask("PATCH", "?tag=shrub", large), "body_too_large");
    expect(await shown()).toEqual(all);
  });

  test("a token that may only read, or only write", async () => {
    for (const scope of ["plants:read", "plants:write"] as const)
      for (const query of ["?tag=shrub", "?tag=shrub&dry_run=true"]) {
        const headers = bearer(await grantToken(service, [scope]));
        await expectError(await ask("DELETE", query, undefined, headers), "insufficient_scope");
      }
    expect(await shown()).toEqual(all);
  });
});

test("plants created while it runs, behind its end, are not among those that match, nor read", async () => {
  await using own = await startService();
  const make = (first: number, length: number): Plant[] =>
    Array.from({ length }, (_, at) => ({ id: BigInt(first + at), name: "n", tag: "t" }));
  await own.store.createPlants(make(0, 1_500));
  const options = {
    signal: new AbortController().signal,
    retry: <Result>(attempt: () => Promise<Result>) => attempt(),
  };
  const pages = readMatching(own.store, { filter: { tag: "t" } }, options);
  const ids = [((await pages.next()).value as Plant[]).map(({ id }) => id)];
  // More than a page of them: a client that keeps creating plants would keep it reading.
  await own.store.createPlants(make(1_500, 2_500));
  for await (const page of pages) ids.push(page.map(({ id }) => id));
  expect(ids.map(({ length }) => length)).toEqual([1_000, 500]);
  expect(ids.at(-1)?.at(-1)).toBe(1_499n);
});

test("a service that shuts down ends it at a commit", async () => {
  await using own = await startService({ PLANTSTORE_WORKERS: "1" });
  await storePlants(own, 2_500);
  const { store } = own;
  const writePlants = store.writePlants.bind(store);
  const begun = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  let blocks = 0;
  store.writePlants = async (...given) => {
    blocks++;
    begun.resolve();
    await released.promise;
    return writePlants(...given);
  };
  const answering = ask("PATCH", "?name=n", '{"tag":"t"}', {}, own);
  await begun.promise;
  const closing = own[Symbol.asyncDispose]();
  await new Promise(setImmediate);
  released.resolve();
  const report = parseLines(await (await answering).text()).at(-1) as Record<string, unknown>;
  const { code } = catalogue.shutting_down;
  expect(report).toMatchObject({ status: 503, error: code, complete: false });
  expect([blocks, report["plants"]]).toEqual([1, report["replaced"]]);
  await closing;
});

describe("while others write", () => {
  /** A rate makes it write a few plants at a time, after it has read them. */
  const openSlow = async (to: typeof service) =>
    bearer(await grantToken(to, ["plants:read", "plants:write"], { rate: "100/s" }));

  test.each([
    ["PATCH", '{"tag":"t"}', { replaced: 1, changedSince: 2 }, [1, 2]],
    // What is gone is in the wanted state.
    ["DELETE", undefined, { removed: 1, unchanged: 1, changedSince: 1 }, [2]],
  ] as const)(
    "%s leaves a plant alone that was changed meanwhile",
    async (method, body, due, left) => {
      await using own = await startService({ PLANTSTORE_WORKERS: "1" });
      await storePlants(own, 3);
      const { store } = own;
      const writePlants = store.writePlants.bind(store);
      store.writePlants = async (...given) => {
        store.writePlants = writePlants;
        await store.removePlant(1n, {});
        await store.replacePlant({ id: 2n, name: "n, theirs", tag: undefined }, {});
        return writePlants(...given);
      };
      const lines = parseLines(await (await ask(method, "?name=n", body, {}, own)).text());
      const refusal = { status: 412, error: catalogue.precondition_failed.code };
      expect(lines).toMatchObject([
        ...left.map((id) => ({ id, ...refusal })),
        { plants: 3, ...due, complete: true },
      ]);
      expect(await store.findPlant(1n)).toBeUndefined();
      expect((await store.findPlant(2n))?.name).toBe("n, theirs");
    },
  );

  test("a client that leaves stops it at a commit", async () => {
    await using own = await startService();
    await storePlants(own, 300);
    const slow = await ask("DELETE", "?name=n", undefined, await openSlow(own), own);
    await until("it has begun", async () => (await own.store.findPlant(0n)) === undefined);
    await slow.body?.cancel();
    await until("it is logged", () => own.logLines.join("").includes("bulk_broken_off"));
    const { count } = await own.store.countPlants();
    expect(count).toBeGreaterThan(0);
    expect(count).toBeLessThan(300);
    const rest = await ask("DELETE", "?name=n", undefined, {}, own);
    expect(await rest.json()).toMatchObject({ removed: count, complete: true });
  });

  test("plants created behind its end do not keep it running", async () => {
    await using own = await startService(limits({ scanRowsMax: 700 }));
    await storePlants(own, 3_000);
    const answer = await ask("PATCH", "?name=N", '{"tag":"t"}', {}, own);
    await own.store.createPlant({ id: 9_000n, name: "n", tag: undefined });
    // On a slow machine there is progress before it.
    const report = parseLines(await answer.text()).at(-1);
    expect(report).toMatchObject({ replaced: 3_000, complete: true });
    expect((await own.store.findPlant(9_000n))?.tag).toBeUndefined();
    expect((await own.store.countPlants({ tag: "t" })).count).toBe(3_000);
  });
});
