/** The console: pages made by `npm run build`, and clients of the interface like any other. */

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { createPages, type Pages } from "./pages.ts";

export const CONSOLE_FOLDER = join(import.meta.dir, "../../dist/console");

/** Nothing inline, nothing from elsewhere, and in nobody's frame. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "worker-src 'self'",
  "font-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** As the bundler names what it makes. */
const HASHED = /-[0-9a-z]{8,}\.[0-9a-z]+$/;

/** Undefined where the console has not been built. */
export function findConsolePages(folder: string): Pages | undefined {
  if (!existsSync(join(folder, "index.html"))) return undefined;
  const names = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".gz"))
    .map(({ name }) => name);
  const files = Object.fromEntries(names.map((name) => [name, join(folder, name)]));
  return createPages({ files, policy: POLICY, hashed: HASHED });
}
