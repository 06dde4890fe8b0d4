/** The first token of a new store: shown on a terminal, or kept in a file beside the store, and never in a log. */

import { rmSync, unlinkSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { hasTokens, makeFirstToken } from "../auth/token.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { scopes } from "../domain/token.ts";
import type { Log } from "../observe/log.ts";
import { parseStoreUrl } from "../domain/store-url.ts";
import { syncFile } from "../store/sqlite/database.ts";
import { isTerminal } from "./terminal.ts";

export interface FirstToken {
  /** For a terminal. It is never shown again. */
  readonly token?: string | undefined;
  /** Where it is, as an absolute path. */
  readonly tokenFile?: string;
}

/** Nothing if the store has had a token, or the service has PLANTSTORE_TOKEN. */
export async function giveFirstToken(store: Store, config: Config, log: Log): Promise<FirstToken> {
  if (config.token !== undefined) return {};
  if (isTerminal("stdout")) return { token: await makeFirstToken(store) };
  const url = parseStoreUrl(config.databaseUrl);
  if (url.engine === "sqlite") {
    const tokenFile = `${resolve(url.path)}.token`;
    // Kept first: a store gets only one, so it must be readable.
    const token = await makeFirstToken(store, (made) => keep(tokenFile, made));
    return token === undefined ? {} : { tokenFile };
  }
  // A pipe is kept by a log, and there is no folder that belongs to the store.
  if (!(await hasTokens(store)))
    log.warn("no_token", {
      warning: `The store has no token. Create one: plantstore token create --name me --scopes ${scopes.join()}`,
    });
  return {};
}

/** Readable by its owner alone. A file that is there belongs to a store that was here before. */
function keep(file: string, token: string): Disposable {
  try {
    unlinkSync(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  writeFileSync(file, `${token}\n`, { flag: "wx", mode: 0o600 });
  syncFile(file);
  syncFile(dirname(file));
  return { [Symbol.dispose]: () => rmSync(file, { force: true }) };
}
