/** What PostgreSQL's codes (SQLSTATE) and the client's mean for us. By code, never by text. */

import { SQL } from "bun";
import { Refusal, StoreOpenError } from "../../domain/errors.ts";

/** The server did not answer in time, and the connection was given up. */
export class LateError extends Error {
  override readonly name = "LateError";
}

/** The server is a standby, or was told to refuse writes. */
export class NotWritableError extends Error {
  override readonly name = "NotWritableError";
}

/** Neither done nor refused: what was looked for has changed meanwhile, or came too late to be valid. */
export class UnsettledError extends Error {
  override readonly name = "UnsettledError";
}

/**
 * `again` is worth a retry on the same connection, `anew` on another one; `row` is the doing of what
 * was sent, and so of one row of it; `refused` stays as it is until a person does something.
 */
export type Verdict = "again" | "anew" | "row" | "refused" | "unknown";

/** Class, or whole code → verdict. The whole code comes first. */
const verdicts: Readonly<Record<string, Verdict>> = {
  // Connection exceptions, insufficient resources, operator intervention, system and internal errors.
  "08": "anew",
  "53": "anew",
  "57": "anew",
  "58": "anew",
  XX: "anew",
  // A query that was cancelled, and a lock that was not to be had.
  "57014": "again",
  "55P03": "again",
  // Serialization failures, deadlocks, and completions that are not known.
  "40": "again",
  // Read-only: the server has become a standby.
  "25006": "anew",
  // What an engine does not have.
  "0A": "refused",
  // Data exceptions, constraints, and limits such as the size of a row.
  "22": "row",
  "23": "row",
  "54": "row",
  // Wrong user or password, no such database, schema or table, no right to use it.
  "28": "refused",
  "3D": "refused",
  "3F": "refused",
  "42501": "refused",
  "42P01": "refused",
  "42703": "refused",
};

export const sqlStateOf = (error: unknown): string | undefined =>
  error instanceof SQL.PostgresError && typeof error.errno === "string" ? error.errno : undefined;

export function judge(error: unknown): Verdict {
  if (error instanceof LateError || error instanceof NotWritableError) return "anew";
  if (error instanceof UnsettledError) return "anew";
  if (error instanceof StoreOpenError) return "refused";
  const state = sqlStateOf(error);
  if (state !== undefined) return verdicts[state] ?? verdicts[state.slice(0, 2)] ?? "unknown";
  // The client's own: connections lost, refused, timed out, or spoilt by what came.
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  if (typeof code !== "string") return "unknown";
  if (isTlsFailure(code)) return "refused";
  return /^(ERR_POSTGRES_|E[A-Z]+$)/.test(code) ? "anew" : "unknown";
}

/** The server itself has said that nothing came of it; of a lost answer, or a commit cut short, nobody knows. */
export function isUndone(error: unknown): boolean {
  const state = sqlStateOf(error);
  if (state === undefined) return false;
  const verdict = judge(error);
  return verdict === "row" || verdict === "refused" || state === "40001" || state === "40P01";
}

/** Nothing will change that by trying again: neither a certificate nor what the server offers. */
const isTlsFailure = (code: string): boolean =>
  /CERT|SIGNATURE|ERR_TLS|ERR_SSL|ERR_POSTGRES_TLS|^EPROTO$/.test(code);

/** What a waiting caller is told. */
export function translate(error: unknown): Error {
  if (error instanceof Refusal) return error;
  if (!(error instanceof Error)) return new Error("thrown by the client", { cause: error });
  const verdict = judge(error);
  const isOurs = verdict === "unknown" || verdict === "row";
  return isOurs ? error : new Refusal("store_unavailable", undefined, error);
}
