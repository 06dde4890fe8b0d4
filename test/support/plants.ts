/** Plants as a test sends them, and as a store holds them. */

import { type Change, findChanges } from "../../client/changes.ts";
import type { ChangePage } from "../../src/domain/change.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { createPage, type PlantPage, type PlantQuery } from "../../src/domain/page.ts";
import type { ListedPlant, Plant } from "../../src/domain/plant.ts";

export interface StoredPlant {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | null;
}

/** The first page of all plants. */
export const everything: PlantQuery = {
  after: undefined,
  limit: 1_000,
  tag: undefined,
  name: undefined,
  order: "asc",
};

/** The changes of a page, as a client reads them. */
export const changesIn = ({ changes }: Pick<ChangePage, "changes">): Change[] =>
  findChanges(`[${changes.map(({ json }) => json).join(",")}]`) ?? [];

export const isSamePlant = (one: StoredPlant, other: StoredPlant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

export const makePlants = (length: number, make: (index: number) => StoredPlant): StoredPlant[] =>
  Array.from({ length }, (_, index) => make(index));

/** The id is written digit by digit: a number could not hold it. */
export function toBody({ id, name, tag }: StoredPlant): string {
  const tagMember = tag === null ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}`;
}

/** As in `1 "name" "tag"`. */
export const describePlant = ({ id, name, tag }: Plant): string =>
  [id, JSON.stringify(name), tag === undefined ? [] : JSON.stringify(tag)].flat().join(" ");

export const isReplay = (response: Response): boolean =>
  response.headers.get("idempotent-replayed") === "true";

/** The name in the catalogue of what a response refuses, or its bare status where it refuses nothing we know. */
export async function readRefusal(response: Response): Promise<ErrorName | number> {
  if (response.status === 200) return 200;
  const { error } = (await response.json()) as { error: unknown };
  for (const [name, { code, status }] of Object.entries(catalogue))
    if (code === error && status === response.status) return name as ErrorName;
  return response.status;
}

/** Pages may have numbers for ids. */
export const toExact = (plants: readonly ListedPlant[]): Plant[] =>
  plants.map((plant) => ({ ...plant, id: BigInt(plant.id) }));

/** Takes a page off rows in key order, as both engines do. */
export function takePage(rows: Iterable<Plant>, ...how: Parameters<typeof createPage>): PlantPage {
  const page = createPage(...how);
  for (const row of rows) if (!page.add(row)) return { plants: page.plants, next: page.lastId };
  return { plants: page.plants, next: undefined };
}
