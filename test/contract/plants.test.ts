/** GET, PUT, PATCH and DELETE /plants/{id}: every row of the operations, every bad value, every precondition. */

import { beforeEach, describe, expect, test } from "bun:test";
import type { Scope } from "../../src/domain/token.ts";
import { expectError } from "../support/expect.ts";
import { bearer, getText, grantToken, send, type Sent, startShared } from "../support/service.ts";

const service = await startShared();

beforeEach(async () => {
  await send(service, "DELETE", "/plants/1");
  await service.create('{"id":1,"name":"Rose","tag":"shrub"}');
});

const read = (id: string, headers: Record<string, string> = {}): Promise<Response> =>
  send(service, "GET", `/plants/${id}`, { headers });
const textOf = (id: string): Promise<string> => getText(service, `/plants/${id}`);
const etagOf = async (id: string): Promise<string> => (await read(id)).headers.get("etag") ?? "";

describe("GET /plants/{id}", () => {
  test("answers the plant with its id and its ETag", async () => {
    const response = await read("1");
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('{"id":1,"name":"Rose","tag":"shrub"}');
    expect(Object.fromEntries(response.headers)).toMatchObject({
      etag: expect.stringMatching(/^"[^"]+"$/),
      "content-type": "application/json",
      "cache-control": "private, no-cache",
    });
  });

  test.each(["9223372036854775807", "-9223372036854775808", "9007199254740993", "0", "-1"])(
    "id %s is exact in the path and in the body",
    async (id) => {
      await service.create(`{"id":${id},"name":"n${id}"}`);
      expect(await textOf(id)).toBe(`{"id":${id},"name":"n${id}"}`);
    },
  );

  test.each(["abc", "01", "1%20", "9223372036854775808", "1".repeat(200), "%00", "%FF", "１"])(
    "id %s answers 400, by every method",
    async (id) => {
      for (const [method, sent] of [
        ["GET", {}],
        ["DELETE", {}],
        ["PUT", { body: '{"name":"x"}' }],
        ["PATCH", { body: '{"name":"x"}' }],
      ] as [string, Sent][])
        await expectError(await send(service, method, `/plants/${id}`, sent), "invalid_id");
    },
  );

  test("If-None-Match answers 304 without a body for the same plant, by strong or weak tag, in a list, or by *", async () => {
    const etag = await etagOf("1");
    for (const header of [etag, `W/${etag}`, `"other", ${etag}`, `, ,${etag},`, ` ${etag} `, "*"]) {
      const response = await read("1", { "if-none-match": header });
      expect([header, response.status, await response.text()]).toEqual([header, 304, ""]);
      expect(response.headers.get("etag")).toBe(etag);
    }
    for (const header of ['"other"', 'W/"other"', '""'])
      expect((await read("1", { "if-none-match": header })).status).toBe(200);
  });
});

describe("PUT /plants/{id}", () => {
  const replace = (id: string, body: string, headers = {}): Promise<Response> =>
    send(service, "PUT", `/plants/${id}`, { body, headers });

  test("replaces name and tag", async () => {
    for (const members of ['"name":"Tulip","tag":"bulb"', '"name":"Rose"']) {
      const response = await replace("1", `{${members}}`);
      expect([response.status, await response.text()]).toEqual([200, `{${members}}`]);
      expect(response.headers.get("etag")).toBe(await etagOf("1"));
      expect(await textOf("1")).toBe(`{"id":1,${members}}`);
    }
  });

  test("accepts the id of the path in the body", async () => {
    expect((await replace("1", '{"id":1,"name":"a"}')).status).toBe(200);
    expect((await replace("1", '{"id":1.0,"name":"a"}')).status).toBe(200);
    expect(await textOf("1")).toBe('{"id":1,"name":"a"}');
  });

  test("refuses another id than the path's", async () => {
    const says = "id: expected 1, as in the path, or nothing, got ";
    for (const id of ["2", '"1"', "9007199254740993"])
      await expectError(await replace("1", `{"id":${id},"name":"b"}`), "invalid_plant", says);
    expect(await textOf("1")).toBe('{"id":1,"name":"Rose","tag":"shrub"}');
  });

  test("refuses what is no plant, not JSON or not there", async () => {
    await expectError(await replace("404", '{"name":"a"}'), "plant_not_found");
    await expectError(await read("404"), "plant_not_found");
    await expectError(await replace("1", '{"name":"\\u0000"}'), "invalid_plant");
    await expectError(await replace("1", "{"), "invalid_json");
    const plain = { "content-type": "text/plain" };
    const refused = await replace("1", '{"name":"a"}', plain);
    // Nothing can be posted there.
    expect(refused.headers.has("accept-post")).toBe(false);
    await expectError(refused, "unsupported_media_type");
    expect(await textOf("1")).toBe('{"id":1,"name":"Rose","tag":"shrub"}');
  });
});

describe("PATCH /plants/{id}", () => {
  const patch = (body: string, headers = {}, path = "/plants/1"): Promise<Response> =>
    send(service, "PATCH", path, { body, headers });
  const MERGE = { "content-type": "application/merge-patch+json; charset=utf-8" };

  test.each<[patch: string, members: string]>([
    ['{"name":"Tulip"}', '"name":"Tulip","tag":"shrub"'],
    ['{"tag":"bulb"}', '"name":"Rose","tag":"bulb"'],
    ['{"tag":null}', '"name":"Rose"'],
    ['{"tag":""}', '"name":"Rose","tag":""'],
    ['{"tag":null,"name":""}', '"name":""'],
    ["{}", '"name":"Rose","tag":"shrub"'],
  ])("%s changes only what it has", async (body, members) => {
    for (const headers of [{}, MERGE]) {
      const response = await patch(body, headers);
      expect([response.status, await response.text()]).toEqual([200, `{${members}}`]);
      expect(response.headers.get("etag")).toBe(await etagOf("1"));
      expect(await textOf("1")).toBe(`{"id":1,${members}}`);
    }
  });

  test.each<[body: string, says: string]>([
    ["[]", "body: expected an object, got an array"],
    ["null", "body: expected an object, got null"],
    ['"name"', 'body: expected an object, got the string "name"'],
    ['{"name":null}', "name: expected a string, got null"],
    ['{"name":1,"tag":true}', "name: expected a string, got 1; tag: expected a string, or null"],
    ['{"tag":"\\u0000"}', "tag: expected text without U+0000"],
    ['{"name":"\\ud800"}', "name: expected text without U+0000 and unpaired surrogates"],
    ['{"id":1}', "id: expected nothing: the id of a plant never changes"],
    ['{"id":null,"Tag":"x"}', 'the string "Tag": unknown; allowed: name, tag'],
    ['{"removed":true}', 'the string "removed": unknown'],
  ])("refuses %s, and changes nothing", async (body, says) => {
    await expectError(await patch(body), "invalid_body", says);
    expect(await textOf("1")).toBe('{"id":1,"name":"Rose","tag":"shrub"}');
  });

  test("refuses another media type with those that it accepts", async () => {
    const refused = await patch("{}", { "content-type": "application/json-patch+json" });
    expect(refused.headers.get("accept-patch")).toBe(
      "application/merge-patch+json, application/json",
    );
    expect(refused.headers.has("accept-post")).toBe(false);
    await expectError(refused, "unsupported_media_type");
  });

  test("refuses what is not JSON, not there or not known", async () => {
    await expectError(await patch("{", MERGE), "invalid_json");
    await expectError(await patch("{}", {}, "/plants/404"), "plant_not_found");
    await expectError(await patch("{}", {}, "/plants/1?dry_run=true"), "invalid_query");
  });

  test("is in the journal with its batch, unless it leaves the plant as it is", async () => {
    const { newest } = await service.store.readChanges({ after: 0, limit: 0 });
    for (const body of ["{}", '{"name":"Rose"}', '{"tag":"shrub"}', '{"tag":"bulb"}'])
      expect((await patch(body, {}, "/plants/1?batch=tidy")).status).toBe(200);
    const { changes } = await service.store.readChanges({ after: newest, limit: 9 });
    expect(changes.map(({ json }) => JSON.parse(json))).toMatchObject([
      {
        type: "replaced",
        batch: "tidy",
        plant: { name: "Rose", tag: "bulb" },
        before: { name: "Rose", tag: "shrub" },
      },
    ]);
  });

  test("of patches of one plant at one time, none is lost", async () => {
    await Promise.all([patch('{"name":"Tulip"}'), patch('{"tag":"bulb"}')]);
    expect(await textOf("1")).toBe('{"id":1,"name":"Tulip","tag":"bulb"}');
  });

  test("needs the scope to read too, because it shows what was not sent", async () => {
    for (const scope of ["plants:read", "plants:write"] as const) {
      const refused = await patch("{}", bearer(await grantToken(service, [scope])));
      await expectError(refused, "insufficient_scope");
    }
    const both = bearer(await grantToken(service, ["plants:read", "plants:write"]));
    expect((await patch("{}", both)).status).toBe(200);
  });
});

test("DELETE /plants/{id} removes the plant", async () => {
  const response = await send(service, "DELETE", "/plants/1");
  expect([response.status, await response.text()]).toEqual([204, ""]);
  expect(response.headers.has("content-type")).toBe(false);
  await expectError(await read("1"), "plant_not_found");
  await expectError(await send(service, "DELETE", "/plants/1"), "plant_not_found");
  const created = await service.create('{"id":1,"name":"Other"}');
  expect([created.status, created.headers.has("idempotent-replayed")]).toEqual([200, false]);
});

describe("preconditions of a change", () => {
  const change = (method: string, headers: Record<string, string>, id = "1"): Promise<Response> =>
    send(service, method, `/plants/${id}`, {
      headers,
      ...(method !== "DELETE" && { body: '{"name":"Changed"}' }),
    });

  for (const method of ["PUT", "PATCH", "DELETE"]) {
    test.each(["ETAG", '"x", ETAG', "*"])(
      `${method} with If-Match: %s goes through`,
      async (form) => {
        const header = form.replace("ETAG", await etagOf("1"));
        expect((await change(method, { "if-match": header })).ok).toBe(true);
      },
    );

    test(`${method} answers 412, 400 or 404 for a precondition that fails, is malformed or about no plant, and changes nothing`, async () => {
      const old = await etagOf("1");
      await send(service, "PUT", "/plants/1", { body: '{"name":"Newer"}' });
      const etag = await etagOf("1");
      for (const header of [old, `W/${etag}`, '"x"', '""'])
        await expectError(await change(method, { "if-match": header }), "precondition_failed");
      for (const header of [etag, `W/${etag}`, "*"])
        await expectError(await change(method, { "if-none-match": header }), "precondition_failed");
      for (const header of ["abc", '"unclosed', '"a" "b"', 'w/"a"', '*, "a"', ""])
        for (const name of ["if-match", "if-none-match"])
          await expectError(await change(method, { [name]: header }), "invalid_precondition");
      for (const header of ["*", '"x"'])
        await expectError(await change(method, { "if-match": header }, "404"), "plant_not_found");
      expect(await textOf("1")).toBe('{"id":1,"name":"Newer"}');
      expect((await change(method, { "if-none-match": '"x"' })).ok).toBe(true);
    });
  }

  test("are read in time linear in their length", async () => {
    for (const header of [
      `"a"${" ,".repeat(3_000)} x`,
      `${'"a", '.repeat(1_500)}x`,
      " ".repeat(8_000),
    ])
      expect((await change("DELETE", { "if-match": `${header}y` })).status).toBe(400);
  });

  test("of two editors who saw the same plant, only one succeeds", async () => {
    const etag = await etagOf("1");
    const replace = (_: unknown, editor: number): Promise<Response> => {
      const body = `{"name":"by editor ${editor}"}`;
      return send(service, "PUT", "/plants/1", { body, headers: { "if-match": etag } });
    };
    const answers = await Promise.all(Array.from({ length: 20 }, replace));
    const countOf = (status: number) => answers.filter((answer) => answer.status === status).length;
    expect([countOf(200), countOf(412)]).toEqual([1, 19]);
  });
});

test.each<[scope: Scope, method: string, path: string, sent?: Sent]>([
  ["plants:read", "GET", "/plants"],
  ["plants:read", "GET", "/plants/1"],
  ["plants:read", "GET", "/plants/count"],
  ["plants:read", "GET", "/tags"],
  ["plants:read", "GET", "/tags/counts"],
  ["plants:write", "POST", "/plants", { body: '{"id":5,"name":"a"}' }],
  ["plants:write", "PUT", "/plants/1", { body: '{"name":"a"}' }],
  ["plants:write", "DELETE", "/plants/1"],
  ["plants:write", "POST", "/plants/batch", { body: "[]" }],
])("the scope %s is needed for %s %s, and is enough", async (scope, method, path, sent = {}) => {
  const other = scope === "plants:read" ? "plants:write" : "plants:read";
  const request = (headers: Record<string, string>): Promise<Response> =>
    send(service, method, path, { ...sent, headers });
  const refused = await request(bearer(await grantToken(service, [other])));
  expect(refused.headers.get("www-authenticate")).toContain(`scope="${scope}"`);
  await expectError(refused, "insufficient_scope");
  await expectError(await request({ authorization: "" }), "token_missing");
  expect((await request(bearer(await grantToken(service, [scope])))).ok).toBe(true);
});
