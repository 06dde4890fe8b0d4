/** The URL of a store: of which engine it is, and what of it may be shown. */

import { isPostgresUrl, parsePostgresUrl, type Target } from "./postgres/url.ts";

export type StoreUrl =
  | { readonly engine: "sqlite"; readonly path: string }
  | { readonly engine: "postgres"; readonly target: Target };

/** Throws a TypeError that says what is wrong with it, without its password. */
export function parseStoreUrl(url: string): StoreUrl {
  return isPostgresUrl(url)
    ? { engine: "postgres", target: parsePostgresUrl(url) }
    : { engine: "sqlite", path: parseSqlitePath(url) };
}

const SQLITE_SCHEME = "sqlite:";

/** `sqlite:./relative.db`, `sqlite:/absolute.db` or `sqlite:///absolute.db`. Throws where it is neither. */
function parseSqlitePath(url: string): string {
  if (!url.startsWith(SQLITE_SCHEME)) throw new TypeError("it is of no store that we know");
  const path = url.slice(SQLITE_SCHEME.length).replace(/^\/\/(?=\/)/, "");
  // Nothing is taken in and then ignored: neither a host, nor options, nor a store in memory.
  if (path === "" || path.startsWith("//") || /^(:|file:)/.test(path) || /[?#\0]/.test(path))
    throw new TypeError("it is not the path of a file");
  return path;
}

/** For people. Where it is malformed, nothing is shown that might be a password. */
export function maskStoreUrl(url: string): string {
  if (url.startsWith(SQLITE_SCHEME)) return url;
  if (isWellFormed(url)) return url.replace(/^([a-z]+:\/\/[^:@]*):[^@]*@/, "$1:********@");
  const scheme = /^[a-z]+:\/\//.exec(url)?.[0] ?? "";
  return /[:@=]/.test(url.slice(scheme.length)) ? `${scheme}********` : url;
}

function isWellFormed(url: string): boolean {
  try {
    parseStoreUrl(url);
    return true;
  } catch {
    return false;
  }
}
