/** Scopes, and what is stored of a token. */

export const scopes = ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"] as const;

export type Scope = (typeof scopes)[number];

export const plantScopes: readonly Scope[] = ["plants:read", "plants:write"];

/** What the store keeps of a token: enough to authenticate it, never the token itself. */
export interface TokenRecord {
  /** SHA-256 of the token, as hexadecimal digits. */
  readonly hash: string;
  /** The token's first characters, for people to recognise it by. */
  readonly prefix: string;
  /** Unique among the tokens that are not revoked. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly createdAtMs: number;
  readonly expiresAtMs: number | undefined;
  readonly lastUsedAtMs: number | undefined;
  readonly revokedAtMs: number | undefined;
  /** Its rate, as in 100/s, or none; undefined for the default of the service. */
  readonly rate: string | undefined;
}

/** A page of tokens in the order of their hashes, after the hash `after`. */
export type TokenQuery = Readonly<{ after: string; limit: number }>;

/** A token as people see it: with an id, and without its secret. */
export interface TokenSummary
  extends
    Readonly<Record<"id" | "name" | "prefix" | "created", string>>,
    Readonly<Record<"expires" | "lastUsed" | "revoked" | "rate", string | null>> {
  readonly scopes: readonly string[];
}
