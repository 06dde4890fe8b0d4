/**
 * POST /mcp: the Model Context Protocol, stateless. Revision 2026-07-28 declares its version in every request. Those of
 * 2025 begin with `initialize`; nothing is remembered of it, and there are no sessions. 2025-03-26 is not served: it
 * has batches, where one request could make any number of calls.
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
 */

import packageJson from "../../package.json";
import { catalogue, toRefusal } from "../domain/errors.ts";
import { clip, describe, isObject, parseJson } from "../domain/json.ts";
import type { TokenRecord } from "../domain/token.ts";
import { readText } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import { answer, answerText, requireRoomToAnswer } from "./answer.ts";
import { requireScopes } from "./handle.ts";
import type { Members, Tools } from "./tools.ts";

const MODERN = "2026-07-28";
const LEGACY = ["2025-11-25", "2025-06-18"] as const;

/** The errors of JSON-RPC and of MCP, with the HTTP status where the specification demands one. */
const codes = {
  parse_error: [-32_700, 400],
  invalid_request: [-32_600, 400],
  forbidden_origin: [-32_600, 403],
  method_not_found: [-32_601, 404],
  invalid_params: [-32_602, 200],
  malformed_params: [-32_602, 400],
  header_mismatch: [-32_020, 400],
  unsupported_version: [-32_022, 400],
} as const;

class RpcError extends Error {
  readonly code: number;
  readonly status: number;
  readonly data: unknown;

  constructor(name: keyof typeof codes, message: string, data?: unknown) {
    super(message);
    [this.code, this.status] = codes[name];
    this.data = data;
  }
}

/** Undefined without an id: a notification. */
type Id = string | number | undefined;

export async function answerMcp(exchange: Exchange, tools: Tools): Promise<Response> {
  const { headers } = exchange.request;
  let id: Id;
  let isModern = false;
  try {
    const message = await readMessage(exchange);
    requireOrigin(exchange);
    id = findId(message);
    const { method, params } = parseMessage(message);
    isModern = requireVersion(headers, id, method, params);
    if (id === undefined) return answer(202, null);
    if (isModern) requireHeaders(headers, method, params);
    const result = await respond(exchange, tools, isModern, method, params);
    const more = isModern ? `,"resultType":"complete","_meta":${SERVER_META}` : "";
    const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`;
    return answerText(exchange, `${head}${result.slice(0, -1)}${more}}}`);
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    const { code, message, data, status } = error;
    // Before 2026-07-28 an error that answers a request is an ordinary answer.
    const isOrdinary = code === codes.method_not_found[0] && !isModern;
    const body = JSON.stringify({ jsonrpc: "2.0", id, error: { code, message, data } });
    return answerText(exchange, body, undefined, isOrdinary ? 200 : status);
  }
}

async function readMessage(exchange: Exchange): Promise<unknown> {
  try {
    return parseJson(await readText(exchange));
  } catch (error) {
    const { reason, message } = toRefusal(error);
    if (reason !== "invalid_json" && reason !== "invalid_utf8") throw error;
    throw new RpcError("parse_error", message);
  }
}

const LOOPBACK = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

/** Against DNS rebinding: a rebound page has an Origin that agrees with its Host, but it has another name. */
function requireOrigin({ request, service }: Exchange): void {
  const origin = request.headers.get("origin");
  const host = request.headers.get("host") ?? "";
  const allowed = service.config.corsOrigins;
  if (origin === null || allowed.includes("*") || allowed.includes(origin)) return;
  if (
    !LOOPBACK.test(host) ||
    origin !== `http${service.config.tlsCert === "" ? "" : "s"}://${host}`
  )
    throw new RpcError(
      "forbidden_origin",
      `The origin ${clip(origin)} may not call this service; PLANTSTORE_CORS_ORIGINS lists those that may.`,
    );
}

/** A double rounds larger numbers, so the answer would not have the same id. */
const isId = (id: unknown): id is string | number =>
  typeof id === "string" || Number.isSafeInteger(id);

const findId = (message: unknown): Id =>
  isObject(message) && isId(message["id"]) ? message["id"] : undefined;

function parseMessage(message: unknown): { method: string; params: Members } {
  const refuse = (expected: string, actual: unknown): never => {
    throw new RpcError("invalid_request", `${expected}, got ${describe(actual)}`);
  };
  if (!isObject(message)) return refuse("body: expected one JSON-RPC message", message);
  const { jsonrpc, id, method, params = {} } = message;
  if (jsonrpc !== "2.0") return refuse('jsonrpc: expected "2.0"', jsonrpc);
  if (id !== undefined && !isId(id))
    return refuse(`id: expected a string or an integer up to ${Number.MAX_SAFE_INTEGER}`, id);
  if (typeof method !== "string")
    return refuse("method: expected a string; the service sends no requests to answer", method);
  if (!isObject(params))
    throw new RpcError("malformed_params", `params: expected an object, got ${describe(params)}`);
  return { method, params };
}

const META = "io.modelcontextprotocol/";
const SERVER_INFO = { name: "plantstore", title: "Plant Store", version: packageJson.version };
const SERVER_META = JSON.stringify({ [`${META}serverInfo`]: SERVER_INFO });

/** Whether the message is of revision 2026-07-28. */
function requireVersion(headers: Headers, id: Id, method: string, params: Members): boolean {
  const header = headers.get("mcp-protocol-version");
  const meta = isObject(params["_meta"]) ? params["_meta"] : {};
  const version = meta[`${META}protocolVersion`];
  if (version === undefined && header !== MODERN) {
    const isKnown = header === null || LEGACY.some((known) => known === header);
    if (!isKnown && method !== "initialize") refuseVersion(header);
    return false;
  }
  // A notification may leave out all of this.
  if (version === undefined && id === undefined) return true;
  if (typeof version !== "string") return refuseMeta("protocolVersion", "a string", version);
  if (version !== header) refuseHeader("MCP-Protocol-Version", header, version);
  if (version !== MODERN) refuseVersion(version);
  if (id === undefined) return true;
  const theirs = meta[`${META}clientCapabilities`];
  if (!isObject(theirs)) refuseMeta("clientCapabilities", "an object", theirs);
  const info = meta[`${META}clientInfo`];
  const isNamed =
    isObject(info) && typeof info["name"] === "string" && typeof info["version"] === "string";
  if (info !== undefined && !isNamed) refuseMeta("clientInfo", "a name and a version", info);
  return true;
}

function refuseVersion(requested: string): never {
  const data = { supported: [MODERN], requested };
  throw new RpcError("unsupported_version", "Unsupported protocol version", data);
}

function refuseMeta(name: string, expected: string, actual: unknown): never {
  const message = `_meta["${META}${name}"]: expected ${expected}, got ${describe(actual)}`;
  throw new RpcError("malformed_params", message);
}

function refuseHeader(name: string, header: string | null, actual: unknown): never {
  const sent = header === null ? "is missing" : `is ${JSON.stringify(clip(header))}`;
  throw new RpcError(
    "header_mismatch",
    `Header mismatch: ${name} ${sent}, the body has ${describe(actual)}`,
  );
}

const ENCODED = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/;

/** Proxies may route by the headers, so they must say what the body says. */
function requireHeaders(headers: Headers, method: string, { name }: Members): void {
  const sentMethod = headers.get("mcp-method");
  if (sentMethod !== method) refuseHeader("Mcp-Method", sentMethod, method);
  if (method !== "tools/call") return;
  const sentName = headers.get("mcp-name");
  const [, encoded] = ENCODED.exec(sentName ?? "") ?? [];
  const decoded = encoded === undefined ? sentName : Buffer.from(encoded, "base64").toString();
  if (decoded !== name) refuseHeader("Mcp-Name", sentName, name);
}

const capabilities = { tools: {} };
const instructions =
  "A store of plants. Ids are strings of digits: never convert them to numbers. Search with `q` first; page with `after`. " +
  "Give related writes the same `batch`, so that revert_changes can undo them together.";
/** The tools depend on the token's scopes, which never change. */
const CACHED = { ttlMs: 3_600_000, cacheScope: "private" };

/** The result as JSON: an object with members. */
async function respond(
  exchange: Exchange,
  tools: Tools,
  isModern: boolean,
  method: string,
  params: Members,
): Promise<string> {
  const cached = isModern ? CACHED : {};
  if (method === "tools/call") return callTool(exchange, tools, params);
  if (method === "tools/list")
    return JSON.stringify({ tools: listTools(exchange.token, tools, params), ...cached });
  if (isModern && method === "server/discover")
    return JSON.stringify({ supportedVersions: [MODERN], capabilities, instructions, ...cached });
  if (!isModern && method === "initialize") return initialize(params);
  if (!isModern && method === "ping") return "{}";
  throw new RpcError("method_not_found", `Method not found: ${clip(method)}`);
}

function initialize({ protocolVersion, capabilities: theirs, clientInfo }: Members): string {
  if (typeof protocolVersion !== "string" || !isObject(theirs) || !isObject(clientInfo))
    throw new RpcError(
      "invalid_params",
      "params: expected protocolVersion, capabilities and clientInfo",
    );
  return JSON.stringify({
    protocolVersion: LEGACY.find((known) => known === protocolVersion) ?? LEGACY[0],
    capabilities,
    serverInfo: SERVER_INFO,
    instructions,
  });
}

function listTools(token: TokenRecord | undefined, tools: Tools, { cursor }: Members): object[] {
  if (cursor !== undefined)
    throw new RpcError("invalid_params", `cursor: expected none, got ${describe(cursor)}`);
  return Object.entries(tools)
    .filter(([, { scopes }]) => scopes.every((scope) => token?.scopes.includes(scope)))
    .map(([name, { listed }]) => Object.assign({ name }, listed));
}

/** A refusal is a result with `isError`, which a model reads and can act on. */
async function callTool(exchange: Exchange, tools: Tools, params: Members): Promise<string> {
  const { service, token, ids } = exchange;
  const { name, arguments: input = {} } = params;
  const tool = typeof name === "string" && Object.hasOwn(tools, name) ? tools[name] : undefined;
  if (typeof name !== "string" || tool === undefined)
    throw new RpcError(
      "invalid_params",
      `Unknown tool: ${typeof name === "string" ? clip(name) : describe(name)}`,
    );
  if (!isObject(input))
    throw new RpcError("invalid_params", `arguments: expected an object, got ${describe(input)}`);
  requireScopes(token, tool.scopes);
  try {
    const json = await tool.run(exchange, input);
    requireRoomToAnswer(exchange, 2 * json.length);
    return `{"content":[${formatText(json)}],"structuredContent":${json}}`;
  } catch (error) {
    const { reason, message, cause } = toRefusal(error);
    const { code, status } = catalogue[reason];
    // A defect: logged with its cause, and answered with 500.
    if (status === 500) throw error;
    const fields = { ...ids, tool: name, token: token?.name, reason };
    if (status > 500) service.log.warn("tool_refused", { ...fields, cause });
    else service.log.info("tool_refused", fields);
    const json = JSON.stringify({ error: code, message });
    return `{"content":[${formatText(json)}],"isError":true}`;
  }
}

const formatText = (text: string): string => JSON.stringify({ type: "text", text });
