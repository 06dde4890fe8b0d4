/** Plants as a test sends them, and as the store's file holds them. */

import { Database } from "bun:sqlite";
import { catalogue, type ErrorName } from "../../src/domain/error.ts";
import { TEST_TOKEN } from "./service.ts";

export interface StoredPlant {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | null;
}

export const isSamePlant = (one: StoredPlant, other: StoredPlant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

/** The id is written digit by digit: a number could not hold it. */
export function toBody({ id, name, tag }: StoredPlant): string {
  const tagMember = tag === null ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}`;
}

export function sendPlant(url: string, plant: StoredPlant): Promise<Response> {
  return fetch(`${url}/plants`, {
    method: "POST",
    headers: { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" },
    body: toBody(plant),
  });
}

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

/** Every plant in the file, by a connection of the test's own. */
export function readPlants(path: string): StoredPlant[] {
  return reading(path, (db) =>
    db.query<StoredPlant, []>("SELECT id, name, tag FROM plants ORDER BY id").all(),
  );
}

export function findPlant(path: string, id: bigint): StoredPlant | undefined {
  return reading(
    path,
    (db) =>
      db.query<StoredPlant, [bigint]>("SELECT id, name, tag FROM plants WHERE id = ?").get(id) ??
      undefined,
  );
}

/** What SQLite itself thinks of the file: `ok`, or everything that is wrong with it. */
export function checkIntegrity(path: string): string {
  return reading(path, (db) =>
    db
      .query<{ integrity_check: string }, []>("PRAGMA integrity_check")
      .all()
      .map((row) => row.integrity_check)
      .join("\n"),
  );
}

function reading<Result>(path: string, read: (db: Database) => Result): Result {
  // Not read-only: after a crash the first to open the file has to recover its log.
  const db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
  try {
    return read(db);
  } finally {
    db.close();
  }
}
