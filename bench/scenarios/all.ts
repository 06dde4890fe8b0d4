/** Every scenario, in the order in which it is measured and shown. */

import type { Scenario } from "../scenario.ts";
import { bulkExport, bulkImport } from "./bulk.ts";
import { create } from "./create.ts";
import { random, size, tagIndex } from "./create-variants.ts";
import { postgresCreate } from "./postgres-create.ts";
import { postgresImport, postgresRead } from "./postgres-read.ts";
import { get, list, mixed } from "./read.ts";
import { start } from "./start.ts";
import { workers } from "./workers.ts";

export const scenarios: readonly Scenario[] = [
  create,
  get,
  list,
  mixed,
  size,
  tagIndex,
  random,
  bulkImport,
  bulkExport,
  postgresCreate,
  postgresRead,
  postgresImport,
  workers,
  start,
];
