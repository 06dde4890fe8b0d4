/** /mcp as agents use it: through the official client, in each of its ways to agree on a revision. */

import { describe, expect, test } from "bun:test";
import {
  Client,
  type ClientOptions,
  InsufficientScopeError,
  ProtocolError,
  SdkHttpError,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { catalogue } from "../src/domain/errors.ts";
import { MODERN } from "./support/mcp.ts";
import { rejectionOf } from "./support/expect.ts";
import { grantToken, startService, TEST_TOKEN, type TestService } from "./support/service.ts";

type Mode = NonNullable<NonNullable<ClientOptions["versionNegotiation"]>["mode"]>;

async function connect(service: TestService, mode: Mode, token = TEST_TOKEN) {
  const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode } });
  const headers = { authorization: `Bearer ${token}` };
  const transport = new StreamableHTTPClientTransport(new URL(`${service.url}/mcp`), {
    requestInit: { headers },
  });
  await client.connect(transport);
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
  test("agrees on a revision, learns the tools, calls them, and is told what it did wrong", async () => {
    await using service = await startService();
    await using agent = await connect(service, mode);
    const { client, call } = agent;
    expect(client.getNegotiatedProtocolVersion()).toBe(version);
    expect(client.getServerVersion()).toMatchObject({ name: "plantstore", title: "Plant Store" });
    expect(client.getServerCapabilities()).toEqual({ tools: {} });
    expect(client.getInstructions()).toContain("Ids are strings");
    const { tools, nextCursor } = await client.listTools();
    expect([tools.length, nextCursor]).toEqual([8, undefined]);

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

    await using reader = await connect(service, mode, await grantToken(service, ["plants:read"]));
    const forbidden = await rejectionOf(reader.call("remove_plant", { id: "1" }));
    expect(forbidden).toBeInstanceOf(InsufficientScopeError);
    expect(forbidden).toMatchObject({ message: 'Insufficient scope: required "plants:write"' });
    const refused = await rejectionOf(connect(service, mode, "pst_wrong"));
    expect(refused).toBeInstanceOf(SdkHttpError);
    expect(refused).toMatchObject({ status: 401 });
  });
});
