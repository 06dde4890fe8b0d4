/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/error.ts";
import type { NewPlant } from "../../domain/plant.ts";
import type { QueueLimits, Store, StoreDescription } from "../../domain/store.ts";
import type { Scope, TokenRecord, TokenUse } from "../../domain/token.ts";
import { type Committed, GroupCommit } from "../group-commit.ts";
import { openDatabase } from "./database.ts";
import { isLocked, isSyncFailure, isTokenNameTaken, translate } from "./failure.ts";
import { prepareStatements, type Statements, type TokenRow } from "./statements.ts";

type Write =
  | { readonly kind: "createPlant"; readonly plant: NewPlant }
  | { readonly kind: "createToken"; readonly token: TokenRecord; readonly onlyFirst: boolean }
  | { readonly kind: "revokeToken"; readonly hash: string; readonly revokedAtMs: number }
  | { readonly kind: "touchTokens"; readonly uses: readonly TokenUse[] }
  | { readonly kind: "probe" };

type Outcome = "created" | "replayed" | "done" | "refused";

interface Connection {
  readonly db: Database;
  readonly statements: Statements;
}

export class SqliteStore implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: GroupCommit<Write, Outcome>;
  private connection: Connection | undefined;
  private closed = false;

  constructor(path: string, limits: QueueLimits) {
    this.path = path;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.connection = connect(path);
    this.writes = new GroupCommit((batch) => this.commit(batch), limits);
  }

  async createPlant(plant: NewPlant): Promise<"created" | "replayed"> {
    return (await this.writes.submit({ kind: "createPlant", plant })) as "created" | "replayed";
  }

  async probe(): Promise<void> {
    await this.writes.submit({ kind: "probe" });
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    const row = this.read((statements) => statements.findToken.get(hash));
    return row === null ? undefined : toTokenRecord(row);
  }

  async listTokens(): Promise<TokenRecord[]> {
    return this.read((statements) => statements.listTokens.all()).map(toTokenRecord);
  }

  async createToken(token: TokenRecord): Promise<boolean> {
    return (await this.writes.submit({ kind: "createToken", token, onlyFirst: false })) === "done";
  }

  async createFirstToken(token: TokenRecord): Promise<boolean> {
    return (await this.writes.submit({ kind: "createToken", token, onlyFirst: true })) === "done";
  }

  async revokeToken(hash: string, revokedAtMs: number): Promise<void> {
    await this.writes.submit({ kind: "revokeToken", hash, revokedAtMs });
  }

  async touchTokens(uses: readonly TokenUse[]): Promise<void> {
    await this.writes.submit({ kind: "touchTokens", uses });
  }

  async close(): Promise<void> {
    await this.writes.close();
    this.closed = true;
    this.disconnect();
  }

  private read<Result>(query: (statements: Statements) => Result): Result {
    try {
      return query(this.connected().statements);
    } catch (error) {
      throw translate(error);
    }
  }

  private commit(batch: readonly Write[]): Committed<Outcome> {
    try {
      return this.commitOn(this.connected(), batch);
    } catch (error) {
      if (isLocked(error)) return "locked";
      // Nothing more is built on a log whose state on disk is unknown: the next batch opens the
      // file anew, and so first writes and syncs again whatever of it can be read.
      if (isSyncFailure(error)) this.disconnect();
      throw translate(error);
    }
  }

  private commitOn({ db, statements }: Connection, batch: readonly Write[]): Outcome[] {
    statements.begin.run();
    try {
      const outcomes = batch.map((write) => applyAlone(db, statements, write));
      statements.commit.run();
      return outcomes as Outcome[];
    } catch (error) {
      // A full disk and an I/O error have rolled back already.
      if (db.inTransaction) statements.rollback.run();
      throw error;
    }
  }

  private connected(): Connection {
    if (this.closed) throw new Refusal("shutting_down");
    this.connection ??= connect(this.path);
    return this.connection;
  }

  private disconnect(): void {
    for (const statement of Object.values(this.connection?.statements ?? {})) statement.finalize();
    this.connection?.db.close();
    this.connection = undefined;
  }
}

function connect(path: string): Connection {
  const db = openDatabase(path);
  return { db, statements: prepareStatements(db) };
}

/** An error that leaves the transaction open undid its own statement only, and fails this write only. */
function applyAlone(db: Database, statements: Statements, write: Write): Outcome | Error {
  try {
    return apply(statements, write);
  } catch (error) {
    if (!db.inTransaction) throw error;
    return translate(error);
  }
}

function apply(statements: Statements, write: Write): Outcome | Refusal {
  switch (write.kind) {
    case "createPlant":
      return createPlant(statements, write.plant);
    case "createToken":
      return createToken(statements, write.token, write.onlyFirst);
    case "revokeToken":
      statements.revokeToken.run(write.revokedAtMs, write.hash);
      return "done";
    case "touchTokens":
      for (const use of write.uses) statements.touchToken.run(use.usedAtMs, use.hash);
      return "done";
    case "probe":
      statements.probe.run(Date.now());
      return "done";
  }
}

function createPlant(statements: Statements, plant: NewPlant): Outcome | Refusal {
  const tag = plant.tag ?? null;
  if (statements.insertPlant.run(plant.id, plant.name, tag).changes === 1) return "created";
  const stored = statements.findPlant.get(plant.id);
  if (stored?.name === plant.name && stored.tag === tag) return "replayed";
  return new Refusal("id_taken", `A different plant has the id ${plant.id}; nothing was changed.`);
}

function createToken(statements: Statements, token: TokenRecord, onlyFirst: boolean): Outcome {
  const insert = onlyFirst ? statements.insertFirstToken : statements.insertToken;
  try {
    const { changes } = insert.run(
      token.hash,
      token.prefix,
      token.name,
      token.scopes.join(" "),
      token.createdAtMs,
      token.expiresAtMs ?? null,
    );
    return changes === 1 ? "done" : "refused";
  } catch (error) {
    if (isTokenNameTaken(error)) return "refused";
    throw error;
  }
}

function toTokenRecord(row: TokenRow): TokenRecord {
  return {
    hash: row.hash,
    prefix: row.prefix,
    name: row.name,
    scopes: row.scopes.split(" ") as Scope[],
    createdAtMs: Number(row.created_at_ms),
    expiresAtMs: toMs(row.expires_at_ms),
    lastUsedAtMs: toMs(row.last_used_at_ms),
    revokedAtMs: toMs(row.revoked_at_ms),
  };
}

const toMs = (value: bigint | null): number | undefined =>
  value === null ? undefined : Number(value);
