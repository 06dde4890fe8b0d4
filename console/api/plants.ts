/** The operations on plants that the views need. */

import type { Change, Client, Versioned } from "../../client/client.ts";
import type { Filter } from "../../src/domain/filter.ts";
import type { PlantQuery, SortName } from "../../src/domain/page.ts";
import { INT64_MAX, INT64_MIN } from "../../src/domain/json.ts";
import type { ListedPlant, Plant } from "../../src/domain/plant.ts";
import { mayRead } from "../state/session.ts";
import { findWriter, noteWrite } from "../state/writes.ts";
import { fill, t } from "../text/text.ts";
import { findLastChange } from "./changes.ts";
import { call, Explained, isStatus } from "./service.ts";

export type { Versioned } from "../../client/client.ts";

/** A plant of the list, with the time of its last change. */
export type TimedPlant = Plant & Pick<ListedPlant, "changed">;

export type ListFilter = Filter &
  Pick<PlantQuery, "order"> & {
    /** Undefined is by id. */
    readonly sort?: SortName | undefined;
  };

/** Retries after a lost answer: most outages are over within a second. */
const RETRYING = { delaysMs: [300, 900] };

/** `current` is the plant that is stored now; undefined if it is gone or can't be read. */
class Conflict extends Explained {
  readonly id: bigint;
  readonly current: Versioned | undefined;

  constructor(id: bigint, current: Versioned | undefined) {
    super();
    this.id = id;
    this.current = current;
  }
}

export class Taken extends Conflict {
  override readonly message: string = t.plants.taken;
}

/** The plant was changed or deleted since it was read. */
export class Changed extends Conflict {
  override readonly message: string;

  /** `change` is the last one, if it is known. */
  constructor(id: bigint, current: Versioned | undefined, change: Change | undefined) {
    super(id, current);
    const { kind, who } = findWriter(id, current?.plant, change);
    const wrote = t.plants.wrote[current === undefined ? "deleted" : "changed"];
    this.message = fill(wrote[kind], { who });
  }
}

export async function readConflict(id: bigint): Promise<Changed> {
  return new Changed(id, await findPlant(id), await findLastChange(id));
}

/** Throws Taken. */
export async function createPlant(plant: Plant): Promise<"created" | "replayed"> {
  try {
    const outcome = await call((client) => client.create(plant, RETRYING));
    noteWrite(plant.id, plant);
    return outcome;
  } catch (error) {
    if (!isStatus(error, 409)) throw error;
    const holder = mayRead.value ? await findPlant(plant.id).catch(() => undefined) : undefined;
    throw new Taken(plant.id, holder);
  }
}

async function orChanged<Result>(id: bigint, operate: (client: Client) => Promise<Result>) {
  try {
    return await call(operate);
  } catch (error) {
    if (!isStatus(error, 412) && !isStatus(error, 404)) throw error;
    throw await readConflict(id);
  }
}

/** Throws Changed if the plant is no longer as it was read. */
export async function replacePlant(plant: Plant, etag: string): Promise<Versioned> {
  const replace = (client: Client): Promise<Versioned> =>
    client.replace(plant, { ...RETRYING, ifMatch: etag });
  const saved = await orChanged(plant.id, replace);
  noteWrite(plant.id, plant);
  return saved;
}

/** Throws Changed if the plant is no longer as it was read. */
export async function removePlant(id: bigint, etag: string): Promise<void> {
  await orChanged(id, (client) => client.remove(id, { ...RETRYING, ifMatch: etag }));
  noteWrite(id, undefined);
}

export async function findPlant(id: bigint, signal?: AbortSignal): Promise<Versioned | undefined> {
  try {
    return await call((client) => client.get(id, { signal }));
  } catch (error) {
    if (isStatus(error, 404)) return undefined;
    throw error;
  }
}

/** The plant that has the id, if any. Read as a list, so a missing plant is not a failed request. */
export async function findTaken(id: bigint, signal?: AbortSignal): Promise<TimedPlant | undefined> {
  const after = id === INT64_MIN ? undefined : id - 1n;
  const query = { limit: 1, after, include: "changed" } as const;
  const { plants } = await call((client) => client.listPage(query, { signal }));
  return plants.find((plant) => plant.id === id);
}

/** People number plants from 1. Larger ids are barcodes and similar numbers, which are not consecutive. */
const COUNTED_MAX = 1_000_000_000n;
const GAP_MAX = 100;

/** The first free id after this one, or after the highest consecutive one. */
export async function findFreeId(after: bigint | undefined): Promise<bigint> {
  const last = after === undefined || after === INT64_MAX ? await findLastCounted() : after;
  const { plants } = await call((client) => client.listPage({ after: last, limit: GAP_MAX }));
  const gap = plants.findIndex(({ id }, index) => id !== last + BigInt(index) + 1n);
  return last + BigInt(gap === -1 ? plants.length : gap) + 1n;
}

async function findLastCounted(): Promise<bigint> {
  const query = { order: "desc", after: COUNTED_MAX, limit: 1 } as const;
  const { plants } = await call((client) => client.listPage(query));
  const last = plants[0]?.id ?? 0n;
  return last > 0n ? last : 0n;
}

const fold = (text: string): string => text.trim().toLowerCase();

/** A plant of this name, in any case, if the first page of the search has one. */
export async function findNamesake(name: string, signal: AbortSignal): Promise<Plant | undefined> {
  const { plants } = await call((client) => client.listPage({ q: name, limit: 100 }, { signal }));
  return plants.find((plant) => fold(plant.name) === fold(name));
}
