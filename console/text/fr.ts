/** French. */

import type { Translation } from "./en.ts";
import { changes } from "./fr/changes.ts";
import { errors } from "./fr/errors.ts";
import { imports } from "./fr/imports.ts";
import { operators } from "./fr/operators.ts";
import { plants } from "./fr/plants.ts";
import { shared } from "./fr/shared.ts";
import { shell } from "./fr/shell.ts";
import { tools } from "./fr/tools.ts";

export const fr: Translation = {
  shared,
  shell,
  plants,
  changes,
  imports,
  tools,
  operators,
  errors,
};
