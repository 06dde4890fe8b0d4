/** What a transaction does for each write in it. */

import type { Database } from "bun:sqlite";
import { type Condition, holds, type Plant } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { toPlant } from "../rows.ts";
import { isTokenNameTaken, translate } from "./database.ts";
import type { Statements, TokenValues } from "./sql.ts";

export type Write =
  | { readonly kind: "createPlant"; readonly plant: Plant }
  | { readonly kind: "replacePlant"; readonly plant: Plant; readonly condition: Condition }
  | { readonly kind: "removePlant"; readonly id: bigint; readonly condition: Condition }
  | { readonly kind: "createToken"; readonly token: TokenRecord; readonly onlyFirst: boolean }
  | { readonly kind: "revokeToken"; readonly hash: string; readonly revokedAtMs: number }
  | { readonly kind: "touchTokens"; readonly uses: readonly TokenUse[] }
  | { readonly kind: "adoptTokens"; readonly records: readonly TokenRecord[] }
  | { readonly kind: "probe" };

/** A list of tokens: those that were not adopted. */
export type Outcome = "created" | "replayed" | "done" | "refused" | readonly TokenRecord[];

/** The probe counts: it finds out whether a plant could be created. */
export const concernsPlants = ({ kind }: Write): boolean =>
  kind === "createPlant" || kind === "replacePlant" || kind === "removePlant" || kind === "probe";

/** If the transaction is still open after an error, SQLite undid that statement alone, and only this write fails. */
export function applyWrite(db: Database, statements: Statements, write: Write): Outcome | Error {
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
    case "replacePlant":
      return replacePlant(statements, write.plant, write.condition);
    case "removePlant":
      return removePlant(statements, write.id, write.condition);
    case "createToken":
      return createToken(statements, write.token, write.onlyFirst);
    case "revokeToken":
      statements.revokeToken.run(write.revokedAtMs, write.hash);
      return "done";
    case "touchTokens":
      for (const use of write.uses) statements.touchToken.run(use.usedAtMs, use.hash);
      return "done";
    case "adoptTokens":
      return adoptTokens(statements, write.records);
    case "probe":
      statements.probe.run(Date.now());
      return "done";
  }
}

function createPlant(statements: Statements, plant: Plant): Outcome | Refusal {
  const tag = plant.tag ?? null;
  if (statements.insertPlant.run(plant.id, plant.name, tag).changes === 1) return "created";
  const stored = statements.findPlant.get(plant.id);
  if (stored?.name === plant.name && stored.tag === tag) return "replayed";
  return new Refusal("id_taken", `A different plant has the id ${plant.id}; nothing was changed.`);
}

function replacePlant(
  statements: Statements,
  plant: Plant,
  condition: Condition,
): Outcome | Refusal {
  const refusal = findObstacle(statements, plant.id, condition);
  if (refusal !== undefined) return refusal;
  statements.updatePlant.run(plant.name, plant.tag ?? null, plant.id);
  return "done";
}

function removePlant(statements: Statements, id: bigint, condition: Condition): Outcome | Refusal {
  const refusal = findObstacle(statements, id, condition);
  if (refusal !== undefined) return refusal;
  statements.deletePlant.run(id);
  return "done";
}

function findObstacle(
  statements: Statements,
  id: bigint,
  condition: Condition,
): Refusal | undefined {
  const current = statements.findPlant.get(id);
  if (current === null) return new Refusal("plant_not_found");
  return holds(condition, toPlant(current)) ? undefined : new Refusal("precondition_failed");
}

function createToken(statements: Statements, token: TokenRecord, onlyFirst: boolean): Outcome {
  const insert = onlyFirst ? statements.insertFirstToken : statements.insertToken;
  try {
    const { changes } = insert.run(...toValues(token));
    return changes === 1 ? "done" : "refused";
  } catch (error) {
    if (isTokenNameTaken(error)) return "refused";
    throw error;
  }
}

/** Revocations first: they free names that other tokens may have. */
function adoptTokens(
  statements: Statements,
  records: readonly TokenRecord[],
): readonly TokenRecord[] {
  const absent = records.filter(
    ({ hash, revokedAtMs, lastUsedAtMs }) =>
      statements.mergeToken.run(revokedAtMs ?? null, lastUsedAtMs ?? null, hash).changes === 0,
  );
  return absent.filter((token) => {
    const { lastUsedAtMs = null, revokedAtMs = null } = token;
    return statements.adoptToken.run(...toValues(token), lastUsedAtMs, revokedAtMs).changes === 0;
  });
}

const toValues = (token: TokenRecord): TokenValues => [
  token.hash,
  token.prefix,
  token.name,
  token.scopes.join(" "),
  token.createdAtMs,
  token.expiresAtMs ?? null,
  token.rate ?? null,
];
