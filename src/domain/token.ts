/** Scopes and confinements, and what is stored of a token. */

export const scopes = ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"] as const;

export type Scope = (typeof scopes)[number];

export const plantScopes: readonly Scope[] = ["plants:read", "plants:write"];

/** The plants with one of these tags, or all. */
export type Confinement = "whole store" | readonly string[];

/** The tags of a token, a webhook or a job; undefined for the whole store. */
export interface Confined {
  readonly tags?: readonly string[] | undefined;
}

export const confinementOf = ({ tags }: Confined): Confinement => tags ?? "whole store";

/** Whether all of it is within the confinement. */
export const covers = (confinement: Confinement, { tags }: Confined): boolean =>
  confinement === "whole store" ||
  (tags !== undefined && tags.every((tag) => confinement.includes(tag)));

/** Tags or other words as people type them, with commas between. One in double quotes may have commas; `""` is a quote. */
export const splitList = (text: string): string[] =>
  Array.from(
    `${text},`.matchAll(/\s*(?:"((?:[^"]|"")*)"\s*|([^,]*)),/g),
    ([, quoted, plain = ""]) => quoted?.replaceAll('""', '"') ?? plain.trim(),
  );

/** What `splitList` makes the same words of. */
export const joinList = (words: readonly string[]): string =>
  words
    .map((word) => (/[",]|^\s|\s$|^$/.test(word) ? `"${word.replaceAll('"', '""')}"` : word))
    .join(", ");

/** What the store keeps of a token: enough to authenticate it, never the token itself. */
export interface TokenRecord {
  /** SHA-256 of the token, as hexadecimal digits. */
  readonly hash: string;
  /** The token's first characters, for people to recognise it by. */
  readonly prefix: string;
  /** Unique among the tokens that are not revoked. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** The plants that it sees and changes are those with one of these tags; undefined for the whole store. */
  readonly tags: readonly string[] | undefined;
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
  /** null for the whole store. */
  readonly tags: readonly string[] | null;
}
