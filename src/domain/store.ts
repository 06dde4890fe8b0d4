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
  /** The same plant again is `replayed`. Rejects with `id_taken`, `store_full` or `disk_low`. `by` is what `joinWriter` makes. */
  createPlant(plant: Plant, by?: string): Promise<Created>;

  /**
   * One outcome a plant, judged in order, also those with the same id. Unlike single writes they wait for room in the
   * queue; if the time in the queue is over, all that were not judged yet are refused.
   */
  createPlants(plants: readonly Plant[], by?: string): Promise<readonly (Created | Refusal)[]>;

  findPlant(id: bigint): Promise<Plant | undefined>;
  /** A page by key, as text: its cost does not depend on how far into the store it is. */
  readPlants(query: PlantQuery, form: PageForm): Promise<PageText>;
  /** Its cost depends on how many tags it lists, and not on how many plants have them. */
  listTags(query: TagQuery): Promise<TagPage>;
  /** Counts for at most `msMax`, a second by default. The answer may be up to two seconds old. */
  countPlants(query?: Filter, msMax?: number): Promise<PlantCount>;

  /** Rejects with `plant_not_found`, or with `precondition_failed`: judged in the transaction of the change. */
  replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void>;
  removePlant(id: bigint, condition: Condition, by?: string): Promise<void>;

  /**
   * A page of the journal. Every change is in it, written in its own transaction, and the order is that of the
   * commits: once a page was read up to a number, no smaller number appears. Rejects with `changes_gone` if the journal
   * does not go on from where the query begins, and with `invalid_query` if that is in the future.
   */
  readChanges(query: ChangeQuery): Promise<ChangePage>;

  /** The end of the last block of changes before this number, a valid cursor; undefined if none is kept. */
  findChangeBefore(seq: number): Promise<number | undefined>;

  listWebhooks(): Promise<Webhook[]>;
  /**
   * Stores `next` in place of `last`. False, and nothing changed, if the store has another version by now, or, without
   * a `last`, if it has the name or as many as it takes, or if another instance stores one at the same time.
   */
  putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean>;
  /** Commits and syncs a write; rejects if that is not possible. */
  probe(): Promise<void>;
}

export interface Store extends ServedStore {
  readonly description: StoreDescription;
  readonly writesWaiting: number;
  /** The page that `readPlants` makes a text of. It may take long on this thread. */
  listPlants(query: PlantQuery): Promise<PlantPage>;
  measureBytes(): Promise<number>;
  readFigures(): StoreFigures;
  /** Finishes what is queued, then releases the store. Later writes reject with `shutting_down`. */
  close(): Promise<void>;
}

/** For metrics. The first two are of SQLite, and the others of PostgreSQL. */
export type StoreFigures = Readonly<Partial<Record<Figure, number | undefined>>>;
type Figure =
  "diskFreeBytes" | "logBytes" | "connectionsInUse" | "callersWaiting" | "retries" | "connects";

export type Created = "created" | "replayed";

export interface TokenStore {
  findToken(hash: string): Promise<TokenRecord | undefined>;
  /** A page of all tokens ever made: its cost does not depend on how many there are. */
  listTokens(query: TokenQuery): Promise<TokenRecord[]>;
  countExpiring(fromMs: number, toMs: number): Promise<number>;
  /** False, and nothing stored, if a token that is not revoked has the name. */
  createToken(token: TokenRecord): Promise<boolean>;
  /**
   * False, and nothing changed, if it is the last token with the scope `unlessLast` that is not revoked or expired:
   * judged in the transaction of the change. A token that is revoked already stays as it is.
   */
  revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean>;
  /**
   * Takes over tokens of another store, in one write, with every field. For a hash that is here already, only a
   * revocation that it lacks and a later last use are taken over. Resolves to those that were not stored, because
   * another token that is not revoked has the name.
   */
  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]>;
  touchTokens(usedAtMs: ReadonlyMap<string, number>): Promise<void>;
}

/** Called before the schema of a store that exists is changed: an older version cannot open the store afterwards. */
export type OnMigrate = (change: SchemaChange) => void;

export type SchemaChange = Readonly<{ location: string; from: number; to: number }>;

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
  /** These two: 0, or nothing, for no limit. */
  readonly plantsMax?: number | undefined;
  readonly diskFreeBytesMin?: number | undefined;
  /** Called after each commit of plants, with the writes in it and how many of them changed a plant. */
  readonly onCommit?: ((durationMs: number, writes: number, changes: number) => void) | undefined;
}

export type ServerLimits = Readonly<
  Record<"writeConnections" | "readConnections" | "statementSecondsMax", number>
>;
