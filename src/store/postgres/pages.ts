/** Pages of plants by key, and searches by name: in pieces, so that neither side holds much at a time. */

import { firstIdOf, type PlantPage, type PlantQuery, takePage } from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import type { Connection, Parameter } from "./connection.ts";
import { type PlantRow, toPlant } from "../rows.ts";

/** What is sent of one page; the names in it may be long. */
const PIECE_BYTES_MAX = 4_194_304;
const PIECE_ROWS_MAX = 2_000;

interface Piece {
  readonly plants: readonly Plant[];
  /** Rows that were left out because those before them are large enough together. */
  readonly isCut: boolean;
}

/** `scanRowsMax` bounds a search. */
export async function listPlants(
  connection: Connection,
  query: PlantQuery,
  scanRowsMax: number,
  deadlineMs: number,
): Promise<PlantPage> {
  const plants: Plant[] = [];
  let rowsLeft = query.name === undefined ? query.limit : scanRowsMax;
  for (let { after } = query; ;) {
    const rows = Math.min(rowsLeft, PIECE_ROWS_MAX);
    const rest = { ...query, after, limit: query.limit - plants.length };
    const piece = await readPiece(connection, rest, rows + 1, deadlineMs);
    const page = takePage(piece.plants, rest, rows);
    plants.push(...page.plants);
    const next = page.next ?? (piece.isCut ? piece.plants.at(-1)?.id : undefined);
    rowsLeft -= rows;
    const isWhole = page.next !== undefined && page.next === piece.plants[rows - 1]?.id;
    const isOver = plants.length === query.limit || rowsLeft === 0 || !isWhole;
    if (next === undefined || isOver) return { plants, next };
    after = next;
  }
}

async function readPiece(
  connection: Connection,
  query: PlantQuery,
  rowsMax: number,
  deadlineMs: number,
): Promise<Piece> {
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { plants: [], isCut: false };
  const parameters: Parameter[] = [firstId, rowsMax, PIECE_BYTES_MAX];
  if (query.tag !== undefined) parameters.push(query.tag);
  const rows = await connection.query<PlantRow & { found: bigint }>(
    statementOf(query),
    parameters,
    deadlineMs,
  );
  return { plants: rows.map(toPlant), isCut: rows.length < Number(rows[0]?.found ?? 0) };
}

/** Rows in key order, as long as those before them are not too large together; the first one always. */
function statementOf({ tag, order }: PlantQuery): string {
  const [from, direction] = order === "asc" ? [">=", "ASC"] : ["<=", "DESC"];
  const isTagged =
    tag === undefined ? "" : "AND left(tag, 100) = left($4::text, 100) AND tag = $4::text";
  return `SELECT id, name, tag, found FROM (
    SELECT id, name, tag, count(*) OVER () AS found,
      sum(octet_length(name) + coalesce(octet_length(tag), 0))
        OVER (ORDER BY id ${direction} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
      SELECT id, name, tag FROM plants WHERE id ${from} $1::bigint ${isTagged}
      ORDER BY id ${direction} LIMIT $2::int
    ) AS page
  ) AS sized
  WHERE coalesce(bytes_before, 0) <= $3::bigint
  ORDER BY id ${direction}`;
}
