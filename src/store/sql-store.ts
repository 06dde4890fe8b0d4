/** The store, over an engine: rules about writes, pages and counts. */

import { confine } from "../domain/confinement.ts";
import { rehearse } from "../domain/decide.ts";
import { Refusal } from "../domain/errors.ts";
import { needsScan } from "../domain/filter.ts";
import type { Job } from "../domain/job.ts";
import {
  type PageText,
  type Position,
  type PlantPage,
  type PlantQuery,
  SMALL_PAGE_LENGTH,
  type Sort,
} from "../domain/page.ts";
import { lengthOf, type Plant } from "../domain/plant.ts";
import { FirstPositions } from "../domain/sort.ts";
import type { Created, Store, StoreLimits, StoreView, WholeStore } from "../domain/store.ts";
import type { Confinement } from "../domain/token.ts";
import { fromRecord, toRecord, type WebhookRecord, WEBHOOKS_MAX } from "../domain/webhook.ts";
import {
  type AtomicWrite,
  type Done,
  type PlantWrite,
  refuseLine,
  refuseWrite,
  type Verdict,
} from "../domain/write.ts";
import { createCounter } from "./counter.ts";
import type { Engine } from "./engine.ts";
import type { PageRequest } from "./reads.ts";
import { createRecords, createTokens } from "./records.ts";
import { startTrimming } from "./trim.ts";

export function createStore(engine: Engine, limits: StoreLimits): Store {
  const { description, findPlant, probe, measureBytes, readFigures, backUps } = engine;
  const webhooks = createRecords<WebhookRecord>(engine, limits, "webhooks");
  const jobs = createRecords<Job>(engine, limits, "jobs");
  const stopTrimming = startTrimming(engine, limits);
  return {
    for: forCaller as Store["for"],
    description,
    findPlant,
    probe,
    measureBytes,
    readFigures,
    backUps,
    get writesWaiting() {
      return engine.countWaiting();
    },
    ...createWrites(engine.writes, limits),
    ...createPages(engine),
    listTags: (query) => engine.readLong({ kind: "tags", query }),
    countPlants: createCounter(
      (query) => engine.readLong({ kind: "count", query }),
      limits.countSecondsMax * 1000,
    ),
    ...createChanges(engine, limits.changesDays),
    ...createTokens(engine),
    rehearse: async (writes, writer, earlier) => {
      const found = await Promise.all(writes.map(({ id }) => findPlant(id)));
      const stored = new Map(found.map((plant) => [plant?.id, plant]));
      const signed = writes.map((write) => ({ ...write, writer }));
      return rehearse(signed, (id) => stored.get(id), limits, earlier);
    },
    listWebhooks: async () => (await webhooks.list()).map(fromRecord),
    addWebhook: async (webhook) => {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        if (await webhooks.put(toRecord(webhook), undefined)) return webhook;
        const names = (await webhooks.list()).map(({ name }) => name);
        if (names.includes(webhook.name)) throw new Refusal("webhook_name_taken");
        if (names.length >= WEBHOOKS_MAX) throw new Refusal("webhooks_full");
      }
      throw new Refusal("store_busy");
    },
    putWebhook: (next, last) => webhooks.put(next && toRecord(next), last),
    listJobs: jobs.list,
    findJob: jobs.find,
    putJob: jobs.put,
    close: async () => {
      stopTrimming();
      await Promise.all([webhooks.close(), jobs.close()]);
      await engine.close();
    },
  };
}

function forCaller(this: Store, confinement: Confinement): StoreView {
  return confinement === "whole store" ? this : confine(this, confinement);
}

/** Attempts to add a webhook: another may be added meanwhile. */
const TRIES_MAX = 20;

const isSmallPage = (query: PlantQuery): boolean =>
  query.limit <= SMALL_PAGE_LENGTH && !needsScan(query);

function createPages(engine: Engine): Pick<Store, "listPlants" | "readPlants"> {
  const readPage = (request: PageRequest, signal?: AbortSignal) => {
    const { sort } = request.query;
    if (sort !== undefined) return readSorted(request, sort, signal);
    return isSmallPage(request.query) ? engine.read(request) : engine.readLong(request);
  };

  const readSorted = async (
    request: PageRequest,
    sort: Sort,
    signal: AbortSignal | undefined,
  ): Promise<PlantPage | PageText> => {
    const positions = await findPositions(engine, request.query, sort, signal);
    return engine.readLong({ ...request, positions });
  };

  return {
    listPlants: async (query) => (await readPage({ kind: "plants", query })) as PlantPage,
    readPlants: (query, form, signal) =>
      readPage({ kind: "plants", query, form }, signal) as PageText | Promise<PageText>,
  };
}

/**
 * The positions of a page of a sorted list, one more than its limit if there is a next page. Names have no index, so the
 * whole store is scanned, in bounded pieces: other reads take turns.
 */
async function findPositions(
  engine: Engine,
  query: PlantQuery,
  sort: Sort,
  signal: AbortSignal | undefined,
): Promise<readonly Position[]> {
  const first = new FirstPositions(sort, query.limit + 1);
  for (let after: bigint | undefined; ;) {
    if (signal?.aborted)
      // The reason is not a Refusal if the client has left.
      throw signal.reason instanceof Refusal ? signal.reason : new Refusal("body_incomplete");
    const scanned: PlantQuery = { ...query, order: "asc", after };
    const request = { kind: "sort", query: scanned, sort, bound: first.bound } as const;
    const piece = await engine.readLong(request);
    first.add(piece.positions);
    if (piece.next === undefined) return first.take();
    after = piece.next;
  }
}

type Writes = `${"create" | "replace" | "remove" | "patch"}Plant` | "createPlants" | "writePlants";

function createWrites(
  queue: Engine["writes"],
  limits: StoreLimits,
): Pick<WholeStore, Writes | "writeAtomic"> {
  const submit = (write: PlantWrite): Promise<unknown> => {
    const refusal = refuseWrite(write, limits);
    if (refusal !== undefined) return Promise.reject(refusal);
    return queue.submit(write, lengthOf(write.plant));
  };

  const writePlants: WholeStore["writePlants"] = async (writes, writer) => {
    const signed = writes.map((write) => ({ ...write, writer }));
    const outcomes: (Done | Refusal | undefined)[] = signed.map((write) =>
      refuseWrite(write, limits),
    );
    const sound = signed.filter((_, index) => outcomes[index] === undefined);
    const lengths = sound.map(({ plant }) => lengthOf(plant));
    const stored = (await queue.submitAll(sound, lengths)).values();
    return outcomes.map((outcome) => outcome ?? (stored.next().value as Done | Refusal));
  };

  return {
    createPlant: (plant, writer) =>
      submit({ kind: "create", id: plant.id, plant, writer }) as Promise<Created>,

    createPlants: (plants, writer) => {
      const creates = plants.map((plant): PlantWrite => ({ kind: "create", id: plant.id, plant }));
      return writePlants(creates, writer) as Promise<(Created | Refusal)[]>;
    },

    replacePlant: async (plant, condition, writer) =>
      void (await submit({ kind: "replace", id: plant.id, plant, condition, writer })),

    removePlant: async (id, condition, writer) =>
      void (await submit({ kind: "remove", id, condition, writer })),

    patchPlant: async (id, patch, condition, writer) => {
      const patched = await submit({ kind: "patch", id, patch, condition, writer });
      return (patched as Verdict).after as Plant;
    },

    writePlants,

    writeAtomic: async (writes, writer, refusal) => {
      let refused = refusal;
      const signed = writes.map((write) => ({ ...write, writer }));
      const at = signed.findIndex((write) => {
        const own = refuseWrite(write, limits);
        refused = own === undefined ? refusal : refuseLine(write.line, own);
        return own !== undefined;
      });
      const sound = at === -1 ? signed : signed.slice(0, at);
      const { reason, message } = refused ?? {};
      const write: AtomicWrite = {
        kind: "atomic",
        writes: sound,
        refusal: reason && { reason, message: message as string },
      };
      const length = sound.reduce((sum, { plant }) => sum + lengthOf(plant), 0);
      return (await queue.submit(write, length)) as readonly Done[];
    },
  };
}

function createChanges(
  engine: Engine,
  changesDays: number,
): Pick<Store, "readChanges" | "findChangeBefore"> {
  const { prefix, isBeginning } = engine.dialect;
  const changes = `${prefix}changes`;
  const changeBefore = `SELECT coalesce(
      (SELECT max(last) FROM ${changes} WHERE last < CAST($1 AS bigint)),
      (SELECT last FROM ${changes}
        WHERE last = (SELECT min(last) FROM ${changes}) AND ${isBeginning})) AS last`;
  return {
    readChanges: async (query) => {
      if (changesDays > 0) return engine.readLong({ kind: "changes", query });
      throw new Refusal(
        "changes_gone",
        "This service keeps no changes: PLANTSTORE_CHANGES_DAYS is 0, or the database cannot order them.",
      );
    },

    findChangeBefore: async (seq) => {
      type Found = { readonly last: bigint | null };
      const [row] = await engine.query<Found>([changeBefore, seq]);
      return typeof row?.last === "bigint" ? Number(row.last) : undefined;
    },
  };
}
