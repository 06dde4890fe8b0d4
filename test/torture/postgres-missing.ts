/** Whether PostgreSQL's programs are here, and what to do where they are not. */

import { findPostgresBinaries } from "../support/postgres-files.ts";

export function findMissingPostgres(): string | undefined {
  try {
    findPostgresBinaries();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
