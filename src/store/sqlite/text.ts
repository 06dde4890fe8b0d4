/** Names and tags that no request could have stored: not UTF-8, or with U+0000. SQLite itself does not mind. */

import type { Database } from "bun:sqlite";
import type { PlantRow } from "../rows.ts";

/** What the driver puts in the place of bytes that are not UTF-8; it may as well be stored as itself. */
const REPLACEMENT = "\uFFFD";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** One look at every plant; a second, at its bytes, only where the first finds it suspicious. */
export function findUnstorableTexts(db: Database, faultsMax: number): string[] {
  const faults: string[] = [];
  const bytesOf = db.query<Record<"name" | "tag", Uint8Array | null>, [bigint]>(
    "SELECT CAST(name AS BLOB) AS name, CAST(tag AS BLOB) AS tag FROM plants WHERE id = ?",
  );
  for (const row of db.query<PlantRow, []>("SELECT id, name, tag FROM plants").iterate()) {
    if (!isSuspicious(row.name) && (row.tag === null || !isSuspicious(row.tag))) continue;
    const bytes = bytesOf.get(row.id);
    for (const member of ["name", "tag"] as const)
      if (bytes?.[member] && !isStorable(bytes[member]))
        faults.push(`The ${member} of plant ${row.id} is not UTF-8, or has U+0000 in it.`);
    if (faults.length >= faultsMax) break;
  }
  return faults;
}

/** In a damaged file even what has to be a text may be anything. */
const isSuspicious = (text: unknown): boolean =>
  typeof text !== "string" || text.includes(REPLACEMENT) || text.includes("\0");

function isStorable(bytes: Uint8Array): boolean {
  try {
    return !decoder.decode(bytes).includes("\0");
  } catch {
    return false;
  }
}
