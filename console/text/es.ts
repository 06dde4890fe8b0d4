/** Spanish. */

import type { Translation } from "./en.ts";
import { changes } from "./es/changes.ts";
import { errors } from "./es/errors.ts";
import { imports } from "./es/imports.ts";
import { operators } from "./es/operators.ts";
import { plants } from "./es/plants.ts";
import { shared } from "./es/shared.ts";
import { shell } from "./es/shell.ts";
import { tools } from "./es/tools.ts";

export const es: Translation = {
  shared,
  shell,
  plants,
  changes,
  imports,
  tools,
  operators,
  errors,
};
