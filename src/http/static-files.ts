/** Files for browsers: the console and the API reference, as `npm run build` makes them. They show no plant. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Exchange } from "./exchange.ts";
import { answer, type Operation, type Route } from "./handle.ts";
import { acceptsGzip, isUnmodified } from "./query.ts";

export const CONSOLE_FOLDER = join(import.meta.dir, "../../dist/console");
const DOCS_FOLDER = join(import.meta.dir, "../../dist/docs");

/** No routes for a folder that has not been built. */
export function createFileRoutes({ basePath }: Config, consoleFolder: string): readonly Route[] {
  const routes = [
    ...serve(consoleFolder, "/", "/console/{file}"),
    ...serve(DOCS_FOLDER, "/docs", "/docs/{file}"),
  ];
  const redirect = () => answer(308, null, { location: `${basePath}/` });
  // A page's links are relative: they work only if its path ends in a slash.
  if (basePath !== "" && routes.some(({ path }) => path === "/"))
    routes.push({ path: "", operations: { GET: { scope: undefined, handle: redirect } } });
  return routes;
}

const INDEX = "index.html";

function serve(folder: string, ...paths: readonly string[]): Route[] {
  if (!existsSync(join(folder, INDEX))) return [];
  const files = readFiles(folder);
  const handle: Operation["handle"] = ({ request }) => answerFile(request, files);
  return paths.map((path) => ({ path, operations: { GET: { scope: undefined, handle } } }));
}

/** No inline code, nothing from another origin, no framing. */
const SECURITY_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "worker-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; " +
    "frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

/** The name has a content hash, so the file is immutable. */
const HASHED = /-[0-9a-z]{8,}\.[0-9a-z]+$/;
const GZIP = /\.gz$/;

/** Keyed by name and read at the start: no URL becomes a path, and a page gets the files of its own build. */
function readFiles(folder: string) {
  const entries = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(entries.map(({ name }) => [name, readFile(name, join(folder, name))]));
}

/** One byte sequence, so one strong entity tag. All clients share the same copy. */
function readFile(name: string, path: string) {
  const content = readFileSync(path);
  const plainName = name.replace(GZIP, "");
  const isHashed = HASHED.test(plainName);
  const headers = {
    ...SECURITY_HEADERS,
    "content-type": Bun.file(plainName).type,
    "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "Accept-Encoding",
    etag: `"${isHashed ? name : Bun.hash(content).toString(36)}"`,
    ...(name !== plainName && { "content-encoding": "gzip" }),
  };
  return { content: new Blob([content]), headers };
}

function answerFile(
  { headers: sent, params }: Exchange["request"],
  files: ReturnType<typeof readFiles>,
): Response {
  const name = params?.["file"] ?? INDEX;
  const compressed = acceptsGzip(sent.get("accept-encoding")) ? files.get(`${name}.gz`) : undefined;
  const file = compressed ?? files.get(name);
  if (file === undefined || GZIP.test(name)) throw new Refusal("path_not_found");
  const isKnown = isUnmodified(sent, file.headers.etag);
  const status = isKnown ? 304 : 200;
  return new Response(isKnown ? null : file.content, { status, headers: file.headers });
}
