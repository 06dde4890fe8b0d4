/** Files for browsers: the console and the API reference, as `npm run build` makes them. They show no plant. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Exchange, Operation, Route } from "./handle.ts";
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
  const files = findFiles(folder);
  if (files === undefined) return [];
  const GET: Operation = {
    scope: undefined,
    handle: (exchange) =>
      answerFile(exchange, files.get(exchange.request.params?.["file"] ?? INDEX)),
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

/** By the name in the URL. The names are listed at the start: no URL becomes a path of the file system. */
type Files = ReadonlyMap<string, StaticFile>;

interface StaticFile {
  readonly plain: Form;
  readonly compressed: Form | undefined;
}

/** One sequence of bytes, so one strong entity tag. All clients are sent the same copy. */
interface Form {
  readonly load: () => Blob | Promise<Blob>;
  readonly headers: Readonly<Record<string, string>> & { readonly etag: string };
}

/** The name has a hash of the content, so the content never changes. */
const HASHED = /-[0-9a-z]{8,}\.[0-9a-z]+$/;

function findFiles(folder: string): Files | undefined {
  if (!existsSync(join(folder, INDEX))) return undefined;
  const names = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".gz"))
    .map(({ name }) => name);
  return new Map(names.map((name) => [name, openFile(name, join(folder, name))]));
}

function openFile(name: string, path: string): StaticFile {
  const isHashed = HASHED.test(name);
  const open = isHashed ? loadOnDemand : loadNow;
  const hash = isHashed ? name : Bun.hash(readFileSync(path)).toString(36);
  const headers = {
    ...SECURITY_HEADERS,
    "content-type": typeOf(name),
    "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "Accept-Encoding",
  };
  return {
    plain: { load: open(path), headers: { ...headers, etag: `"${hash}"` } },
    compressed: existsSync(`${path}.gz`)
      ? { load: open(`${path}.gz`), headers: { ...headers, etag: `"${hash}-gzip"` } }
      : undefined,
  };
}

/** As it was at the start: it names the hashed files of that time. */
function loadNow(path: string): Form["load"] {
  const blob = new Blob([readFileSync(path)]);
  return () => blob;
}

/** Most services never show the reference, so its large scripts are read when a browser first asks. */
function loadOnDemand(path: string): Form["load"] {
  let blob: Promise<Blob> | undefined;
  return () => {
    blob ??= readBlob(path).catch((error: unknown) => {
      blob = undefined;
      // A new build has replaced the file.
      const isGone = (error as { code?: unknown }).code === "ENOENT";
      throw isGone ? new Refusal("path_not_found", undefined, error) : error;
    });
    return blob;
  };
}

const readBlob = async (path: string): Promise<Blob> => new Blob([await Bun.file(path).bytes()]);

async function answerFile({ request }: Exchange, file: StaticFile | undefined): Promise<Response> {
  if (file === undefined) throw new Refusal("path_not_found");
  const isCompressed = acceptsGzip(request.headers.get("accept-encoding"));
  const form = (isCompressed ? file.compressed : undefined) ?? file.plain;
  const { headers } = form;
  if (isUnmodified(request.headers, headers.etag))
    return new Response(null, { status: 304, headers });
  const response = new Response(await form.load(), { headers });
  if (form === file.compressed) response.headers.set("content-encoding", "gzip");
  return response;
}

const types: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

const typeOf = (name: string): string =>
  types[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream";
