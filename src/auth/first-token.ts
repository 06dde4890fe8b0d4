/** The first token of a new store: created once, and shown to its owner or written to a file. */

import { readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { syncFile } from "../descriptor.ts";
import { StoreOpenError } from "../domain/errors.ts";
import type { TokenStore } from "../domain/store.ts";
import { parseStoreUrl } from "../store-url.ts";
import { scopes } from "../domain/token.ts";
import type { KeyLog } from "./jwt.ts";
import { hashToken, mintToken, type Tokens, toRecord } from "./token.ts";

/** Shown on a terminal, or written to a file beside the store, never logged. */
export type FirstToken = Readonly<{ token?: string | undefined; tokenFile?: string }>;

/** Makes none if the store has ever had a token, or PLANTSTORE_TOKEN is set. */
export async function giveFirstToken(
  store: TokenStore,
  { token, databaseUrl }: Readonly<{ token: string | undefined; databaseUrl: string }>,
  isShown: boolean,
  log: KeyLog,
): Promise<FirstToken> {
  if (token !== undefined) return {};
  if (isShown) return { token: await makeFirstToken(store) };
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "sqlite") return keepFirstToken(store, `${resolve(url.path)}.token`);
  // A pipe may end in a log, and no folder belongs to the store.
  if (!(await hasTokens(store)))
    log.warn("no_token", {
      warning: `The store has no token. Create one: plantstore token create --name me --scopes ${scopes.join()}`,
    });
  return {};
}

/** A file at this path belongs to an earlier store, or has the token that another service has just made. */
export async function keepFirstToken(store: TokenStore, tokenFile: string): Promise<FirstToken> {
  const token = await makeFirstToken(store, (text) => draftFile(tokenFile, text));
  const isKept = token !== undefined || (await adoptDraft(store, tokenFile));
  return isKept ? { tokenFile } : {};
}

/**
 * Mode 0600. Written before the token is stored: a store gets only one first token, so it must be readable after a crash.
 * The draft has a name of its own, and replaces the file when its token is stored: of two services that start at once,
 * neither removes or overwrites the token of the other.
 */
function draftFile(file: string, token: string) {
  // Fails now, not when the token is stored.
  if (statSync(file, { throwIfNoEntry: false })?.isDirectory())
    throw new StoreOpenError(`${file}: a folder has the name of the first token's file.`);
  const draft = `${file}.${crypto.randomUUID()}`;
  writeFileSync(draft, `${token}\n`, { flag: "wx", mode: 0o600 });
  syncFile(draft);
  syncFile(dirname(draft));
  return { confirm: () => publish(draft, file), discard: () => rmSync(draft, { force: true }) };
}

/** Another service may have published the draft already. */
function publish(draft: string, file: string): void {
  try {
    renameSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  syncFile(dirname(file));
}

/** Publishes the draft of a service that crashed after it had stored the token. */
async function adoptDraft(store: TokenStore, file: string): Promise<boolean> {
  const prefix = `${basename(file)}.`;
  for (const name of readdirSync(dirname(file)).filter((each) => each.startsWith(prefix))) {
    const draft = join(dirname(file), name);
    const token = (
      await Bun.file(draft)
        .text()
        .catch(() => "")
    ).trim();
    if ((await store.findToken(hashToken(token))) === undefined) continue;
    publish(draft, file);
    return true;
  }
  return false;
}

/** Revoked and expired tokens count too. */
const hasTokens = async (tokens: Tokens): Promise<boolean> =>
  (await tokens.listTokens({ after: "", limit: 1 })).length > 0;

/** Where a new token is kept before the store has it. Then it is confirmed, or discarded if another was first. */
interface TokenDraft {
  readonly confirm: () => void;
  readonly discard: () => void;
}

/** Makes a token for a store that has never had one. If several services start at once, one makes it: names are unique. */
export async function makeFirstToken(tokens: Tokens, draft?: (token: string) => TokenDraft) {
  if (await hasTokens(tokens)) return undefined;
  const token = mintToken();
  const record = toRecord(token, { name: "first", scopes, createdAtMs: Date.now() });
  const drafted = draft?.(token);
  const isMade = await tokens.createToken(record);
  if (isMade) drafted?.confirm();
  else drafted?.discard();
  return isMade ? token : undefined;
}
