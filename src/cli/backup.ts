/** plantstore backup: a verified copy of the store, whether the service runs or not. */

import type { Config } from "../config.ts";
import { backUpStore } from "../store/sqlite/backup.ts";
import { parseFile, reportTransfer, requireFile, type TransferOptions } from "./copying.ts";

export async function backUp(
  config: Config,
  file: string,
  { json = false }: TransferOptions,
): Promise<void> {
  const from = requireFile(config.databaseUrl);
  const to = parseFile(file);
  await reportTransfer(
    { event: "backed_up", sentence: "Backed up, and the copy verified.", from, asJson: json },
    (signal) => backUpStore({ from, to, signal }),
  );
}
