/** The import worker keeps large files off the page's thread. The page cancels it by terminating it. */

import { Client, type Created, type Refused, ServiceError } from "../../client/client.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { INT64_MAX, INT64_MIN, isSame, type Plant } from "../../src/domain/plant.ts";
import { createRejectsFormat, type PlantRecord, type Rejected } from "../../src/format/plants.ts";
import { MalformedFile } from "../../src/format/records.ts";
import type { Difference, Import, ImportRequest, Progress } from "./messages.ts";
import { explainFile, position, previewFile, readRecords } from "./preview.ts";

const PROGRESS_MS = 150;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

/** Limits of a comparison; past them the page says so. */
const ROWS_MAX = 200_000;
const DIFFERENCES_MAX = 10_000;
const PAGE_LENGTH_MAX = 1000;

const post = (change: Partial<Import>): void => postMessage(change);

addEventListener("message", ({ data }: MessageEvent<ImportRequest>) => {
  void (data.updates === undefined ? show(data) : run(data));
});

/** Posts the first rows, then compares the file with the store. */
async function show(order: ImportRequest): Promise<void> {
  const preview = await previewFile(order.file, order.reading);
  post({ ...preview, isReading: false });
  if (order.token !== undefined && preview.rows.length > 0)
    await run({ ...order, reading: preview.reading });
}

/** The outcome for a plant, or the one that an import would have. */
interface Result {
  readonly plant: Plant;
  readonly outcome: Created | "updated" | Pick<Refused, "message">;
}

/** Reads the file block by block, compares or stores its plants, and counts the results. */
async function run({
  file,
  reading,
  updates,
  batch,
  url,
  token = "",
}: ImportRequest): Promise<void> {
  if (reading === undefined) return;
  const compared = new Map(updates?.map(({ stored }) => [stored.id, stored]));
  const differences: Difference[] = [];
  const counts = { created: 0, updated: 0, replayed: 0, refused: 0, counted: 0 };
  const firstRefused: Rejected[] = [];
  const format = createRejectsFormat(reading);
  /** The browser may move blobs to disk. */
  const rejects: Blob[] = [];
  let done = 0;
  let isWaiting = false;
  const client = new Client(url, token, {
    retriesMax: Number.POSITIVE_INFINITY,
    onRetry: () => {
      isWaiting = true;
    },
  });
  const startedAtMs = performance.now();
  const report = (): Progress => ({
    ...counts,
    done,
    seconds: (performance.now() - startedAtMs) / 1000,
    isWaiting,
    firstRefused,
    rejects: new Blob([...rejects, format.end()]),
  });

  const settle = async (records: readonly PlantRecord[]): Promise<void> => {
    const reasons = new Map<PlantRecord["plant"], string>();
    const plants: Plant[] = [];
    for (const { plant } of records)
      if (plant instanceof Refusal) reasons.set(plant, plant.message);
      else plants.push(plant);
    const results =
      updates === undefined
        ? compare(client, plants, differences)
        : create(client, plants, compared, batch);
    try {
      for await (const { plant, outcome } of results) {
        isWaiting = false;
        if (typeof outcome === "string") counts[outcome]++;
        else reasons.set(plant, outcome.message);
      }
    } finally {
      const rejected = records.flatMap((record) => {
        const reason = reasons.get(record.plant);
        return reason === undefined ? [] : [{ ...record, reason }];
      });
      counts.refused += rejected.length;
      for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
        firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
      if (rejected.length > 0) rejects.push(new Blob([format.add(rejected)]));
    }
  };

  const timer = setInterval(() => post(report()), PROGRESS_MS);
  let failure: string | undefined;
  try {
    for await (const records of readRecords(file, reading, format.onHeading)) {
      const isMuch = counts.counted >= ROWS_MAX || differences.length >= DIFFERENCES_MAX;
      if (isMuch && updates === undefined) throw new MalformedFile("The import reads all of them.");
      await settle(records);
      counts.counted += records.length;
      done = position.share;
    }
    done = 1;
  } catch (error) {
    failure = error instanceof ServiceError ? error.detail : explainFile(error);
  }
  clearInterval(timer);
  const ending = failure === undefined ? "done" : "failed";
  post({ ...report(), differences, ending, failure });
}

async function* compare(
  client: Client,
  plants: readonly Plant[],
  differences: Difference[],
): AsyncGenerator<Result> {
  const found = await findStored(plants, client);
  for (const plant of plants) {
    const stored = found.get(plant.id);
    if (stored === undefined) yield { plant, outcome: "created" };
    else if (isSame(plant, stored)) yield { plant, outcome: "replayed" };
    else {
      differences.push({ stored, given: plant });
      yield { plant, outcome: "updated" };
    }
  }
}

/** Reads the stored plants in pages, large where the ids are dense and small where they are sparse. */
async function findStored(
  given: readonly Plant[],
  client: Client,
): Promise<ReadonlyMap<bigint, Plant>> {
  const ids = given.map(({ id }) => id).toSorted((one, other) => (one < other ? -1 : 1));
  const found = new Map<bigint, Plant>();
  let limit = 100;
  for (let at = 0; at < ids.length;) {
    const first = ids[at] as bigint;
    const after = first === INT64_MIN ? undefined : first - 1n;
    const { plants, next } = await client.listPage({ after, limit });
    for (const plant of plants) found.set(plant.id, plant);
    const last = next ?? INT64_MAX;
    const end = ids.findIndex((id, index) => index >= at && id > last);
    const passed = (end === -1 ? ids.length : end) - at;
    at += passed;
    limit = Math.max(1, Math.min(PAGE_LENGTH_MAX, passed > limit / 4 ? limit * 4 : limit >> 2));
  }
  return found;
}

/** Creates the plants, and updates those that are still as the comparison found them. */
async function* create(
  client: Client,
  plants: readonly Plant[],
  compared: ReadonlyMap<bigint, Plant>,
  batch: string | undefined,
): AsyncGenerator<Result> {
  const different: [given: Plant, expected: Plant][] = [];
  for await (const { plant, outcome } of client.createAll(plants, { batch })) {
    const expected = compared.get(plant.id);
    if (typeof outcome === "string" || outcome.reason !== "id_taken" || expected === undefined)
      yield { plant, outcome };
    else different.push([plant, expected]);
  }
  for (const [plant, expected] of different)
    yield { plant, outcome: await update(client, plant, expected, batch) };
}

const CHANGED = "The plant was changed since it was compared. Nothing was overwritten.";

async function update(
  client: Client,
  plant: Plant,
  expected: Plant,
  batch: string | undefined,
): Promise<Result["outcome"]> {
  try {
    const { plant: stored, etag } = await client.get(plant.id);
    // The file contains this plant twice.
    if (isSame(stored, plant)) return "replayed";
    if (!isSame(stored, expected)) return { message: CHANGED };
    await client.replace(plant, { ifMatch: etag, batch });
    return "updated";
  } catch (error) {
    if (error instanceof ServiceError && [404, 412].includes(error.status))
      return { message: CHANGED };
    throw error;
  }
}
