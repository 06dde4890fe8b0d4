/** What the service needs of a store, and what every engine behind it guarantees. */

import type { Filter } from "./filter.ts";
import type { ChangePage, ChangeQuery } from "./change.ts";
import type { Refusal } from "./errors.ts";
import type { Condition, Plant } from "./plant.ts";
import type {
  PageForm,
  PageText,
  PlantCount,
  PlantPage,
  PlantQuery,
  TagPage,
  TagQuery,
} from "./page.ts";
import type { Scope, TokenQuery, TokenRecord } from "./token.ts";
import type { Webhook } from "./webhook.ts";

/**
 * What requests need of a store. Guarantees of every engine:
 *
 * - Durable: a write's promise resolves after its commit has been synced, never before.
 * - Atomic: a write that rejects changed nothing, unless as `store_unavailable` or `internal`: then it
 *   may have been stored, and sending it again settles it.
 * - Isolated: writes that share a commit are judged in the order they came in, and a write that
 *   fails does not fail its neighbours.
 * - Bounded: no promise stays pending longer than one commit and 1.1 times the configured time in the queue.
 * - Failures are Refusals of the catalogue; anything else is a defect.
 */
export interface ServedStore extends TokenStore {
  /**
   * Stores a new plant. The same plant again is `replayed`: it succeeds and changes nothing.
   * Rejects with `id_taken` if a different plant has the id, and with `store_full` or `disk_low` if there is no room
   * for another plant. `by` says who writes, for the journal, as `joinWriter` makes it.
   */
  createPlant(plant: Plant, by?: string): Promise<Created>;

  /**
   * Stores new plants as `createPlant` does, and resolves to one outcome a plant, in order. They are judged in
   * order, also those with the same id. Unlike single writes they wait for room in the queue; if the time in the
   * queue is over, all that were not judged yet are refused.
   */
  createPlants(plants: readonly Plant[], by?: string): Promise<readonly (Created | Refusal)[]>;

  findPlant(id: bigint): Promise<Plant | undefined>;

  /** A page by key, as text: its cost does not depend on how far into the store it is. */
  readPlants(query: PlantQuery, form: PageForm): Promise<PageText>;

  /** A page of the tags in use: its cost depends on how many it lists, and not on how many plants have them. */
  listTags(query: TagQuery): Promise<TagPage>;

  /** Counts for at most `msMax`, a second by default. The answer may be up to two seconds old. */
  countPlants(query?: Filter, msMax?: number): Promise<PlantCount>;

  /**
   * Rejects with `plant_not_found`, or with `precondition_failed` if the condition does not hold. It is judged in
   * the transaction that makes the change.
   */
  replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void>;

  /** Rejects as `replacePlant` does. */
  removePlant(id: bigint, condition: Condition, by?: string): Promise<void>;

  /**
   * A page of the journal. Every change is in it, written in its own transaction, and the order is that of the
   * commits: once a page was read up to a number, no smaller number appears. Rejects with `changes_gone` if the journal
   * does not go on from where the query begins, and with `invalid_query` if that is in the future.
   */
  readChanges(query: ChangeQuery): Promise<ChangePage>;

  /** The end of the last block of changes before this number, a good cursor; undefined if none is kept. */
  findChangeBefore(seq: number): Promise<number | undefined>;

  /** By name. */
  listWebhooks(): Promise<Webhook[]>;

  /**
   * Stores `next` in place of `last`, which it removes if there is no `next`. False, and nothing changed, if the store
   * has another version by now, or, without a `last`, if it has the name already or as many as it takes, or if another
   * instance stores one at the same time.
   */
  putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean>;

  /** Commits and syncs a write; rejects if that is not possible. */
  probe(): Promise<void>;
}

/** What else its owner needs. */
export interface Store extends ServedStore {
  /** How the store keeps its promise, for people: engine, place, durability. */
  readonly description: StoreDescription;

  /** The page that `readPlants` makes a text of. It may take long on this thread. */
  listPlants(query: PlantQuery): Promise<PlantPage>;

  /** Writes of plants that are queued or under way. */
  readonly writesWaiting: number;

  /** The size of the store with its log. A server may be asked. Rejects if it cannot be found out. */
  measureBytes(): Promise<number>;

  /** What the engine knows by itself, for metrics. */
  readFigures(): StoreFigures;

  /** Finishes what is queued, then releases the store. Later writes reject with `shutting_down`. */
  close(): Promise<void>;
}

/** Those that the engine does not have are left out. */
export interface StoreFigures {
  readonly diskFreeBytes?: number | undefined;
  /** The log of SQLite, which a checkpoint empties when no reader needs it. */
  readonly logBytes?: number;
  /** Connections of PostgreSQL, and callers that wait for one. */
  readonly connectionsInUse?: number;
  readonly callersWaiting?: number;
  /** Attempts that were repeated, and connections that were opened. */
  readonly retries?: number;
  readonly connects?: number;
}

export type Created = "created" | "replayed";

export interface TokenStore {
  findToken(hash: string): Promise<TokenRecord | undefined>;
  /** A page of all tokens ever made: its cost does not depend on how many there are. */
  listTokens(query: TokenQuery): Promise<TokenRecord[]>;
  /** Tokens in use that expire between these times. */
  countExpiring(fromMs: number, toMs: number): Promise<number>;
  /** False, and nothing stored, if a token that is not revoked has the name. */
  createToken(token: TokenRecord): Promise<boolean>;
  /**
   * False, and nothing changed, if the token is the last one with the scope `unlessLast`. Revoked and expired ones do
   * not count. It is judged in the transaction of the change. A token that is revoked already stays as it is.
   */
  revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean>;
  /**
   * Takes over tokens of another store, in one write. Doing it again changes nothing. For a hash that is here
   * already, only a revocation that it lacks and a later last use are taken over; a revocation is never changed. The
   * others are stored with every field, also if they are revoked or expired. Resolves to those that were not stored,
   * because another token that is not revoked has the name.
   */
  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]>;
  /** Notes when tokens were last used, by their hashes. */
  touchTokens(usedAtMs: ReadonlyMap<string, number>): Promise<void>;
}

/** Called before the schema of a store that exists is changed: an older version cannot open the store afterwards. */
export type OnMigrate = (change: SchemaChange) => void;

export interface SchemaChange {
  readonly location: string;
  readonly from: number;
  readonly to: number;
}

export type StoreDescription = Readonly<Record<"engine" | "location" | "durability", string>>;

/** The bounds of the queue in front of a store's commits, of a search in it, and of its journal. */
export interface StoreLimits {
  readonly queueLengthMax: number;
  readonly queueSecondsMax: number;
  readonly batchLengthMax: number;
  /** Of the texts that wait for a commit, together. */
  readonly bodyBytesTotalMax: number;
  readonly scanRowsMax: number;
  /** How long changes are kept; 0 for no journal. */
  readonly changesDays: number;
  readonly trimSeconds: number;
  /** Plants that the store may hold; 0, or nothing, for no limit. */
  readonly plantsMax?: number | undefined;
  /** Free space of the disk below which new plants are refused; 0, or nothing, for no limit. */
  readonly diskFreeBytesMin?: number | undefined;
  /** Called after each commit of plants, with the writes in it and how many of them changed a plant. */
  readonly onCommit?: ((durationMs: number, writes: number, changes: number) => void) | undefined;
}

/** Bounds for engines that are servers: connections, and the time that one statement may take. */
export interface ServerLimits {
  readonly writeConnections: number;
  readonly readConnections: number;
  readonly statementSecondsMax: number;
}
