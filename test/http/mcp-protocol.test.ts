/** The protocol of /mcp: each wrong message gets the error of the specification, and the official client is served. */

import { describe, expect, test } from "bun:test";
import {
  Client,
  type ClientOptions,
  InsufficientScopeError,
  ProtocolError,
  SdkHttpError,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { catalogue } from "../../src/domain/errors.ts";
import { rejectionOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { ask, listTools, metaOf, MODERN, post, readRpc } from "../support/mcp.ts";
import { readRefusal } from "../support/plants.ts";
import { grantToken, send, startService, startShared, TEST_TOKEN } from "../support/service.ts";

export const groups = ["sqlite"];

const service = await startShared(limits({ bodyBytesMax: 65_536 }));

const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;
const METHOD_NOT_FOUND = -32_601;
const INVALID_PARAMS = -32_602;
const HEADER_MISMATCH = -32_020;
const UNSUPPORTED_VERSION = -32_022;

const serverInfo = {
  name: "plantstore",
  title: "Plant Store",
  version: expect.stringMatching(/^\d+\.\d+\.\d+/) as string,
};
const LEGACY = ["2025-11-25", "2025-06-18"];

type Sent = Readonly<Record<string, string | undefined>>;

/** Its data. An id of null is none. */
async function expectRpcError(
  response: Response,
  status: number,
  code: number,
  says = "",
  id: unknown = 7,
): Promise<unknown> {
  const answer = await readRpc(response);
  const error = expect.objectContaining({ code, message: expect.stringContaining(says) });
  expect([response.status, answer as object]).toEqual([
    status,
    { jsonrpc: "2.0", ...(id === null ? {} : { id }), error },
  ]);
  return answer.error?.data;
}

const message = (more: object): string => JSON.stringify({ jsonrpc: "2.0", id: 7, ...more });

/** A request of revision 2026-07-28, with parts of it changed. */
const modern = (changes: object = {}, headers: Sent = {}, meta: object = metaOf()) => {
  const sent = { method: "tools/list", params: { _meta: meta }, ...changes };
  return post(service, message(sent), {
    "mcp-protocol-version": MODERN,
    "mcp-method": sent.method,
    ...headers,
  });
};

const legacy = (sent: object, version: string | undefined = "2025-11-25"): Promise<Response> =>
  post(service, message(sent), { "mcp-protocol-version": version });

describe("a body that is no message", () => {
  const list = (params: string): string =>
    `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":${params}}`;

  test.each<[body: string | Uint8Array, code: number, says: string, id: unknown]>([
    ["", PARSE_ERROR, "The body is empty", null],
    ["{", PARSE_ERROR, "not valid JSON", null],
    ["\uFEFF{}", PARSE_ERROR, "byte order mark", null],
    ["[".repeat(2_000) + "]".repeat(2_000), PARSE_ERROR, "nested deeper", null],
    [new Uint8Array([0x22, 0xff, 0x22]), PARSE_ERROR, "not valid UTF-8", null],
    ["5", INVALID_REQUEST, "body: expected one JSON-RPC message, got 5", null],
    ['[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID_REQUEST, "got an array", null],
    ["{}", INVALID_REQUEST, 'jsonrpc: expected "2.0", got nothing', null],
    ['{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST, "jsonrpc: expected", 1],
    ['{"jsonrpc":"2.0","id":"a"}', INVALID_REQUEST, "method: expected a string", "a"],
    ['{"jsonrpc":"2.0","id":1,"result":{}}', INVALID_REQUEST, "the service sends no requests", 1],
    ['{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, "id: expected", null],
    ['{"jsonrpc":"2.0","id":9007199254740993}', INVALID_REQUEST, "up to 9007199254740991", null],
    [list("[]"), INVALID_PARAMS, "params:", 7],
    [list("5"), INVALID_PARAMS, "params:", 7],
    [list("null"), INVALID_PARAMS, "params:", 7],
    [list('"a"'), INVALID_PARAMS, "params:", 7],
  ])("%.80p is answered with the error %i: %s", async (body, code, says, id) => {
    await expectRpcError(await post(service, body), 400, code, says, id);
  });

  test("is refused as by every other operation if it is too large, or not declared as JSON", async () => {
    const large = await post(service, `"${"x".repeat(65_536)}"`);
    expect([large.status, await readRefusal(large)]).toEqual([413, "body_too_large"]);
    const text = await post(service, "{}", { "content-type": "text/plain" });
    expect([text.status, text.headers.get("accept-post")]).toEqual([415, "application/json"]);
    const query = await send(service, "POST", "/mcp?a=b", { body: "{}" });
    expect([query.status, await readRefusal(query)]).toEqual([400, "invalid_query"]);
  });
});

describe("revision 2026-07-28", () => {
  test("answers server/discover with its versions, capabilities, name and instructions", async () => {
    const response = await ask(service, "server/discover");
    expect(response.headers.get("content-type")).toBe("application/json");
    expect((await readRpc(response)).result).toEqual({
      resultType: "complete",
      supportedVersions: [MODERN],
      capabilities: { tools: {} },
      instructions: expect.stringContaining("Ids are strings") as string,
      ttlMs: 3_600_000,
      cacheScope: "private",
      _meta: { "io.modelcontextprotocol/serverInfo": serverInfo },
    });
  });

  test("lets the list of tools be cached for this token", async () => {
    const { result } = await readRpc(await ask(service, "tools/list"));
    expect(result).toMatchObject({ cacheScope: "private" });
  });

  test("marks every result as complete", async () => {
    const { result } = await readRpc(await ask(service, "tools/list"));
    expect(result).toMatchObject({ resultType: "complete" });
    const given = { name: "read_plant", arguments: { id: "1" } };
    const called = await readRpc(await ask(service, "tools/call", given));
    expect(called.result).toMatchObject({ resultType: "complete", isError: true });
  });

  test("needs no clientInfo", async () => {
    const { "io.modelcontextprotocol/clientInfo": _, ...meta } = metaOf();
    expect((await modern({}, {}, meta)).status).toBe(200);
  });

  test("accepts an id that is a string", async () => {
    const response = await modern({ id: "é" });
    expect([response.status, (await readRpc(response)).id]).toEqual([200, "é"]);
  });

  const key = (name: string): string => `io.modelcontextprotocol/${name}`;

  test.each([
    ["no _meta", undefined, "protocolVersion"],
    ["no protocolVersion", { [key("clientCapabilities")]: {} }, "protocolVersion"],
    ["a protocolVersion that is a number", { ...metaOf(), [key("protocolVersion")]: 1 }, "got 1"],
    ["no clientCapabilities", { [key("protocolVersion")]: MODERN }, "clientCapabilities"],
    ["clientCapabilities that are an array", { ...metaOf(), [key("clientCapabilities")]: [] }, ""],
    ["a clientInfo without a version", { ...metaOf(), [key("clientInfo")]: { name: "a" } }, ""],
  ])("refuses %s as invalid params", async (_, meta, says) => {
    await expectRpcError(await modern({ params: { _meta: meta } }), 400, INVALID_PARAMS, says);
  });

  test.each([
    ["no MCP-Protocol-Version", { "mcp-protocol-version": undefined }],
    ["another MCP-Protocol-Version", { "mcp-protocol-version": "2025-11-25" }],
    ["no Mcp-Method", { "mcp-method": undefined }],
    ["another Mcp-Method", { "mcp-method": "tools/call" }],
    ["an Mcp-Method in upper case", { "mcp-method": "TOOLS/LIST" }],
  ])("refuses %s as a header mismatch", async (_, headers) => {
    await expectRpcError(await modern({}, headers), 400, HEADER_MISMATCH, "Header");
  });

  test("compares Mcp-Name with the tool, also in Base64", async () => {
    const params = { name: "count_plants", arguments: {}, _meta: metaOf() };
    const changes = { method: "tools/call", params };
    const encode = (name: string): string => `=?base64?${Buffer.from(name).toString("base64")}?=`;
    for (const name of ["count_plants", "  count_plants  ", encode("count_plants")]) {
      const response = await modern(changes, { "mcp-name": name });
      expect([name, response.status]).toEqual([name, 200]);
      expect((await readRpc(response)).result).toMatchObject({ structuredContent: { count: 0 } });
    }
    const wrong = [undefined, "read_plant", "Count_plants", encode("read_plant"), "=?base64?%?="];
    for (const name of wrong)
      await expectRpcError(await modern(changes, { "mcp-name": name }), 400, HEADER_MISMATCH);
  });
});

describe("a revision of 2025", () => {
  const initialize = (protocolVersion: unknown, more: object = {}) => ({
    method: "initialize",
    params: { protocolVersion, capabilities: {}, clientInfo: { name: "a", version: "1" }, ...more },
  });

  test.each([
    ...LEGACY.map((version) => [version, version]),
    ["2025-03-26", "2025-11-25"],
    [MODERN, "2025-11-25"],
    ["x", "2025-11-25"],
  ])("is agreed on: %s asked, %s answered, without a session", async (asked, answered) => {
    const response = await legacy(initialize(asked), undefined);
    expect(response.headers.has("mcp-session-id")).toBe(false);
    const { id, result } = await readRpc(response);
    expect([response.status, id]).toEqual([200, 7]);
    expect(result).toEqual({
      protocolVersion: answered,
      capabilities: { tools: {} },
      serverInfo,
      instructions: expect.any(String) as string,
    });
  });

  test("is not agreed on without the members of initialize", async () => {
    const broken = [
      initialize(5),
      initialize(undefined),
      initialize("2025-11-25", { capabilities: null }),
      initialize("2025-11-25", { clientInfo: "a" }),
    ];
    for (const sent of broken) await expectRpcError(await legacy(sent), 200, INVALID_PARAMS);
  });

  test.each([...LEGACY, undefined])(
    "serves ping, tools/list and tools/call: %s",
    async (version) => {
      const get = async (method: string, params?: object) =>
        (await readRpc(await legacy({ method, params }, version))).result;
      expect(await get("ping")).toEqual({});
      const list = await get("tools/list");
      expect(Object.keys(list ?? {})).toEqual(["tools"]);
      expect(list?.["tools"]).toEqual([...(await listTools(service))]);
      const called = await get("tools/call", { name: "count_plants" });
      expect(Object.keys(called ?? {})).toEqual(["content", "structuredContent"]);
    },
  );
});

describe("in every revision", () => {
  test.each(["2024-11-05", "2025-03-26", "2025-11-25", "2099-01-01", "x"])(
    "version %s is refused with the name of the one that is served",
    async (requested) => {
      const data = { supported: [MODERN], requested };
      const now = await modern({}, { "mcp-protocol-version": requested }, metaOf(requested));
      expect(await expectRpcError(now, 400, UNSUPPORTED_VERSION)).toEqual(data);
      // Without _meta, a message of this revision is served.
      if (LEGACY.includes(requested)) return;
      const before = await legacy({ method: "tools/list" }, requested);
      expect(await expectRpcError(before, 400, UNSUPPORTED_VERSION)).toEqual(data);
    },
  );

  test("a method that the revision does not have is not known", async () => {
    for (const method of ["initialize", "ping", "tools/List", "constructor", ""])
      await expectRpcError(await modern({ method }), 404, METHOD_NOT_FOUND, method);
    for (const method of ["server/discover", "prompts/list", "logging/setLevel", "toString"])
      await expectRpcError(await legacy({ method }), 200, METHOD_NOT_FOUND, method);
  });

  const revisions = [
    ["2026-07-28", 1, (method: string, params: object) => ask(service, method, { ...params })],
    ["2025-11-25", 7, (method: string, params: object) => legacy({ method, params })],
  ] as const;

  test.each(revisions)(
    "%s refuses a wrong call of a tool as invalid params",
    async (_, id, get) => {
      for (const name of ["nothing", "", "constructor", 5, undefined]) {
        const response = await get("tools/call", { name });
        // A name that is no string has no header that it could match.
        const isSent = typeof name === "string" || response.status === 200;
        if (isSent) await expectRpcError(response, 200, INVALID_PARAMS, "Unknown tool", id);
        else await expectRpcError(response, 400, HEADER_MISMATCH, "", id);
      }
      for (const given of [5, "a", [], null]) {
        const response = await get("tools/call", { name: "count_plants", arguments: given });
        await expectRpcError(response, 200, INVALID_PARAMS, "arguments: expected an object", id);
      }
      for (const cursor of ["", "a", 5]) {
        const response = await get("tools/list", { cursor });
        await expectRpcError(response, 200, INVALID_PARAMS, "cursor", id);
      }
    },
  );

  test("a notification is accepted, without a body", async () => {
    for (const version of [MODERN, ...LEGACY, undefined]) {
      const body = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
      const response = await post(service, body, { "mcp-protocol-version": version });
      expect([response.status, await response.text()]).toEqual([202, ""]);
    }
    const cancelled = '{"jsonrpc":"2.0","method":"notifications/cancelled"}';
    const wrong = await post(service, cancelled, { "mcp-protocol-version": "x" });
    await expectRpcError(wrong, 400, UNSUPPORTED_VERSION, "", null);
  });
});

describe("an Origin", () => {
  const ping = message({ method: "ping" });
  const origin = "https://shop.example";

  test("is refused unless it is configured, also if it agrees with the Host", async () => {
    const { port } = new URL(service.url);
    for (const one of [origin, "null", "http://127.0.0.1", `http://evil.example:${port}`])
      for (const host of [undefined, one.replace("null", "x").replace(/.*\//, "")]) {
        // A page on another port of this machine is another origin.
        if (host === "127.0.0.1") continue;
        const response = await post(service, ping, { origin: one, host });
        await expectRpcError(response, 403, INVALID_REQUEST, one, null);
      }
  });

  test("is accepted from a page of the service itself, on a loopback address", async () => {
    expect((await post(service, ping, { origin: service.url })).status).toBe(200);
    const secure = service.url.replace("http:", "https:");
    expect((await post(service, ping, { origin: secure })).status).toBe(403);
  });

  test.each([origin, "*"])("is accepted with PLANTSTORE_CORS_ORIGINS=%s", async (origins) => {
    await using open = await startService({ PLANTSTORE_CORS_ORIGINS: origins });
    const response = await post(open, ping, { origin });
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe(origin);
    const other = await post(open, ping, { origin: "https://evil.example" });
    expect(other.status).toBe(origins === "*" ? 200 : 403);
  });
});

type Mode = NonNullable<NonNullable<ClientOptions["versionNegotiation"]>["mode"]>;

async function connect({ url }: { readonly url: string }, mode: Mode, token = TEST_TOKEN) {
  const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode } });
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  const endpoint = new URL(`${url}/mcp`);
  await client.connect(new StreamableHTTPClientTransport(endpoint, { requestInit }));
  return {
    client,
    call: async (name: string, given: Record<string, unknown>): Promise<unknown> => {
      const result = await client.callTool({ name, arguments: given });
      if (result.isError !== true) return result.structuredContent;
      const [content] = result.content;
      return content?.type === "text" ? (JSON.parse(content.text) as unknown) : content;
    },
    [Symbol.asyncDispose]: () => client.close(),
  };
}

describe.each([
  ["pinned", { pin: MODERN }, MODERN],
  ["auto", "auto", MODERN],
  ["legacy", "legacy", "2025-11-25"],
] as const)("the official client, %s", (_, mode, version) => {
  test("understands the revision, the tools, their results and their errors", async () => {
    await using own = await startService();
    await using agent = await connect(own, mode);
    const { client, call } = agent;
    expect(client.getNegotiatedProtocolVersion()).toBe(version);
    expect(client.getServerVersion()).toMatchObject({ name: "plantstore", title: "Plant Store" });
    expect(client.getServerCapabilities()).toEqual({ tools: {} });
    expect(client.getInstructions()).toContain("Ids are strings");
    const { tools, nextCursor } = await client.listTools();
    expect([tools.length, nextCursor]).toEqual([(await listTools(service)).length, undefined]);

    const plant = { id: "9007199254740993", name: "Aloë", tag: "succulent" };
    expect(await call("create_plant", plant)).toEqual({ id: plant.id, replayed: false });
    expect(await call("find_plants", { q: "aloe" })).toEqual({ plants: [plant] });
    expect(await call("read_plant", { id: "1" })).toEqual({
      error: catalogue.plant_not_found.code,
      message: catalogue.plant_not_found.meaning,
    });
    const unknown = await rejectionOf(call("water_plant", {}));
    expect(unknown).toBeInstanceOf(ProtocolError);
    expect(unknown).toMatchObject({ code: -32_602, message: expect.stringMatching(/water_plant/) });
    const missing = await rejectionOf(client.request({ method: "prompts/list" }));
    expect(missing).toMatchObject({ message: expect.stringMatching(/Method not found/) });

    await using reader = await connect(own, mode, await grantToken(own, ["plants:read"]));
    const forbidden = await rejectionOf(reader.call("remove_plant", { id: "1" }));
    expect(forbidden).toBeInstanceOf(InsufficientScopeError);
    expect(forbidden).toMatchObject({ message: 'Insufficient scope: required "plants:write"' });
    const refused = await rejectionOf(connect(own, mode, "pst_wrong"));
    expect(refused).toBeInstanceOf(SdkHttpError);
    expect(refused).toMatchObject({ status: 401 });
  });
});
