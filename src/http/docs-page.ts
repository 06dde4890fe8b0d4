/** The API reference: Swagger UI over our own description, made by `npm run build`. */

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { createPages } from "./pages.ts";
import type { Route } from "./service.ts";

const FOLDER = join(import.meta.dir, "../../dist/docs");

/** As strict as the console's. Swagger UI's stylesheet has its icons in itself. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** As the build names whatever may change. */
const HASHED = /-[0-9a-z]{10}\.[a-z]+$/;

/** None where the page has not been built. */
export function createDocsRoutes(folder: string = FOLDER): readonly Route[] {
  if (!existsSync(join(folder, "index.html"))) return [];
  const names = readdirSync(folder).filter((name) => !name.endsWith(".gz"));
  const files = Object.fromEntries(names.map((name) => [name, join(folder, name)]));
  const pages = createPages({ files, policy: POLICY, hashed: HASHED });
  return [
    { path: "/docs", operations: { GET: pages.serve("index.html") } },
    { path: "/docs/:file", operations: { GET: pages.serveNamed } },
  ];
}
