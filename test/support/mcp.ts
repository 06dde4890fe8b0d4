/** JSON-RPC to /mcp, as a client of either revision would send it, and wrong in any way that a test wants. */

import { expect } from "bun:test";
import type { Tool } from "@modelcontextprotocol/client";
import { Compile } from "typebox/schema";
import { TEST_TOKEN, type TestService } from "./service.ts";

export const MODERN = "2026-07-28";

interface RpcAnswer {
  readonly jsonrpc: string;
  readonly id?: string | number;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

export const metaOf = (version = MODERN) => ({
  "io.modelcontextprotocol/protocolVersion": version,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1.0.0" },
  "io.modelcontextprotocol/clientCapabilities": {},
});

type Headers = Readonly<Record<string, string | undefined>>;

/** A header that is undefined is not sent. */
export const post = (
  { url }: Pick<TestService, "url">,
  body: string | Uint8Array,
  headers: Headers = {},
  signal: AbortSignal | null = null,
): Promise<Response> => {
  const all = {
    authorization: `Bearer ${TEST_TOKEN}`,
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    ...headers,
  };
  const sent = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as [string, string]],
  );
  return fetch(`${url}/mcp`, { method: "POST", body, headers: sent, signal });
};

/** A request of revision 2026-07-28. */
export async function ask(
  service: Pick<TestService, "url">,
  method: string,
  params: Readonly<Record<string, unknown>> = {},
  token = TEST_TOKEN,
  signal?: AbortSignal,
): Promise<Response> {
  const { name } = params;
  const message = { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: metaOf() } };
  return post(
    service,
    JSON.stringify(message),
    {
      authorization: `Bearer ${token}`,
      "mcp-protocol-version": MODERN,
      "mcp-method": method,
      "mcp-name": typeof name === "string" ? name : undefined,
    },
    signal,
  );
}

export const readRpc = async (response: Response): Promise<RpcAnswer> =>
  (await response.json()) as RpcAnswer;

export async function listTools(
  service: Pick<TestService, "url">,
  token = TEST_TOKEN,
): Promise<readonly Tool[]> {
  const { result } = await readRpc(await ask(service, "tools/list", {}, token));
  return result?.["tools"] as readonly Tool[];
}

interface ToolResult {
  readonly content: readonly { readonly type: string; readonly text: string }[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

interface Schema {
  readonly type?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

/** With no other members than it names: a tool says all that it answers. */
const closed = (schema: Schema): object => ({
  ...schema,
  ...(schema.items && { items: closed(schema.items) }),
  ...(schema.properties && {
    additionalProperties: false,
    properties: Object.fromEntries(
      Object.entries(schema.properties).map(([name, member]) => [name, closed(member)]),
    ),
  }),
});

/** The tools whose answers were compared with their schemas. */
export const judged = new Set<string>();

/** Of each tool, what it says that it answers. */
let outputs: Map<string, ReturnType<typeof Compile>> | undefined;

/** What a tool answers: the same as text and as JSON, and as its schema says. */
export async function call(
  service: Pick<TestService, "url">,
  name: string,
  given: object,
  token?: string,
): Promise<unknown> {
  const response = await ask(service, "tools/call", { name, arguments: given }, token);
  expect(response.status).toBe(200);
  const { result, error } = await readRpc(response);
  expect(error).toBeUndefined();
  const { content, structuredContent, isError } = result as unknown as ToolResult;
  const [only, ...others] = content;
  expect([only?.type, others]).toEqual(["text", []]);
  const value: unknown = JSON.parse(only?.text ?? "");
  if (isError === true) {
    expect(structuredContent).toBeUndefined();
    return { isError, ...(value as object) };
  }
  expect(structuredContent).toEqual(value);
  outputs ??= new Map(
    (await listTools(service)).map(({ name: tool, outputSchema }) => [
      tool,
      Compile(closed(outputSchema as Schema)),
    ]),
  );
  expect([name, value, outputs.get(name)?.Check(value)]).toEqual([name, value, true]);
  judged.add(name);
  return value;
}
