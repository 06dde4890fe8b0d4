/** plantstore restore: a verified backup becomes the store, which no service may be using. */

import type { Config } from "../config.ts";
import { restoreStore } from "../store/sqlite/backup.ts";
import { parseFile, reportTransfer, requireFile, type TransferOptions } from "./copying.ts";

export async function restore(
  config: Config,
  file: string,
  { json = false }: TransferOptions,
): Promise<void> {
  const from = parseFile(file);
  const to = requireFile(config.databaseUrl);
  await reportTransfer(
    { event: "restored", sentence: "Restored, and the store verified.", from, asJson: json },
    (signal) => restoreStore({ from, to, signal }),
  );
}
