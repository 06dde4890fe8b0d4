/** German. */

import type { Translation } from "./en.ts";
import { changes } from "./de/changes.ts";
import { errors } from "./de/errors.ts";
import { imports } from "./de/imports.ts";
import { operators } from "./de/operators.ts";
import { plants } from "./de/plants.ts";
import { shared } from "./de/shared.ts";
import { shell } from "./de/shell.ts";
import { tools } from "./de/tools.ts";

export const de: Translation = {
  shared,
  shell,
  plants,
  changes,
  imports,
  tools,
  operators,
  errors,
};
