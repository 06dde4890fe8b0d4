/** Where a copy comes from and where it goes to: two different stores, the first of which is there. */

import { type Config, describeRefused, settings, tryParse } from "../config.ts";
import { describeHost } from "../store/postgres/url.ts";
import { getSchemaVersion, migrations, readStore } from "../store/sqlite/database.ts";
import { parseStoreUrl, type StoreUrl } from "../store/open.ts";
import { CommandError, UsageError } from "./failure.ts";
import { resolveOptions } from "./options.ts";
import { isSameFile, requireOutsideStore } from "./same-file.ts";
import { requireStore } from "./with-store.ts";

interface EndOptions {
  readonly from?: string;
  readonly to?: string;
}

/** The same settings for both, but for the store. */
export interface Ends {
  readonly from: Config;
  readonly to: Config;
}

/** DATABASE_URL stands in for the one that is left out. */
export function parseEnds(options: EndOptions): Ends {
  const from = options.from === undefined ? undefined : parseUrl("--from", options.from);
  const to = options.to === undefined ? undefined : parseUrl("--to", options.to);
  if (from === undefined && to === undefined)
    throw new UsageError(
      `--from, --to: at least one is needed; ${settings.databaseUrl.env} stands in for the other`,
    );
  // As a flag it keeps the environment, which does not matter then, from being judged.
  const given = from !== undefined && to !== undefined ? { databaseUrl: from } : {};
  const { config } = resolveOptions(given);
  const ends = {
    from: { ...config, databaseUrl: from ?? config.databaseUrl },
    to: { ...config, databaseUrl: to ?? config.databaseUrl },
  };
  requireDifferent(ends);
  return ends;
}

function parseUrl(flag: string, text: string): string {
  const setting = settings.databaseUrl;
  const { reason } = tryParse(setting, text);
  if (reason === undefined) return text;
  throw new UsageError(`${flag}: ${describeRefused(setting, text, reason)}`);
}

function requireDifferent({ from, to }: Ends): void {
  const [one, other] = [parseStoreUrl(from.databaseUrl), parseStoreUrl(to.databaseUrl)];
  if (isSameStore(one, other)) throw new UsageError("--from, --to: both are the same store");
  if (one.engine !== "sqlite" || other.engine !== "sqlite") return;
  // A file beside either store that SQLite takes for its log is no place for the other.
  requireOutsideStore("--to", other.path, from.databaseUrl);
  requireOutsideStore("--from", one.path, to.databaseUrl);
}

/** A server may have several names, and then only the checksums tell. */
function isSameStore(one: StoreUrl, other: StoreUrl): boolean {
  if (one.engine === "sqlite") return other.engine === "sqlite" && isSameFile(one.path, other.path);
  if (other.engine === "sqlite" || one.target.database !== other.target.database) return false;
  const hosts = new Set(one.target.hosts.map(describeHost));
  return other.target.hosts.some((host) => hosts.has(describeHost(host)));
}

/** Throws where opening the source would make or change it. */
export async function requireSource(config: Config): Promise<void> {
  await requireStore(config);
  const { location, version, newest } = await findSourceSchema(config);
  if (version < newest)
    throw new CommandError(
      `${location} has schema ${version}, and a copy does not change its source. ` +
        `Start this version of plantstore on it, which migrates it to ${newest}, and copy it then.`,
    );
}

interface SourceSchema {
  readonly location: string;
  readonly version: number;
  readonly newest: number;
}

async function findSourceSchema(config: Config): Promise<SourceSchema> {
  const url = parseStoreUrl(config.databaseUrl);
  if (url.engine === "sqlite") {
    const { path } = url;
    const version = readStore(path, (db) => getSchemaVersion(db, path));
    return { location: path, version, newest: migrations.length };
  }
  const { findSchema } = await import("../store/postgres/schema.ts");
  const { location, version = 0, newest } = await findSchema(url.target, config);
  return { location, version, newest };
}

/** The store as an argument of another command; where it may hold a password, whoever reads this knows it. */
export function formatDatabaseUrlFlag({ databaseUrl }: Config): string {
  const isPlain = /^[\w./:@+-]+$/.test(databaseUrl);
  const quoted = isPlain ? databaseUrl : `'${databaseUrl.replaceAll("'", `'\\''`)}'`;
  const isSqlite = parseStoreUrl(databaseUrl).engine === "sqlite";
  return `${settings.databaseUrl.flag} ${isSqlite ? quoted : "…"}`;
}
