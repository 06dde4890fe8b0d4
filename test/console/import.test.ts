/** The worker of an import with a real service, without a page. */

import { expect, test } from "bun:test";
import type { Import, ImportRequest } from "../../console/import/messages.ts";
import { takeEnglish } from "../../console/text/take.ts";
import { startShared, TEST_TOKEN } from "./service.ts";

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
    ...request,
    mappings: [],
    texts: { reasons: takeEnglish().imports.reasons, others: undefined },
    limits: undefined,
    url: `${service.url}/`,
    token: TEST_TOKEN,
  } satisfies ImportRequest);
  await ended.promise;
  worker.terminate();
  return now;
}

const toFile = (rows: readonly string[]): File =>
  new File([`id,name,tag\n${rows.join("\n")}\n`], "stock.csv");

test("a file of 250,000 rows is compared to its end, and only what differs is kept", async () => {
  const stored = [3, 200_500, 249_999].map((id) => ({
    id: BigInt(id),
    name: id === 3 ? "Rose 3" : "Another",
    tag: undefined,
  }));
  await service.store.createPlants(stored);
  const rows = Array.from({ length: 250_000 }, (_, at) => `${at},Rose ${at},`);
  rows.push("7,Rose 7,", "8,Not the same,");
  const { ending, counted, created, updated, replayed, refused, differences, different } =
    await work({ file: toFile(rows) });
  expect({ ending, counted, created, updated, replayed, refused }).toEqual({
    ending: "done",
    counted: 250_002,
    created: 249_997,
    updated: 2,
    replayed: 2,
    refused: 1,
  });
  expect(differences?.map(({ stored: { id } }) => id)).toEqual([200_500n, 249_999n]);
  expect([...(different ?? new Map()).keys()]).toEqual([200_500n, 249_999n]);
});

test("an import changes what differs, if it is still as it was compared", async () => {
  const plants = [-1, -2].map((id) => ({ id: BigInt(id), name: "Before", tag: undefined }));
  await service.store.createPlants(plants);
  const file = toFile(["-1,After,", "-2,After,", "-3,New,"]);
  const { reading, different } = await work({ file });
  const changed = { id: -2n, name: "Theirs", tag: undefined };
  await service.store.writePlants([{ kind: "upsert", id: -2n, plant: changed, condition: {} }]);
  const { created, updated, refused, firstRefused } = await work({
    file,
    reading,
    updates: different,
    batch: "stock.csv",
  });
  expect({ created, updated, refused }).toEqual({ created: 1, updated: 1, refused: 1 });
  expect(firstRefused?.map(({ line }) => line)).toEqual([3]);
});
