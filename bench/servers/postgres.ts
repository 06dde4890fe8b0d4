/** A PostgreSQL server for as long as a scenario needs it, and our service in front of a database of its own. */

import { resolveConfig } from "../../src/config.ts";
import { openStore } from "../../src/store/open.ts";
import { type PostgresServer, startPostgres } from "../../test/support/postgres-server.ts";
import { candidate } from "../candidates.ts";
import type { Load } from "../load.ts";
import type { Candidate } from "../measure.ts";
import { serveDatabase, serveLimit } from "./ours.ts";
import type { Server } from "./server.ts";

export const ON_POSTGRES = "plantstore on PostgreSQL";
export const ON_SQLITE = "plantstore on SQLite";
export const ONE_BY_ONE = "one statement a request";

export class Databases {
  readonly #postgres: PostgresServer;
  readonly #stack: AsyncDisposableStack;
  #count = 0;

  private constructor(postgres: PostgresServer, stack: AsyncDisposableStack) {
    this.#postgres = postgres;
    this.#stack = stack;
  }

  static async start(stack: AsyncDisposableStack): Promise<Databases> {
    return new Databases(stack.use(await startPostgres()), stack);
  }

  /** Our service on so many plants; what it answers makes a candidate of any load on it. */
  async startOurs(stored = 0): Promise<(load: Load) => Candidate> {
    const database = await this.make(stored);
    const server = await this.serve(database);
    return this.#candidates(ON_POSTGRES, "ours", server, database);
  }

  /** To be stopped by whoever asked for it. */
  serve(database: string): Promise<Server> {
    return serveDatabase(this.#postgres.urlOf(database), this.#options);
  }

  /** As it is usually written, through a pool of ten connections; see limits.ts. */
  async startOneByOne(stored = 0): Promise<(load: Load) => Candidate> {
    const database = await this.make(stored);
    const databaseUrl = this.#postgres.urlOf(database);
    const server = await serveLimit("one-by-one", { ...this.#options, databaseUrl });
    return this.#candidates(ONE_BY_ONE, "peer", server, database);
  }

  /** A database with our schema and so many plants, from id 0 on. */
  async make(stored: number): Promise<string> {
    const name = `plants_${this.#count++}`;
    await this.#postgres.run(`CREATE DATABASE ${name}`);
    await (await openStore(this.#postgres.urlOf(name), resolveConfig({}, {}).config)).close();
    if (stored > 0) {
      await this.#postgres.run(
        `INSERT INTO plants (id, name, tag)
         SELECT id, 'Monstera deliciosa ' || id, 'tag ' || (id % 50)
         FROM generate_series(0, ${stored - 1}) AS id`,
        name,
      );
      // Else the server would do both during the rounds.
      await this.#postgres.run("VACUUM (ANALYZE) plants", name);
      await this.#postgres.run("CHECKPOINT");
    }
    return name;
  }

  async countRows(database: string): Promise<number> {
    const [row] = await this.#postgres.run<{ count: bigint }>(
      "SELECT count(*) AS count FROM plants",
      database,
    );
    return Number(row?.count);
  }

  get #options(): { isShared: true; supportingPids: number[] } {
    return { isShared: true, supportingPids: [this.#postgres.pid] };
  }

  #candidates(
    name: string,
    role: "ours" | "peer",
    server: Server,
    database: string,
  ): (load: Load) => Candidate {
    this.#stack.defer(server.stop);
    return (load) =>
      candidate({ name, role, server, load, countRows: () => this.countRows(database) });
  }
}
