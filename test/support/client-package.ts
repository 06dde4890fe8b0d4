/** The client as its users have it: built, in a node_modules folder of its own. */

import { cpSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { buildClient } from "../../scripts/build-client.ts";
import { makeTemporaryFolder, type TemporaryFolder } from "./folder.ts";

const root = join(import.meta.dir, "../..");

/** A folder in which `@plantstore/client` is installed. */
export async function installClient(): Promise<TemporaryFolder> {
  const folder = makeTemporaryFolder();
  const installed = join(folder.path, "node_modules/@plantstore/client");
  mkdirSync(installed, { recursive: true });
  cpSync(join(root, "client/package.json"), join(installed, "package.json"));
  await buildClient(join(installed, "dist"));
  return folder;
}

export const clientScript = (folder: TemporaryFolder): string =>
  join(folder.path, "node_modules/@plantstore/client/dist/client.js");
