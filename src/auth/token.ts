/** Tokens have the form `pst_<random>_<checksum>`. */

import type { Scope, TokenRecord } from "../domain/token.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 36 characters hold 214 bits; 178 of them stay secret when a prefix is shown. */
const RANDOM_LENGTH = 36;
const CHECKSUM_LENGTH = 6;
const PREFIX_LENGTH = "pst_".length + 6;

const TOKEN = new RegExp(`^(pst_[0-9A-Za-z]{${RANDOM_LENGTH}})_([0-9A-Za-z]{${CHECKSUM_LENGTH}})$`);

export function mintToken(): string {
  const body = `pst_${randomText(RANDOM_LENGTH)}`;
  return `${body}_${checksum(body)}`;
}

/** Refuses typos and truncated pastes without a look-up. */
export function isWellFormedToken(token: string): boolean {
  const match = TOKEN.exec(token);
  return match !== null && checksum(match[1] ?? "") === match[2];
}

/** A token has too many random bits to be guessed from its hash: it needs neither salt nor a slow hash. */
export function hashToken(token: string): string {
  return Bun.SHA256.hash(token, "hex");
}

interface TokenGrant {
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly createdAtMs: number;
  readonly expiresAtMs?: number | undefined;
  readonly rate?: string | undefined;
}

export function toRecord(token: string, grant: TokenGrant): TokenRecord {
  return {
    hash: hashToken(token),
    prefix: token.slice(0, PREFIX_LENGTH),
    name: grant.name,
    scopes: grant.scopes,
    createdAtMs: grant.createdAtMs,
    expiresAtMs: grant.expiresAtMs,
    lastUsedAtMs: undefined,
    revokedAtMs: undefined,
    rate: grant.rate,
  };
}

function checksum(text: string): string {
  let rest = Bun.hash.crc32(text);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** Every character is equally likely: bytes past the last multiple of the alphabet's length are dropped. */
function randomText(length: number): string {
  const limit = 256 - (256 % ALPHABET.length);
  let text = "";
  while (text.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(length))) {
      if (byte < limit && text.length < length) text += ALPHABET.charAt(byte % ALPHABET.length);
    }
  }
  return text;
}
