/** Tokens over HTTP: made, listed and revoked by clients that may manage them. */

import { afterAll, describe, expect, test } from "bun:test";
import { hashToken, mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { type Scope, scopes, type TokenSummary } from "../../src/domain/token.ts";
import { readError, send, startService, TEST_TOKEN, type TestService } from "../support/service.ts";

const service = await startService();
const limited = await startService({ PLANTSTORE_RATE_LIMIT: "500/s" });
afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await limited[Symbol.asyncDispose]();
});

const bearer = (token: string): { headers: Record<string, string> } => ({
  headers: { authorization: `Bearer ${token}` },
});

const ask = (body: unknown, token = TEST_TOKEN, of: TestService = service): Promise<Response> =>
  send(of, "POST", "/tokens", { ...bearer(token), body: JSON.stringify(body) });

type Made = TokenSummary & { readonly token: string };

const make = async (body: object, of: TestService = service): Promise<Made> => {
  const response = await ask(body, TEST_TOKEN, of);
  expect(response.status).toBe(201);
  return (await response.json()) as Made;
};

const list = async (): Promise<TokenSummary[]> =>
  (await (await send(service, "GET", "/tokens")).json()) as TokenSummary[];

const revoke = (id: string, token = TEST_TOKEN, of: TestService = service): Promise<Response> =>
  send(of, "DELETE", `/tokens/${id}`, bearer(token));

async function expectRefusal(response: Response, reason: ErrorName, says = ""): Promise<void> {
  const { message, ...refusal } = await readError(response);
  const { status, code } = catalogue[reason];
  expect(refusal).toEqual({ status, error: code });
  expect(message).toContain(says);
}

describe("tokens", () => {
  test("are made, shown once, listed without the token, used and revoked", async () => {
    const made = await make({
      name: "till",
      scopes: ["plants:write", "plants:read"],
      expires: "90d",
      rate: "100/s",
    });
    const { token, ...summary } = made;
    expect(summary).toEqual({
      id: hashToken(token).slice(0, 16),
      name: "till",
      prefix: token.slice(0, 10),
      scopes: ["plants:read", "plants:write"],
      created: expect.any(String),
      expires: new Date(Date.parse(made.created) + 90 * 86_400_000).toISOString(),
      lastUsed: null,
      revoked: null,
      rate: "100/s",
    });
    expect((await send(service, "GET", "/plants", bearer(token))).status).toBe(200);
    const text = JSON.stringify(await list());
    expect(JSON.parse(text)).toContainEqual(summary);
    expect(text).not.toContain(token.slice(0, 11));
    expect(text).not.toContain(hashToken(token));

    expect((await revoke(made.id)).status).toBe(204);
    expect((await list()).find(({ id }) => id === made.id)?.revoked).toBeString();
    // Again is fine, and the name is free.
    expect((await revoke(made.id)).status).toBe(204);
    expect(
      (await make({ name: "till", scopes: ["plants:read"], expires: null })).expires,
    ).toBeNull();
    await expectRefusal(
      await ask({ name: "till", scopes: ["plants:read"] }),
      "token_name_taken",
      '"till"',
    );
  });

  test.each<[body: unknown, says: string]>([
    [[], "body: expected an object, got an array"],
    [null, "body: expected an object, got null"],
    [{}, "name: expected 1 to 64 characters"],
    [{ name: "a" }, "scopes: expected one or more of plants:read,"],
    [{ name: "a b", scopes: ["plants:read"] }, 'got the string "a b"'],
    [{ name: 1, scopes: ["plants:read"] }, "name: expected"],
    [{ name: "PLANTSTORE_TOKEN", scopes: ["plants:read"] }, "name: expected"],
    [{ name: "a", scopes: [] }, "got an array"],
    [{ name: "a", scopes: "plants:read" }, 'got the string "plants:read"'],
    [{ name: "a", scopes: ["plants:eat"] }, "scopes: "],
    [{ name: "a", scopes: ["plants:read"], expires: "2020-01-31" }, "expires: "],
    [{ name: "a", scopes: ["plants:read"], expires: "2030-02-30" }, "expires: "],
    [{ name: "a", scopes: ["plants:read"], expires: 90 }, "expires: expected seconds"],
    [{ name: "a", scopes: ["plants:read"], expires: "99999999d" }, "at most 36500d"],
    [{ name: "a", scopes: ["plants:read"], rate: "100" }, "rate: expected"],
    [{ name: "a", scopes: ["plants:read"], expiry: "1d" }, '"expiry": unknown'],
  ])("%j is refused, and makes none", async (body, says) => {
    const before = (await list()).length;
    await expectRefusal(await ask(body), "invalid_body", says);
    expect((await list()).length).toBe(before);
  });

  test("a message stays short, however many faults a body or a query has", async () => {
    const names = Array.from({ length: 1_000 }, (_, index) => `x${index}`);
    await expectRefusal(
      await ask(Object.fromEntries(names.map((name) => [name, 1]))),
      "invalid_body",
      "; and 970 more",
    );
    const url = `/plants?${names.join("&")}`;
    await expectRefusal(await send(service, "GET", url), "invalid_query", "; and 968 more");
  });

  test("need a body of JSON, a known id, and no unknown query", async () => {
    const body = '{"name":"a","scopes":["plants:read"]}';
    const plain = { body, headers: { "content-type": "text/plain" } };
    await expectRefusal(await send(service, "POST", "/tokens", plain), "unsupported_media_type");
    await expectRefusal(await send(service, "POST", "/tokens", { body: "{" }), "invalid_json");
    await expectRefusal(await send(service, "GET", "/tokens?limit=0"), "invalid_query", "limit: ");
    await expectRefusal(
      await send(service, "GET", "/tokens?after=till"),
      "invalid_query",
      "16 hex",
    );
    await expectRefusal(await send(service, "GET", "/tokens?name=a"), "invalid_query", '"name"');
    for (const id of ["0000000000000000", "till", "%00"])
      await expectRefusal(await revoke(id), "token_not_found");
    await expectRefusal(await send(service, "GET", "/tokens/till"), "method_not_allowed");
  });

  test("are listed in pages, each token once, also those that are made meanwhile", async () => {
    await using own = await startService();
    const records = Array.from({ length: 25 }, (_, index) =>
      toRecord(mintToken(), { name: `t${index}`, scopes: ["plants:read"], createdAtMs: index }),
    );
    await own.store.adoptTokens(records);
    const names: string[] = [];
    let pages = 0;
    for (let url: string | undefined = `${own.url}/tokens?limit=10`; url !== undefined;) {
      const response: Response = await fetch(url, bearer(TEST_TOKEN));
      const page = (await response.json()) as TokenSummary[];
      names.push(...page.map(({ name }) => name));
      const next = /^<([^>]+)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
      url = next === undefined ? undefined : new URL(next, url).href;
      expect(page.length).toBe(url === undefined ? 5 : 10);
      pages++;
    }
    expect(pages).toBe(3);
    expect(names.toSorted()).toEqual(records.map(({ name }) => name).toSorted());
    const whole = await send(own, "GET", "/tokens?limit=25");
    expect([whole.headers.get("link"), ((await whole.json()) as unknown[]).length]).toEqual([
      null,
      25,
    ]);
    // The default is that of other lists.
    await own.store.adoptTokens(
      Array.from({ length: 100 }, (_, index) =>
        toRecord(mintToken(), { name: `u${index}`, scopes: ["plants:read"], createdAtMs: index }),
      ),
    );
    expect(((await (await send(own, "GET", "/tokens")).json()) as unknown[]).length).toBe(100);
  });

  test("are counted in the metrics if they end within a week, however many there are", async () => {
    await using own = await startService();
    const endsIn = (days: number) => Date.now() + days * 86_400_000;
    const grants = [
      ...Array.from({ length: 1_200 }, () => ({ expiresAtMs: endsIn(6) })),
      ...[endsIn(8), endsIn(-1), undefined].map((expiresAtMs) => ({ expiresAtMs })),
    ];
    const records = grants.map(({ expiresAtMs }, index) =>
      toRecord(mintToken(), {
        name: `t${index}`,
        scopes: ["plants:read"],
        createdAtMs: 0,
        expiresAtMs,
      }),
    );
    await own.store.adoptTokens(records);
    await own.store.revokeToken(records[0]?.hash ?? "", 1);
    const metrics = await (await send(own, "GET", "/metrics")).text();
    expect(/^plantstore_tokens_expiring (.*)$/m.exec(metrics)?.[1]).toBe("1199");
  });

  test("are not made by one that was revoked a moment ago, while its request was under way", async () => {
    const thief = await make({ name: "thief", scopes: ["tokens:manage"] });
    expect((await send(service, "GET", "/tokens", bearer(thief.token))).status).toBe(200);
    const body = new TransformStream<Uint8Array, Uint8Array>();
    const writer = body.writable.getWriter();
    const asked = fetch(`${service.url}/tokens`, {
      method: "POST",
      headers: { ...bearer(thief.token).headers, "content-type": "application/json" },
      body: body.readable,
    });
    await writer.write(Buffer.from('{"name":"another",'));
    expect((await revoke(thief.id)).status).toBe(204);
    await writer.write(Buffer.from('"scopes":["tokens:manage"]}'));
    await writer.close();
    await expectRefusal(await asked, "token_invalid");
  });

  test("are for tokens with tokens:manage, which cannot hand out what they lack", async () => {
    const { token: plain, id } = await make({
      name: "plain",
      scopes: ["plants:read", "plants:write"],
    });
    for (const response of [
      await send(service, "GET", "/tokens", bearer(plain)),
      await ask({ name: "b", scopes: ["plants:read"] }, plain),
      await revoke(id, plain),
    ]) {
      expect(response.headers.get("www-authenticate")).toContain('scope="tokens:manage"');
      await expectRefusal(response, "insufficient_scope");
    }
    const { token } = await make({ name: "manager", scopes: ["tokens:manage", "plants:read"] });
    const refused = await ask({ name: "b", scopes: ["plants:read", "plants:write"] }, token);
    expect(refused.headers.get("www-authenticate")).toContain('scope="plants:write"');
    await expectRefusal(refused, "insufficient_scope", "plants:write");
    expect((await ask({ name: "b", scopes: ["plants:read", "tokens:manage"] }, token)).status).toBe(
      201,
    );
  });
});

describe("a manager", () => {
  const read = { scopes: ["plants:read"] };
  const inDays = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString();

  test("hands out no later end than its own, and no end only if it has none", async () => {
    const { token, expires } = await make({
      name: "until",
      scopes: ["tokens:manage", "plants:read"],
      expires: "30d",
    });
    for (const later of [undefined, null, inDays(31)]) {
      const refused = await ask({ name: "late", ...read, expires: later }, token);
      expect(refused.headers.get("www-authenticate")).toBe(
        'Bearer realm="plants", error="insufficient_scope"',
      );
      await expectRefusal(refused, "insufficient_scope", `expires: at the latest ${expires}`);
    }
    for (const [name, end] of [
      ["same", expires],
      ["earlier", "1d"],
    ])
      expect((await ask({ name, ...read, expires: end }, token)).status).toBe(201);
  });

  test.each<[service: string, own: string | null, asked: string | null, isAllowed: boolean]>([
    ["", "100/s", "none", false],
    ["", "100/s", null, false],
    ["", "100/s", "101/s", false],
    ["", "100/s", "100/s", true],
    ["", "100/s", "6000/min", false],
    ["", "6000/min", "100/s", true],
    ["", "6000/min", "101/s", false],
    ["", null, "none", true],
    ["", null, null, true],
    ["", "none", null, true],
    ["500/s", null, null, true],
    ["500/s", null, "none", false],
    ["500/s", null, "501/s", false],
    ["500/s", "100/s", null, false],
    ["500/s", "1000/s", null, true],
    ["500/s", "none", "none", true],
  ])(
    "of a service with %j and with the rate %j hands out %j: %j",
    async (all, own, rate, isAllowed) => {
      const asked = all === "" ? service : limited;
      // The token of the environment is not limited.
      const manager = await make(
        { name: crypto.randomUUID(), scopes: ["tokens:manage", "plants:read"], rate: own },
        asked,
      );
      const answer = await ask({ name: crypto.randomUUID(), ...read, rate }, manager.token, asked);
      if (isAllowed) expect(answer.status).toBe(201);
      else await expectRefusal(answer, "insufficient_scope", "rate: at most ");
    },
  );
});

describe("the last token that can manage", () => {
  test("is not revoked, unless the service has PLANTSTORE_TOKEN", async () => {
    const { id } = await make({ name: "alone", scopes: ["tokens:manage"] });
    expect((await revoke(id)).status).toBe(204);

    await using without = await startService({ PLANTSTORE_TOKEN: undefined });
    const grant = async (name: string, granted: readonly Scope[], expiresAtMs?: number) => {
      const token = mintToken();
      const record = toRecord(token, { name, scopes: granted, createdAtMs: 1, expiresAtMs });
      await without.store.createToken(record);
      return { token, id: record.hash.slice(0, 16) };
    };
    const first = await grant("first", scopes);
    const till = await grant("till", ["plants:read"]);
    const old = await grant("old", scopes, 2);
    await expectRefusal(await revoke(first.id, first.token, without), "last_manager");
    const second = await grant("second", ["tokens:manage"]);
    // Each counts on the other. One stays.
    const both = await Promise.all([
      revoke(first.id, first.token, without),
      revoke(second.id, second.token, without),
    ]);
    expect(new Set(both.map(({ status }) => status))).toEqual(new Set([204, 409]));
    const left = both[0]?.status === 409 ? first : second;
    for (const { id: other } of [till, old])
      expect((await revoke(other, left.token, without)).status).toBe(204);
  });
});
