/** A test's own database on the PostgreSQL server that the tests share. */

import { SQL } from "bun";
import type { HeldWrites, TestDatabase } from "./database.ts";
import type { StoredPlant } from "./plants.ts";
import { createTestDatabase, sharedPostgres } from "./postgres-server.ts";

export async function openPostgresDatabase(options: {
  readonly serializable: boolean;
}): Promise<TestDatabase> {
  const database = await createTestDatabase(await sharedPostgres(), options);
  const { url } = database;
  const db = connect(url);
  return {
    url,
    get path(): string {
      throw new Error("PostgreSQL has no file of its own for a database");
    },
    readPlants: async () => [
      ...(await db<StoredPlant[]>`SELECT id, name, tag FROM plants ORDER BY id`),
    ],
    findPlant: async (id) => {
      const [row] = await db<StoredPlant[]>`SELECT id, name, tag FROM plants WHERE id = ${id}`;
      return row;
    },
    run: async (statement) => void (await db.unsafe(statement)),
    failPlantsNamed: async (name) =>
      void (await db.unsafe(
        `ALTER TABLE plants ADD CONSTRAINT "failed by a test" CHECK (name <> '${name}')`,
      )),
    holdWrites: () => holdWrites(url),
    async [Symbol.asyncDispose]() {
      await db.close();
      await database[Symbol.asyncDispose]();
    },
  };
}

const connect = (url: string): SQL => new SQL(url, { max: 1, bigint: true });

/** EXCLUSIVE lets others read, and neither write nor lock a row. */
async function holdWrites(url: string): Promise<HeldWrites> {
  const holder = connect(url);
  const tables = await holder<{ name: string }[]>`
    SELECT quote_ident(tablename) AS name FROM pg_tables WHERE schemaname = current_schema()`;
  await holder.unsafe("BEGIN");
  await holder.unsafe(`LOCK TABLE ${tables.map(({ name }) => name).join()} IN EXCLUSIVE MODE`);
  // Closing alone would roll back as well, at some time after it.
  let releasing: Promise<void> | undefined;
  const release = (): Promise<void> =>
    (releasing ??= holder.unsafe("ROLLBACK").then(() => holder.close()));
  return { release, [Symbol.asyncDispose]: release };
}
