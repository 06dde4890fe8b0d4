/** The reading half of a store in a file, on the connection that it is given. */

import type { Database } from "bun:sqlite";
import {
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
  takePage,
  takeTags,
} from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import type { Reads, StoreLimits } from "../../domain/store.ts";
import type { TokenRecord } from "../../domain/token.ts";
import { toPlant, toTokenRecord } from "../rows.ts";
import { translate } from "./failure.ts";
import { GroupRead } from "./group-read.ts";
import { type PageStatements, preparePageStatements, walkPlants } from "./page-statements.ts";
import { Scanner } from "./scan.ts";
import { prepareReadStatements, type ReadStatements } from "./statements.ts";
import { type HeadStatement, prepareHeadStatement, walkHeads } from "./tag-walk.ts";

export interface ReadConnection {
  readonly db: Database;
  readonly reads: ReadStatements;
  readonly pages: PageStatements;
  readonly heads: HeadStatement;
}

export const prepareReads = (db: Database): ReadConnection => ({
  db,
  reads: prepareReadStatements(db),
  pages: preparePageStatements(db),
  heads: prepareHeadStatement(db),
});

export function closeReads({ db, reads, pages, heads }: ReadConnection): void {
  for (const statement of [...Object.values(reads), ...Object.values(pages), heads])
    statement.finalize();
  db.close();
}

export class SqliteReads implements Reads {
  private readonly connected: () => ReadConnection;
  private readonly lookUps: GroupRead;
  private readonly scanner: Scanner;

  /** `connected` gives the connection of this moment, or throws. */
  constructor(path: string, limits: StoreLimits, connected: () => ReadConnection) {
    this.connected = connected;
    this.lookUps = new GroupRead((ids) => this.read((connection) => findPlants(connection, ids)));
    this.scanner = new Scanner({ path, ...limits });
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.lookUps.find(id);
  }

  async listPlants(query: PlantQuery): Promise<PlantPage> {
    if (query.name !== undefined) {
      // The thread opens the file by itself, so that whether there is one to search is found out here.
      this.read(() => undefined);
      return this.scanner.search(query);
    }
    return this.read(({ pages }) =>
      takePage(walkPlants(pages, query, query.limit + 1), query, Number.POSITIVE_INFINITY),
    );
  }

  async listTags(query: TagQuery): Promise<TagPage> {
    return this.read((connection) =>
      inSnapshot(connection, () => takeTags(walkHeads(connection.heads, query), query.limit)),
    );
  }

  async countPlants(): Promise<bigint> {
    return this.read(({ reads }) => reads.countPlants.get())?.count ?? 0n;
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    const row = this.read(({ reads }) => reads.findToken.get(hash));
    return row === null ? undefined : toTokenRecord(row);
  }

  async listTokens(): Promise<TokenRecord[]> {
    return this.read(({ reads }) => reads.listTokens.all()).map(toTokenRecord);
  }

  /** Ends the thread that searches; the connection is its owner's to close. */
  close(): Promise<void> {
    return this.scanner.close();
  }

  private read<Result>(query: (connection: ReadConnection) => Result): Result {
    try {
      return query(this.connected());
    } catch (error) {
      throw translate(error);
    }
  }
}

function findPlants(connection: ReadConnection, ids: readonly bigint[]): (Plant | undefined)[] {
  return inSnapshot(connection, () =>
    ids.map((id) => {
      const row = connection.reads.findPlant.get(id);
      return row === null ? undefined : toPlant(row);
    }),
  );
}

function inSnapshot<Result>({ db, reads }: ReadConnection, read: () => Result): Result {
  reads.begin.run();
  try {
    return read();
  } finally {
    if (db.inTransaction) reads.end.run();
  }
}
