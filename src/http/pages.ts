/** Files for browsers, by exact names from a list made at the start: no URL ever becomes a path of a file. */

import { existsSync, readFileSync } from "node:fs";
import { Refusal } from "../domain/errors.ts";
import { isUnmodified } from "./preconditions.ts";
import type { Answer, Operation } from "./service.ts";

interface PagesOptions {
  /** By the name in the URL, the path of the file. One of the same path and `.gz` is its compressed form. */
  readonly files: Readonly<Record<string, string>>;
  /** The Content-Security-Policy of all of them. */
  readonly policy: string;
  /** Names with a hash of the content in them: what is under such a name never changes. */
  readonly hashed?: RegExp;
}

export interface Pages {
  /** Serves the one file of this name. Throws where there is none, because that is known at the start. */
  readonly serve: (name: string) => Operation;
  /** Serves the file that the path names as `:file`. */
  readonly serveNamed: Operation;
}

type Bytes = Uint8Array<ArrayBuffer>;

interface Form {
  readonly read: () => Bytes | Promise<Bytes>;
  readonly headers: Readonly<Record<string, string>> & { readonly etag: string };
}

interface Page {
  readonly plain: Form;
  readonly compressed: Form | undefined;
}

/** Throws where a file cannot be read. */
export function createPages({ files, policy, hashed }: PagesOptions): Pages {
  const pages = new Map(
    Object.entries(files).map(([name, path]) => {
      const headers = {
        "content-type": typeOf(name),
        "content-security-policy": policy,
        vary: "Accept-Encoding",
      };
      return [name, hashed?.test(name) ? openHashed(name, path, headers) : load(path, headers)];
    }),
  );
  return {
    serve: (name) => {
      const page = pages.get(name);
      if (page === undefined) throw new Error(`there is no page ${name}`);
      return { scope: undefined, handle: (request) => answerPage(request, page) };
    },
    serveNamed: {
      scope: undefined,
      handle: (request) => {
        const page = pages.get(request.params?.["file"] ?? "");
        if (page === undefined) throw new Refusal("path_not_found");
        return answerPage(request, page);
      },
    },
  };
}

type PageHeaders = Readonly<Record<string, string>>;

/** Read when it is asked for, which is once a browser: large scripts do not stay in memory. */
function openHashed(name: string, path: string, common: PageHeaders): Page {
  const headers = { ...common, "cache-control": "public, max-age=31536000, immutable" };
  return makePage(headers, name, path, (file) => () => readAgain(file));
}

/** Kept as it was at the start: the names in a page are those of the files that were there then. */
function load(path: string, common: PageHeaders): Page {
  const headers = { ...common, "cache-control": "no-cache" };
  const hash = Bun.hash(readFileSync(path)).toString(36);
  return makePage(headers, hash, path, (file) => {
    const bytes = readFileSync(file);
    return () => bytes;
  });
}

function makePage(
  headers: PageHeaders,
  hash: string,
  path: string,
  open: (file: string) => Form["read"],
): Page {
  // Two forms of one file are two sequences of bytes, and a strong entity tag names one.
  const plain = { read: open(path), headers: { ...headers, etag: `"${hash}"` } };
  if (!existsSync(`${path}.gz`)) return { plain, compressed: undefined };
  const more = { etag: `"${hash}-gzip"`, "content-encoding": "gzip" };
  return { plain, compressed: { read: open(`${path}.gz`), headers: { ...headers, ...more } } };
}

/** Gone where the pages were built anew since the start. */
async function readAgain(path: string): Promise<Bytes> {
  try {
    return await Bun.file(path).bytes();
  } catch (error) {
    throw new Refusal("path_not_found", undefined, error);
  }
}

async function answerPage(request: Request, { plain, compressed }: Page): Promise<Answer> {
  const isCompressed = acceptsGzip(request.headers.get("accept-encoding"));
  const { read, headers } = (isCompressed ? compressed : undefined) ?? plain;
  if (!isUnmodified(request.headers, headers.etag))
    return { status: 200, body: await read(), headers };
  const { "content-encoding": _, ...rest } = headers;
  return { status: 304, body: null, headers: rest };
}

/** RFC 9110, section 12.5.3. */
const GZIP = /^(gzip|x-gzip|\*)(?:[ \t]*;[ \t]*q=([\d.]+))?$/;

function acceptsGzip(header: string | null): boolean {
  const codings = (header ?? "").split(",").map((coding) => GZIP.exec(coding.trim().toLowerCase()));
  // What is said of gzip by its name counts for more than what is said of all.
  const named = codings.find((match) => match !== null && match[1] !== "*");
  const found = named ?? codings.find((match) => match !== null);
  return found !== undefined && found !== null && Number(found[2] ?? 1) > 0;
}

const types: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  ico: "image/x-icon",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  png: "image/png",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
  webmanifest: "application/manifest+json",
  woff2: "font/woff2",
};

const typeOf = (name: string): string =>
  types[name.slice(name.lastIndexOf(".") + 1)] ?? "application/octet-stream";
