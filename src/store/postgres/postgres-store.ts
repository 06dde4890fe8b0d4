/** The engine for more than one machine: PostgreSQL, or what speaks its protocol, and any number of instances. */

import type { Condition, Plant } from "../../domain/plant.ts";
import type { PlantPage, PlantQuery, TagPage, TagQuery } from "../../domain/page.ts";
import type { Store, StoreDescription, StoreLimits } from "../../domain/store.ts";
import type { ServerLimits } from "../open.ts";
import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { Batcher } from "../batcher.ts";
import { int64Array } from "./array.ts";
import type { Hosts } from "./hosts.ts";
import { Lanes, type Work } from "./lanes.ts";
import { FORGET } from "./notes.ts";
import { listPlants } from "./pages.ts";
import { lengthOf, type PlantRow, toPlant } from "../rows.ts";
import { listTags } from "./tags.ts";
import {
  adoptTokens,
  findTokens,
  insertFirstToken,
  insertToken,
  listTokens,
  revokeToken,
  touchTokens,
} from "./tokens.ts";
import { commitWrites, type Outcome, type Write } from "./writes.ts";

const FIND = "SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])";
const COUNT = "SELECT count(*) AS count FROM plants";
const MEASURE = "SELECT pg_database_size(current_database()) AS bytes";
const PROBE = `INSERT INTO plantstore_marks (name, at_ms) VALUES ('probe', $1::bigint)
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/** Names may be long, and all that are found at one time are held at one time. */
const FIND_LENGTH_MAX = 128;
/** Whoever asks whether we are ready does not wait long for the answer. */
const PROBE_MS_MAX = 1_000;
/** One on the connection that there is, and one on a new one. */
const PROBE_ATTEMPTS_MAX = 2;
const MEASURE_MS_MAX = 1_500;
const COUNT_SECONDS_MAX = 600;
const FORGET_MS = 60_000;

export class PostgresStore implements Store {
  readonly description: StoreDescription;
  private readonly limits: StoreLimits & ServerLimits;
  private readonly writers: Lanes;
  private readonly readers: Lanes;
  /** Apart from the others, so that neither load nor a long search delays what the service itself has to know. */
  private readonly control: Lanes;
  private readonly writes: Batcher<Write, Outcome>;
  private readonly reads: Batcher<bigint, Plant | undefined>;
  private readonly lookUps: Batcher<string, TokenRecord | undefined>;
  private readonly forgetting: Timer;

  constructor(hosts: Hosts, description: StoreDescription, limits: StoreLimits & ServerLimits) {
    this.description = description;
    this.limits = limits;
    const { queueLengthMax: waitingMax, writeConnections, readConnections } = limits;
    this.writers = new Lanes(hosts, { lanesMax: writeConnections, waitingMax });
    this.readers = new Lanes(hosts, { lanesMax: readConnections, waitingMax });
    this.control = new Lanes(hosts, { lanesMax: 1, waitingMax });
    this.writes = new Batcher(
      (batch, deadlineMs) => commitWrites(this.writers, batch, deadlineMs),
      limits,
      { inFlightMax: writeConnections, keyOf: ({ id }) => id },
    );
    const readLimits = { ...limits, batchLengthMax: FIND_LENGTH_MAX };
    this.reads = new Batcher((ids, deadlineMs) => this.findPlants(ids, deadlineMs), readLimits, {
      inFlightMax: readConnections,
    });
    this.lookUps = new Batcher(
      (hashes, deadlineMs) => this.findTokens(hashes, deadlineMs),
      readLimits,
    );
    this.forgetting = setInterval(() => void this.forget(), FORGET_MS);
    this.forgetting.unref();
  }

  async createPlant(plant: Plant): Promise<"created" | "replayed"> {
    const write: Write = { kind: "create", id: plant.id, plant };
    return (await this.writes.submit(write, lengthOf(plant))) as "created" | "replayed";
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.submit(id);
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    const deadlineMs = this.deadline();
    return this.readers.run(deadlineMs, (connection) =>
      listPlants(connection, query, this.limits.scanRowsMax, deadlineMs),
    );
  }

  listTags(query: TagQuery): Promise<TagPage> {
    const deadlineMs = this.deadline();
    return this.readers.run(deadlineMs, (connection) => listTags(connection, query, deadlineMs));
  }

  async countPlants(): Promise<bigint> {
    const deadlineMs = performance.now() + COUNT_SECONDS_MAX * 1000;
    const [row] = await this.readers.run(deadlineMs, (connection) =>
      connection.queryPatiently<{ count: bigint }>(COUNT, deadlineMs),
    );
    return row?.count ?? 0n;
  }

  async replacePlant(plant: Plant, condition: Condition): Promise<void> {
    const write: Write = { kind: "change", id: plant.id, plant, condition };
    await this.writes.submit(write, lengthOf(plant));
  }

  async removePlant(id: bigint, condition: Condition): Promise<void> {
    await this.writes.submit({ kind: "change", id, plant: undefined, condition });
  }

  async probe(): Promise<void> {
    const deadlineMs = performance.now() + PROBE_MS_MAX;
    await this.control.run(
      deadlineMs,
      (connection) => connection.query(PROBE, [Date.now()], deadlineMs),
      PROBE_ATTEMPTS_MAX,
    );
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  async measureBytes(): Promise<number | undefined> {
    const deadlineMs = performance.now() + MEASURE_MS_MAX;
    // Not on the control connection: it looks at every file of the database, which may take its time.
    return this.readers
      .run(
        deadlineMs,
        (connection) => connection.query<{ bytes: bigint }>(MEASURE, [], deadlineMs),
        1,
      )
      .then(([row]) => (row === undefined ? undefined : Number(row.bytes)))
      .catch(() => undefined);
  }

  findToken(hash: string): Promise<TokenRecord | undefined> {
    return this.lookUps.submit(hash);
  }

  listTokens(): Promise<TokenRecord[]> {
    return this.onControl((connection, deadlineMs) => listTokens(connection, deadlineMs));
  }

  createToken(token: TokenRecord): Promise<boolean> {
    return this.onControl((connection, deadlineMs) => insertToken(connection, token, deadlineMs));
  }

  createFirstToken(token: TokenRecord): Promise<boolean> {
    return this.onControl((connection, deadlineMs) =>
      insertFirstToken(connection, token, deadlineMs),
    );
  }

  revokeToken(hash: string, revokedAtMs: number): Promise<void> {
    return this.onControl((connection, deadlineMs) =>
      revokeToken(connection, hash, revokedAtMs, deadlineMs),
    );
  }

  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    return this.onControl((connection, deadlineMs) => adoptTokens(connection, records, deadlineMs));
  }

  touchTokens(uses: readonly TokenUse[]): Promise<void> {
    return this.onControl((connection, deadlineMs) => touchTokens(connection, uses, deadlineMs));
  }

  async close(): Promise<void> {
    clearInterval(this.forgetting);
    await Promise.all([this.writes.close(), this.reads.close(), this.lookUps.close()]);
    for (const lanes of [this.writers, this.readers, this.control]) lanes.close();
  }

  private async findPlants(
    ids: readonly bigint[],
    deadlineMs: number,
  ): Promise<(Plant | undefined)[]> {
    const rows = await this.readers.run(deadlineMs, (connection) =>
      connection.query<PlantRow>(FIND, [int64Array(ids)], deadlineMs),
    );
    const found = new Map(rows.map((row) => [row.id, toPlant(row)]));
    return ids.map((id) => found.get(id));
  }

  private async findTokens(
    hashes: readonly string[],
    deadlineMs: number,
  ): Promise<(TokenRecord | undefined)[]> {
    const found = await this.readers.run(deadlineMs, (connection) =>
      findTokens(connection, hashes, deadlineMs),
    );
    return hashes.map((hash) => found.get(hash));
  }

  private onControl<Result>(
    work: (...args: [...Parameters<Work<Result>>, deadlineMs: number]) => Promise<Result>,
  ): Promise<Result> {
    const deadlineMs = this.deadline();
    return this.control.run(deadlineMs, (connection) => work(connection, deadlineMs));
  }

  private deadline(): number {
    return performance.now() + this.limits.queueSecondsMax * 1000;
  }

  /** What is not forgotten now is forgotten the next time. */
  private async forget(): Promise<void> {
    await this.onControl((connection, deadlineMs) =>
      connection.query(FORGET, [], deadlineMs),
    ).catch(() => undefined);
  }
}
