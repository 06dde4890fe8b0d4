/** What `plantstore check` finds in a store, on any engine. */

export interface Inspection {
  /** What the location is. */
  readonly kind: "file" | "database";
  readonly location: string;
  /** Undefined if there is no store, or none that we know. Nothing else is looked at then. */
  readonly schemaVersion: number | undefined;
  readonly newestVersion: number;
  /** What is said of each further check, in order, if it finds nothing. */
  readonly sound: Readonly<Record<string, string>>;
  readonly faults: readonly Fault[];
  /** Undefined if they cannot be counted. */
  readonly plants: PlantCounts | undefined;
  readonly tokens: TokenCounts | undefined;
  /** How large each part is. */
  readonly bytes: Readonly<Record<string, number | bigint>>;
}

export interface Fault {
  /** `schema`, or one of the others. */
  readonly check: string;
  readonly message: string;
}

export type PlantCounts = Readonly<
  Record<"count" | "tagged" | "tags", bigint> & Record<"idMin" | "idMax", bigint | null>
>;
export type TokenCounts = Readonly<Record<"active" | "expired" | "revoked", bigint>>;

/** Not count(DISTINCT tag): SQLite would sort all tags in a temporary file, although the index has them sorted. */
export const COUNT_PLANTS = `SELECT count(*) AS count, count(tag) AS tagged,
  (SELECT count(*) FROM (SELECT DISTINCT tag FROM plants WHERE tag IS NOT NULL) AS used) AS tags,
  min(id) AS "idMin", max(id) AS "idMax" FROM plants`;

export const countTokens = (table: string): string =>
  `WITH states AS (SELECT CASE WHEN revoked_at_ms IS NOT NULL THEN 'revoked'
    WHEN expires_at_ms <= ${Date.now()} THEN 'expired' ELSE 'active' END AS state FROM ${table})
  SELECT count(*) FILTER (WHERE state = 'active') AS active,
    count(*) FILTER (WHERE state = 'expired') AS expired,
    count(*) FILTER (WHERE state = 'revoked') AS revoked FROM states`;
