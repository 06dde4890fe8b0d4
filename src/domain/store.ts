/** What the service needs of a store, and what every engine behind it guarantees. */

import type { ChangePage, ChangeQuery, Writer } from "./change.ts";
import type { Rehearsal, Rehearsed } from "./decide.ts";
import type { Refusal } from "./errors.ts";
import type { Condition } from "./entity-tag.ts";
import type { PlantLimits } from "./faults.ts";
import type { Job } from "./job.ts";
import type { Plant } from "./plant.ts";
import type {
  PageForm,
  PageText,
  CountQuery,
  PlantCount,
  PlantPage,
  PlantQuery,
  TagPage,
  TagQuery,
} from "./page.ts";
import type { Confinement, Scope, TokenQuery, TokenRecord } from "./token.ts";
import type { StoreTracing } from "./trace.ts";
import type { Webhook } from "./webhook.ts";
import type { Done, Patch, PlantWrite } from "./write.ts";

/** What the service has of a store: nobody reads or writes it without saying for whom. */
export interface ServedStore extends Pick<TokenStore, "findToken" | "touchTokens"> {
  /** The whole store costs nothing more: it is the store itself. */
  for(confinement: "whole store"): WholeStore;
  for(confinement: Confinement): StoreView;
  /** Commits and syncs a write; rejects if that is not possible. */
  probe(): Promise<void>;
}

/**
 * The store as a caller sees it, maybe confined. Guarantees of every engine:
 *
 * - Durable: a write's promise resolves after its commit has been synced, never before.
 * - Atomic: a write that rejects changed nothing, unless with `store_unavailable` or `internal`: then it
 *   may have been stored, and a retry settles it.
 * - Isolated: writes that share a commit are checked in the order of arrival, and one that fails
 *   does not fail the others.
 * - Bounded: no promise stays pending longer than one commit and 1.02 times the configured time in the queue.
 * - Failures are Refusals of the catalogue; anything else is a defect.
 */
export interface StoreView extends Pick<TokenStore, "listTokens" | "createToken" | "revokeToken"> {
  /** A repeated create is `replayed`. Rejects with `id_taken`, `store_full` or `disk_low`. */
  createPlant(plant: Plant, writer?: Writer): Promise<Created>;

  /** As `writePlants`. */
  createPlants(plants: readonly Plant[], writer?: Writer): Promise<readonly (Created | Refusal)[]>;

  findPlant(id: bigint): Promise<Plant | undefined>;
  /** A page by key, as text: a deep page costs as much as the first. */
  readPlants(
    query: PlantQuery,
    form: PageForm,
    /** Ends the scan of a sorted list. */
    signal?: AbortSignal,
  ): PageText | Promise<PageText>;
  /** Costs one index seek per tag, however many plants have it. */
  listTags(query: TagQuery): Promise<TagPage>;
  /** Counts for at most `msMax`, a second by default. The answer may be up to two seconds old. */
  countPlants(query?: CountQuery, msMax?: number): Promise<PlantCount>;

  /** Rejects with `plant_not_found`, or with `precondition_failed`: checked in the transaction of the change. */
  replacePlant(plant: Plant, condition: Condition, writer?: Writer): Promise<void>;
  removePlant(id: bigint, condition: Condition, writer?: Writer): Promise<void>;

  /** Resolves to the plant since. Rejects as `replacePlant` does. Equal content changes nothing. */
  patchPlant(id: bigint, patch: Patch, condition: Condition, writer?: Writer): Promise<Plant>;

  /**
   * Writes of any kind, with one outcome each, in order, even for equal ids. Unlike single writes they wait for room in
   * the queue; after the time in the queue, the rest are refused.
   */
  writePlants(writes: readonly PlantWrite[], writer?: Writer): Promise<readonly (Done | Refusal)[]>;
  /**
   * One transaction: all writes, or none. The journal has one entry for each plant that it changed, next to each other.
   * Rejects with the refusal of the first line that fails; `refusal` is that of the line after the writes.
   */
  writeAtomic(
    writes: readonly PlantWrite[],
    writer?: Writer,
    refusal?: Refusal,
  ): Promise<readonly Done[]>;

  /** What each write would do after the `earlier` ones, to which it is added. Changes nothing. */
  rehearse(
    writes: readonly PlantWrite[],
    writer?: Writer,
    earlier?: Rehearsed,
  ): Promise<readonly Rehearsal[]>;

  /**
   * A page of the journal. It has every change, written in the change's own transaction, in commit order: once a page
   * was read up to a number, no smaller number appears. Rejects with `changes_gone` if the journal is not complete
   * after the cursor, or has no such change yet: the store may have been restored to an earlier state. Newest first, it
   * ends where the journal begins.
   */
  readChanges(query: ChangeQuery): Promise<ChangePage>;

  /**
   * A valid cursor: the end of the last block of changes before this number or, if nothing was ever dropped, the
   * beginning of the journal. Otherwise undefined.
   */
  findChangeBefore(seq: number): Promise<number | undefined>;

  listWebhooks(): Promise<Webhook[]>;
  /** Resolves to what is stored. Rejects with `webhook_name_taken` or `webhooks_full`. */
  addWebhook(webhook: Webhook): Promise<Webhook>;
  /** Compare-and-set: replaces `last` with `next`. False, and nothing changed, if the stored version is another one. */
  putWebhook(next: Webhook | undefined, last: Webhook): Promise<boolean>;
}

/** The store without a confinement, and what the service keeps there for itself. */
export interface WholeStore extends StoreView, TokenStore {
  /** The page behind `readPlants`. It may block this thread for long. */
  listPlants(query: PlantQuery): Promise<PlantPage>;
  listJobs(): Promise<Job[]>;
  findJob(name: string): Promise<Job | undefined>;
  /** Without a `last`, false if the name or all places are taken, or another instance stores one at the same time. */
  putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean>;
  /** The same. */
  putJob(next: Job | undefined, last: Pick<Job, "name" | "version"> | undefined): Promise<boolean>;
}

/** The opened store, as commands on it and its engine have it. */
export interface Store extends ServedStore, WholeStore {
  readonly description: StoreDescription;
  readonly writesWaiting: number;
  measureBytes(): Promise<number>;
  readFigures(): Promise<StoreFigures>;
  /** What the backups of an embedded store write into it. */
  readonly backUps?:
    | {
        /** Starts a timeline, with a higher number, that leaves the one before it after this change, or now. */
        startTimeline(above: number, after?: number | null): Promise<void>;
      }
    | undefined;
  /** Drains the queue, then releases the store. Later writes reject with `shutting_down`. */
  close(): Promise<void>;
}

/** For metrics. The first two are SQLite's, the others PostgreSQL's. */
type StoreFigures = Readonly<Partial<Record<Figure, number | undefined>>>;
type Figure =
  "diskFreeBytes" | "logBytes" | "connectionsInUse" | "callersWaiting" | "retries" | "connects";

export type Created = Extract<Done, "created" | "replayed">;

export interface TokenStore {
  findToken(hash: string): Promise<TokenRecord | undefined>;
  /** A page of all tokens ever made: it costs the same however many there are. */
  listTokens(query: TokenQuery): Promise<TokenRecord[]>;
  countExpiring(fromMs: number, toMs: number): Promise<number>;
  /** False, and nothing stored, if a token that is not revoked has the name. */
  createToken(token: TokenRecord): Promise<boolean>;
  /**
   * False, and nothing changed, if it is the last usable token with the scope `unlessLast`: checked in the transaction
   * of the change. A revoked token stays as it is.
   */
  revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean>;
  /**
   * Copies tokens of another store, in one write, with every field. For a known hash, only a missing revocation and a
   * later last use are merged. Resolves to the tokens that were not stored, because another token that is not revoked
   * has the name.
   */
  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]>;
  touchTokens(usedAtMs: ReadonlyMap<string, number>): Promise<void>;
}

/** Called before an existing store is migrated: an older version cannot open it afterwards. */
export type OnMigrate = (change: SchemaChange) => void;

export type SchemaChange = Readonly<{ location: string; from: number; to: number }>;

export type StoreDescription = Readonly<Record<"engine" | "location" | "durability", string>>;

/** The bounds of a store's write queue, of a search, and of the journal. */
export interface StoreLimits extends PlantLimits {
  readonly queueLengthMax: number;
  readonly queueSecondsMax: number;
  readonly countSecondsMax: number;
  readonly commitLengthMax: number;
  readonly scanRowsMax: number;
  /** How long changes are kept; 0 for no journal. */
  readonly changesDays: number;
  /** The unit in which they are counted, a minute. Only tests have another one. */
  readonly markSeconds: number;
  readonly trimSeconds: number;
  /** For `plantsMax` and `diskFreeBytesMin`, 0 or undefined is no limit. */
  readonly plantsMax?: number | undefined;
  readonly diskFreeBytesMin?: number | undefined;
  /** Called after each commit of plants, with its writes and how many of them changed a plant. */
  readonly onCommit?: ((durationMs: number, writes: number, changes: number) => void) | undefined;
  /** Undefined if requests are not traced. */
  readonly tracing?: StoreTracing | undefined;
}

export type ServerLimits = Readonly<
  Record<"writeConnections" | "readConnections" | "statementSecondsMax", number>
>;
