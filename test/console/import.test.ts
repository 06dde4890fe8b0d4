/** The worker of an import with a real service, without a page. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { etagOf } from "../../console/api/etag.ts";
import {
  createEtags,
  findEtag,
  findPlace,
  joinIds,
  listRepeated,
  setEtag,
} from "../../console/import/kept.ts";
import type { Import, ImportRequest } from "../../console/import/messages.ts";
import { takeEnglish } from "../../console/text/take.ts";
import { grantToken, startShared, TEST_TOKEN } from "./service.ts";

const service = await startShared();

/** Resolves to what the page knows of the import when it has ended. */
async function work(
  request: Partial<ImportRequest> & Pick<ImportRequest, "file">,
): Promise<Import> {
  const worker = new Worker(new URL("../../console/import/worker.ts", import.meta.url));
  let now: Import = { ...request };
  const ended = Promise.withResolvers<void>();
  worker.addEventListener("message", ({ data }: MessageEvent<Partial<Import>>) => {
    now = { ...now, ...data };
    if (now.ending !== undefined) ended.resolve();
  });
  worker.addEventListener("error", (event) => ended.reject(new Error(event.message)));
  worker.postMessage({
    token: TEST_TOKEN,
    ...request,
    mappings: [],
    texts: { reasons: takeEnglish().imports.reasons, others: undefined },
    limits: undefined,
    url: `${service.url}/`,
  } satisfies ImportRequest);
  await ended.promise;
  worker.terminate();
  return now;
}

/** The import of what was compared. */
const store = ({ file, reading, ids, missing }: Import, more: Partial<ImportRequest> = {}) =>
  work({ file, reading, ids, missing, batch: "stock.csv", ...more });

const toFile = (rows: readonly string[]): File =>
  new File([`id,name,tag\n${rows.join("\n")}\n`], "stock.csv");

const put = (id: bigint, name: string, tag?: string): Promise<unknown> =>
  service.store.writePlants([{ kind: "upsert", id, plant: { id, name, tag }, condition: {} }]);

const none = {
  created: 0,
  updated: 0,
  updatedAgain: 0,
  kept: 0,
  removed: 0,
  replayed: 0,
  refused: 0,
  counted: 0,
};
/** What a comparison and an import count alike. */
const countsOf = (now: Import): Partial<typeof none> =>
  Object.fromEntries(Object.keys(none).map((name) => [name, now[name as keyof typeof none]]));

test("a long file is compared to its end, and only ids and entity tags are kept", async () => {
  await put(3n, "Rose 3");
  await put(20_500n, "Another");
  await put(29_999n, "Another", "herb");
  const rows = Array.from({ length: 30_000 }, (_, at) => `${at},Rose ${at},`);
  rows.push("7,Rose 7,", "8,Not the same,");
  const compared = await work({ file: toFile(rows) });
  const { differences, different, ids, firstRefused } = compared;
  expect(compared.ending).toBe("done");
  expect(countsOf(compared)).toEqual({
    ...none,
    counted: 30_002,
    created: 29_997,
    updated: 2,
    replayed: 2,
    refused: 1,
  });
  expect(differences?.map(({ stored }) => stored)).toEqual([
    { id: 20_500n, name: "Another" },
    { id: 29_999n, name: "Another", tag: "herb" },
  ]);
  expect(firstRefused?.map(({ line, reason }) => [line, reason])).toEqual([
    [30_003, "Two rows have this id: 10 and 30003. The first one counts."],
  ]);
  expect([ids?.byteLength, different?.byteLength]).toEqual([8 * 30_002, 18 * 30_002]);
});

test("an import changes what differs, if it is still as it was compared, and counts what was foreseen", async () => {
  await put(-1n, "Before");
  await put(-2n, "Before");
  const file = toFile(["-1,After,", "-1,After,", "-2,After,", "-3,New,", "-3,New,"]);
  const compared = await work({ file });
  const foreseen = { ...none, counted: 5, updated: 2, updatedAgain: 1, created: 1, replayed: 1 };
  expect(countsOf(compared)).toEqual(foreseen);
  await put(-2n, "Theirs");
  const stored = await store(compared, { updates: compared.different });
  expect(countsOf(stored)).toEqual({ ...foreseen, updated: 1, refused: 1 });
  expect(stored.firstRefused?.map(({ line }) => line)).toEqual([4]);
});

test("ids are exact to the ends of int64, and plants that the file lacks are removed", async () => {
  const ends = [-(2n ** 63n), 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n];
  for (const id of ends) await put(id, "End");
  const file = toFile(ends.filter((id) => id !== 2n ** 53n).map((id) => `${id},End,`));
  const compared = await work({ file, isWhole: true });
  const removed = compared.removed ?? 0;
  expect(countsOf(compared)).toEqual({ ...none, counted: 3, replayed: 3, removed });
  expect(compared.missing?.some(({ id }) => id === 2n ** 53n)).toBe(true);
  expect(compared.missing?.some(({ id }) => id === 2n ** 53n + 1n)).toBe(false);
  await put(2n ** 53n, "Theirs");
  const stored = await store(compared, { isWhole: true });
  expect(stored).toMatchObject({ removed: removed - 1, refused: 1, ending: "done" });
  expect(await service.findPlant(2n ** 53n)).toBeDefined();
});

test.each([
  ["has a row more", ["61,Fern,", "62,Moss,"]],
  ["has a row less", []],
  ["has another row", ["62,Moss,"]],
])("of a file that %s than what was compared, nothing is removed", async (_what, rows) => {
  await put(61n, "Fern");
  await put(62n, "Moss");
  const compared = await work({ file: toFile(["60,Ivy,", "61,Fern,"]), isWhole: true });
  expect(compared.missing?.some(({ id }) => id === 62n)).toBe(true);
  const file = toFile(["60,Ivy,", ...rows]);
  const stored = await store({ ...compared, file }, { isWhole: true });
  expect(stored).toMatchObject({ ending: "failed", removed: 0 });
  expect(stored.failure).toContain("can no longer be read");
  expect(await service.findPlant(62n)).toBeDefined();
});

test("a token with tags foresees what it will be refused, and learns nothing of other plants", async () => {
  await put(71n, "Hidden", "tree");
  await put(72n, "Seen", "herb");
  const token = await grantToken(service, undefined, { tags: ["herb"] });
  const file = toFile(["71,Basil,herb", "72,Mint,herb", "73,Thyme,herb", "74,Oak,tree"]);
  const compared = await work({ file, token });
  const foreseen = { ...none, counted: 4, created: 1, updated: 1, kept: 1, refused: 1 };
  expect(countsOf(compared)).toEqual(foreseen);
  expect(compared.differences?.map(({ stored }) => stored)).toEqual([
    { id: 72n, name: "Seen", tag: "herb" },
  ]);
  const stored = await store(compared, { token, updates: compared.different });
  expect(countsOf(stored)).toEqual(foreseen);
  expect(await service.findPlant(71n)).toMatchObject({ tag: "tree" });
});

test("a file that is cut off is compared and stored up to there, and so is one that was not compared", async () => {
  const ferns = Array.from({ length: 12 }, (_, at) => `{"id":${81 + (at % 6)},"name":"Fern"}`);
  const file = new File([`[${ferns.join(",")},{"id":`], "cut.json");
  const compared = await work({ file });
  expect(compared).toMatchObject({ ending: "failed", counted: 12, created: 6, replayed: 6 });
  const { ids: _, ...unknown } = compared;
  const stored = await store(unknown);
  expect(stored).toMatchObject({ ending: "failed", created: 6, replayed: 6 });
  expect(stored.failure).toBe(compared.failure as string);
  expect(await service.findPlant(81n)).toBeDefined();
});

test("a comparison without a right to it ends with the reason, and what was compared stays", async () => {
  const token = await grantToken(service, ["plants:write"]);
  const { ending, failure, rows } = await work({ file: toFile(["91,Fern,"]), token });
  expect([ending, rows?.length]).toEqual(["failed", 1]);
  expect(failure).toContain("plants:read");
});

const id = fc.oneof(fc.bigInt({ min: -4n, max: 4n }), fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n));

test("the ids of a file are found, and so are those that it repeats", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(id)), id, async (blocks, other) => {
      const all = blocks.flat();
      const ids = await joinIds(blocks.map((block) => BigInt64Array.from(block)));
      for (const each of [...all, other])
        expect(ids[findPlace(ids, each)]).toBe(all.includes(each) ? each : undefined);
      const repeated = all.filter((each, at) => all.indexOf(each) !== at);
      expect(listRepeated(ids)).toEqual(new Set(repeated));
    }),
  );
});

test("an entity tag is kept exactly, and only where it was set", async () => {
  const ids = await joinIds([BigInt64Array.of(3n, 1n, 2n)]);
  const etags = createEtags(ids);
  const plants = [1n, 3n].map((each) => ({ id: each, name: `Rose ${each}`, tag: undefined }));
  for (const plant of plants) setEtag(etags, findPlace(ids, plant.id), plant);
  const found = [0, 1, 2, -1].map((place) => findEtag(etags, place));
  const [one, three] = plants.map(etagOf);
  expect(found).toEqual([one, undefined, three, undefined]);
});
