/** Files for browsers: the console and the API reference, as `npm run build` makes them. They show no plant. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import { matches } from "../domain/entity-tag.ts";
import { pickLimits } from "../domain/faults.ts";
import type { Exchange, Service } from "./exchange.ts";
import { readConditions, type Values } from "./field.ts";
import { answer } from "./answer.ts";
import { openOperation, type Operation, type Route } from "./handle.ts";
import { acceptsGzip, prefixOf } from "./query.ts";

export const CONSOLE_FOLDER = join(import.meta.dir, "../../dist/console");
const DOCS_FOLDER = join(import.meta.dir, "../../dist/docs");

/** No routes for a folder that has not been built. */
export function createFileRoutes(config: Config, consoleFolder: string): readonly Route[] {
  const { basePath } = config;
  const routes = [
    ...serve(readFiles(consoleFolder, adaptTo(config)), "/", "/console/{file}"),
    ...serve(readFiles(DOCS_FOLDER), "/docs", "/docs/{file}"),
  ];
  const redirect: Operation["run"] = (_input, exchange) =>
    answer(308, null, { location: `${prefixOf(exchange)}${basePath}/` });
  // A page's links are relative: they work only if its path ends in a slash.
  if (basePath !== "" && routes.some(({ path }) => path === "/"))
    routes.push({ path: "", operations: { GET: openOperation(redirect) } });
  return routes;
}

const INDEX = "index.html";

function serve(files: Files | undefined, ...paths: readonly string[]): Route[] {
  if (files === undefined) return [];
  const GET = openOperation(
    ({ headers }, exchange) =>
      answerFile(exchange, files, headers as Values<typeof readConditions>),
    { headers: readConditions },
  );
  return paths.map((path) => ({ path, operations: { GET } }));
}

/** No inline code, nothing from another origin, no framing. */
const POLICY = "content-security-policy";
const SECURITY_HEADERS = {
  [POLICY]:
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "worker-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; " +
    "frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

/** What the page of the console has of the configuration: limits, and the issuer, to which it may connect. */
function adaptTo(config: Config) {
  const { jwtIssuer, jwtAudience, jwtClientId } = config;
  const hasIssuer = jwtClientId !== "";
  const settings = {
    ...(hasIssuer && { issuer: jwtIssuer, audience: jwtAudience, "client-id": jwtClientId }),
    limits: JSON.stringify(pickLimits(config)),
  };
  const attributes = Object.entries(settings).map(
    ([name, value]) => `data-${name}="${Bun.escapeHTML(value)}" `,
  );
  const origin = hasIssuer ? new URL(jwtIssuer).origin : undefined;
  return { attributes: attributes.join(""), origin };
}

type Adaptation = ReturnType<typeof adaptTo>;

/** The name has a content hash, so the file is immutable. */
const HASHED = /-[0-9a-z]{8,}\.[0-9a-z]+$/;
const GZIP = /\.gz$/;

type File = ReturnType<typeof readFile>;
type Files = ReadonlyMap<string, File>;

/** Keyed by name and read at the start: no URL becomes a path, and a page gets the files of its own build. */
function readFiles(folder: string, adaptation?: Adaptation): Files | undefined {
  if (!existsSync(join(folder, INDEX))) return undefined;
  const entries = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(entries.map(({ name }) => [name, readFile(name, join(folder, name), adaptation)]));
}

/** One byte sequence, so one strong entity tag. All clients share the same copy. */
function readFile(name: string, path: string, adaptation: Adaptation | undefined) {
  const plainName = name.replace(GZIP, "");
  const isHashed = HASHED.test(plainName);
  const adapted = plainName === INDEX ? adaptation : undefined;
  const content = adapted === undefined ? readFileSync(path) : adapt(path, adapted);
  const issuerOrigin = adapted?.origin;
  const headers = {
    ...SECURITY_HEADERS,
    ...(issuerOrigin !== undefined && allowOrigin(SECURITY_HEADERS, issuerOrigin)),
    "content-type": Bun.file(plainName).type,
    "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "Accept-Encoding",
    etag: `"${isHashed ? name : Bun.hash(content).toString(36)}"`,
    ...(name !== plainName && { "content-encoding": "gzip" }),
  };
  return {
    content: new Blob([content]),
    headers,
    issuerOrigin,
  };
}

const allowOrigin = (headers: Readonly<Record<typeof POLICY, string>>, origin: string) => ({
  [POLICY]: headers[POLICY].replace("connect-src 'self'", `$& ${origin}`),
});

function adapt(path: string, { attributes }: Adaptation): Uint8Array<ArrayBuffer> {
  const page = readFileSync(path.replace(GZIP, ""), "utf8");
  const adapted = Buffer.from(page.replace(/<html\s/, () => `<html ${attributes}`));
  return GZIP.test(path) ? Bun.gzipSync(adapted) : adapted;
}

async function answerFile(
  { request, service }: Exchange,
  files: Files,
  conditions: Values<typeof readConditions>,
): Promise<Response> {
  const { headers: sent, params } = request;
  const name = params?.["file"] ?? INDEX;
  const compressed = acceptsGzip(sent.get("accept-encoding")) ? files.get(`${name}.gz`) : undefined;
  const file = compressed ?? files.get(name);
  if (file === undefined || GZIP.test(name)) throw new Refusal("path_not_found");
  const headers =
    file.issuerOrigin === undefined ? file.headers : await adaptHeaders(file, service);
  const isKnown = matches(conditions["If-None-Match"] ?? [], headers.etag);
  const status = isKnown ? 304 : 200;
  return new Response(isKnown ? null : file.content, { status, headers });
}

/** The issuer's token endpoint may be at another origin, which only its discovery document names. */
async function adaptHeaders({ headers, issuerOrigin }: File, { authenticator }: Service) {
  const origin = await authenticator.findTokenOrigin();
  if (origin === undefined || origin === issuerOrigin) return headers;
  // A browser that has the page with the earlier policy gets it again.
  const etag = headers.etag.replace(/"$/, `-${Bun.hash(origin).toString(36)}"`);
  return { ...headers, ...allowOrigin(headers, origin), etag };
}
