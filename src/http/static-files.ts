/** Files for browsers: the console and the API reference, as `npm run build` makes them. They show no plant. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Operation, Route } from "./handle.ts";
import { acceptsGzip, isUnmodified } from "./request-headers.ts";

export const CONSOLE_FOLDER = join(import.meta.dir, "../../dist/console");
const DOCS_FOLDER = join(import.meta.dir, "../../dist/docs");

/** A folder that has not been built has no routes. */
export function createFileRoutes({ basePath }: Config, consoleFolder: string): readonly Route[] {
  const routes = [
    ...serve(consoleFolder, "/", "/console/{file}"),
    ...serve(DOCS_FOLDER, "/docs", "/docs/{file}"),
  ];
  // Links in a page are relative: they work only if its path ends in a slash.
  if (basePath !== "" && routes.some(({ path }) => path === "/"))
    routes.push({ path: "", operations: { GET: redirectTo(`${basePath}/`) } });
  return routes;
}

const INDEX = "index.html";

function serve(folder: string, ...paths: readonly string[]): Route[] {
  if (!existsSync(join(folder, INDEX))) return [];
  const files = readFiles(folder);
  const GET: Operation = {
    scope: undefined,
    handle: ({ request }) => answerFile(request, files.get(request.params?.["file"] ?? INDEX)),
  };
  return paths.map((path) => ({ path, operations: { GET } }));
}

const redirectTo = (location: string): Operation => ({
  scope: undefined,
  handle: () => new Response(null, { status: 308, headers: { ...SECURITY_HEADERS, location } }),
});

/** No inline code, nothing from another origin, no frame around it. */
const SECURITY_HEADERS = {
  "content-security-policy": [
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
  ].join("; "),
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

/** One sequence of bytes, so one strong entity tag. All clients are sent the same copy. */
interface Form {
  readonly content: Blob;
  readonly headers: Readonly<Record<string, string>> & { readonly etag: string };
}

interface StaticFile {
  readonly plain: Form;
  readonly compressed: Form | undefined;
}

/** The name has a hash of the content, so the content never changes. */
const HASHED = /-[0-9a-z]{8,}\.[0-9a-z]+$/;

/** By the name in the URL, as they are at the start: no URL becomes a path, and a page finds the files of its build. */
function readFiles(folder: string): ReadonlyMap<string, StaticFile> {
  const names = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".gz"))
    .map(({ name }) => name);
  return new Map(names.map((name) => [name, openFile(name, join(folder, name))]));
}

function openFile(name: string, path: string): StaticFile {
  const content = readFileSync(path);
  const isHashed = HASHED.test(name);
  const hash = isHashed ? name : Bun.hash(content).toString(36);
  const headers = {
    ...SECURITY_HEADERS,
    "content-type": types[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream",
    "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "Accept-Encoding",
  };
  const gzip = { ...headers, etag: `"${hash}-gzip"`, "content-encoding": "gzip" };
  return {
    plain: { content: new Blob([content]), headers: { ...headers, etag: `"${hash}"` } },
    compressed: existsSync(`${path}.gz`)
      ? { content: new Blob([readFileSync(`${path}.gz`)]), headers: gzip }
      : undefined,
  };
}

function answerFile({ headers: sent }: Request, file: StaticFile | undefined): Response {
  if (file === undefined) throw new Refusal("path_not_found");
  const compressed = acceptsGzip(sent.get("accept-encoding")) ? file.compressed : undefined;
  const { content, headers } = compressed ?? file.plain;
  const isKnown = isUnmodified(sent, headers.etag);
  return new Response(isKnown ? null : content, { status: isKnown ? 304 : 200, headers });
}

const types: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};
