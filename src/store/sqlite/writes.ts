/** What a transaction does for each write in it. */

import type { Database } from "bun:sqlite";
import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { INT64_MIN } from "../../domain/json.ts";
import {
  type Condition,
  judgeChange,
  judgeCreate,
  lengthOf,
  type Plant,
} from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { StoreLimits } from "../../domain/store.ts";
import type { Scope, TokenRecord, TokenUse } from "../../domain/token.ts";
import type { Webhook } from "../../domain/webhook.ts";
import type { Entries } from "../journal.ts";
import { toPlant } from "../rows.ts";
import { translate } from "./database.ts";
import type { Statements, TokenValues } from "./sql.ts";

interface Author {
  readonly by: string | undefined;
}

interface Conditional {
  readonly condition: Condition;
}

export type Write =
  | ({ readonly kind: "createPlant"; readonly plant: Plant } & Author)
  | ({ readonly kind: "replacePlant"; readonly plant: Plant } & Author & Conditional)
  | ({ readonly kind: "removePlant"; readonly id: bigint } & Author & Conditional)
  | { readonly kind: "createToken"; readonly token: TokenRecord; readonly onlyFirst: boolean }
  | {
      readonly kind: "revokeToken";
      readonly hash: string;
      readonly revokedAtMs: number;
      readonly unlessLast: Scope | undefined;
    }
  | { readonly kind: "touchTokens"; readonly uses: readonly TokenUse[] }
  | { readonly kind: "adoptTokens"; readonly records: readonly TokenRecord[] }
  | {
      readonly kind: "putWebhook";
      readonly next: Webhook | undefined;
      readonly last: Webhook | undefined;
    }
  | { readonly kind: "trimChanges"; readonly beforeMs: number }
  | { readonly kind: "probe" };

/** A list of tokens: those that were not adopted. */
export type Outcome = "created" | "replayed" | "done" | "more" | "refused" | readonly TokenRecord[];

/** The text that a replacement may add on a disk that is nearly full. */
const GROWTH_MAX = 4_096;

/** Whether there is room for new plants: by the quota, and on the disk. */
export class Room {
  /** Infinite without a quota; undefined until the plants are counted. */
  private plantsLeft: number | undefined;
  private plantsLeftBefore: number | undefined;
  private readonly limits: StoreLimits;
  private readonly folder: string;
  private freeBytes = Number.POSITIVE_INFINITY;

  constructor(limits: StoreLimits, path: string) {
    this.limits = limits;
    this.folder = dirname(resolve(path));
  }

  /** Called at the beginning of every transaction that writes. */
  prepare({ asc }: Statements): void {
    const { plantsMax = 0, diskFreeBytesMin = 0 } = this.limits;
    // Each time: a second of large plants can fill what is left, and then not even a removal is possible.
    if (diskFreeBytesMin > 0) this.freeBytes = this.measureDisk() ?? Number.POSITIVE_INFINITY;
    this.plantsLeft ??=
      plantsMax === 0
        ? Number.POSITIVE_INFINITY
        : plantsMax - Number(asc.count.get(null, INT64_MIN)?.count);
    this.plantsLeftBefore = this.plantsLeft;
  }

  rollBack(): void {
    this.plantsLeft = this.plantsLeftBefore;
  }

  /** Free bytes; undefined if the system does not tell. Asking takes some microseconds. */
  measureDisk(): number | undefined {
    try {
      const { bavail, bsize } = statfsSync(this.folder);
      return bavail * bsize;
    } catch {
      return undefined;
    }
  }

  /** Why a new plant cannot be stored. */
  refuseNew(): Refusal | undefined {
    if ((this.plantsLeft as number) <= 0) return new Refusal("store_full");
    return this.isDiskBelow(1) ? new Refusal("disk_low") : undefined;
  }

  refuseReplacement(plant: Plant, before: Plant): Refusal | undefined {
    const isLarge = lengthOf(plant) - lengthOf(before) > GROWTH_MAX;
    // The journal keeps every version. What is left then is for removals.
    return this.isDiskBelow(isLarge ? 1 : 1 / 2) ? new Refusal("disk_low") : undefined;
  }

  private isDiskBelow(share: number): boolean {
    return this.freeBytes < (this.limits.diskFreeBytesMin ?? 0) * share;
  }

  take(plants: number): void {
    this.plantsLeft = (this.plantsLeft as number) - plants;
  }
}

/** So many take about a millisecond. */
const TRIM_ROWS = 1_000;

/** The probe counts: it finds out whether a plant could be created. */
export const concernsPlants = ({ kind }: Write): boolean =>
  kind === "createPlant" ||
  kind === "replacePlant" ||
  kind === "removePlant" ||
  kind === "trimChanges" ||
  kind === "probe";

/**
 * If the transaction is still open after an error, SQLite undid that statement alone, and only this write fails. What
 * it changed is added to the entries for the journal.
 */
export function applyWrite(
  db: Database,
  statements: Statements,
  write: Write,
  room: Room,
  entries: Entries | undefined,
): Outcome | Error {
  try {
    return apply(statements, write, room, entries);
  } catch (error) {
    if (!db.inTransaction) throw error;
    return translate(error);
  }
}

function apply(
  statements: Statements,
  write: Write,
  room: Room,
  entries: Entries | undefined,
): Outcome | Refusal {
  switch (write.kind) {
    case "createPlant": {
      const { plant, by } = write;
      const outcome = createPlant(statements, plant, room);
      if (outcome === "created") entries?.add(plant.id, by, plant);
      return outcome;
    }
    case "replacePlant": {
      const { plant, by, condition } = write;
      const before = judge(statements, plant.id, condition);
      if (before instanceof Refusal) return before;
      const refusal = room.refuseReplacement(plant, before);
      if (refusal !== undefined) return refusal;
      statements.updatePlant.run(plant.name, plant.tag ?? null, plant.id);
      entries?.add(plant.id, by, plant, before);
      return "done";
    }
    case "removePlant": {
      const { id, by, condition } = write;
      const before = judge(statements, id, condition);
      if (before instanceof Refusal) return before;
      statements.deletePlant.run(id);
      room.take(-1);
      entries?.add(id, by, undefined, before);
      return "done";
    }
    case "trimChanges": {
      const { changes } = statements.trimChanges.run(write.beforeMs, TRIM_ROWS);
      return changes === TRIM_ROWS ? "more" : "done";
    }
    case "createToken":
      return insertToken(statements, write.token, write.onlyFirst) ? "done" : "refused";
    case "revokeToken":
      statements.revokeToken.run(write.revokedAtMs, write.hash, write.unlessLast ?? null);
      return typeof statements.findToken.get(write.hash)?.revoked_at_ms === "bigint"
        ? "done"
        : "refused";
    case "touchTokens":
      for (const use of write.uses) statements.touchToken.run(use.usedAtMs, use.hash);
      return "done";
    case "adoptTokens":
      return adoptTokens(statements, write.records);
    case "putWebhook":
      return putWebhook(statements, write.next, write.last) ? "done" : "refused";
    case "probe":
      statements.probe.run(Date.now());
      return "done";
  }
}

function createPlant(statements: Statements, plant: Plant, room: Room): Outcome | Refusal {
  const { id, name, tag = null } = plant;
  const refusal = room.refuseNew();
  if (refusal === undefined && statements.insertPlant.run(id, name, tag).changes === 1) {
    room.take(1);
    return "created";
  }
  const row = statements.findPlant.get(id);
  // It is missing only if it was not tried.
  return row === null ? (refusal as Refusal) : judgeCreate(plant, toPlant(row));
}

function judge(statements: Statements, id: bigint, condition: Condition): Plant | Refusal {
  const row = statements.findPlant.get(id);
  return judgeChange(row === null ? undefined : toPlant(row), condition);
}

/** False if another token has the name, or if it is not the first one and should be. */
const insertToken = (statements: Statements, token: TokenRecord, onlyFirst: boolean): boolean =>
  statements.insertToken.run(...toValues(token), onlyFirst).changes === 1;

/** Revocations first: they free names that other tokens may have. */
function adoptTokens(
  statements: Statements,
  records: readonly TokenRecord[],
): readonly TokenRecord[] {
  const absent = records.filter(
    ({ hash, revokedAtMs, lastUsedAtMs }) =>
      statements.mergeToken.run(revokedAtMs ?? null, lastUsedAtMs ?? null, hash).changes === 0,
  );
  return absent.filter((token) => !insertToken(statements, token, false));
}

function putWebhook(
  { insertWebhook, updateWebhook, deleteWebhook }: Statements,
  next: Webhook | undefined,
  last: Webhook | undefined,
): boolean {
  const record = JSON.stringify(next);
  const put =
    next === undefined
      ? deleteWebhook.run(last?.name ?? "", last?.version ?? "")
      : last === undefined
        ? insertWebhook.run(next.name, next.version, record)
        : updateWebhook.run(next.version, record, last.name, last.version);
  return put.changes === 1;
}

const toValues = (token: TokenRecord): TokenValues => [
  token.hash,
  token.prefix,
  token.name,
  token.scopes.join(" "),
  token.createdAtMs,
  token.expiresAtMs ?? null,
  token.rate ?? null,
  token.lastUsedAtMs ?? null,
  token.revokedAtMs ?? null,
];
