/** The judge of the fuzz notices wrong answers. */

import { describe, expect, test } from "bun:test";
import { Ledger } from "../support/model.ts";
import { createRandom, seed } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import type { Answer } from "./connection.ts";
import { findFraming } from "./fuzz-framing.ts";
import { judge } from "./fuzz-judge.ts";
import { firstIdOf, formatCreate, makeWireCase } from "./fuzz-requests.ts";

test("the same seed makes the same bytes", () => {
  const make = (): string => makeWireCase(7, createRandom(seed)).bytes.toString("hex");
  expect(make()).toBe(make());
});

describe("framing:", () => {
  const create = formatCreate(1n).toString("latin1");
  const frame = (text: string) => {
    const { requests, tail } = findFraming(Buffer.from(text, "latin1"));
    return [requests.length, tail] as const;
  };

  test.each([
    ["a request", create, 1, "nothing"],
    ["two requests", create + create, 2, "nothing"],
    ["half a request", create.slice(0, -1), 0, "incomplete"],
    ["two lengths", create.replace("\r\n", "\r\nContent-Length: 3\r\n"), 0, "malformed"],
    [
      "a length and chunks",
      create.replace("\r\n", "\r\nTransfer-Encoding: chunked\r\n"),
      0,
      "malformed",
    ],
    ["a bare line feed", create.replace("\r\n", "\n"), 0, "malformed"],
    ["a folded line", create.replace("\r\nAuth", "\r\n Auth"), 0, "malformed"],
    ["nonsense behind a request", `${create}nonsense\r\n\r\n`, 1, "malformed"],
    [
      "a request behind the last",
      create.replace("\r\n", "\r\nConnection: close\r\n") + create,
      1,
      "malformed",
    ],
    [
      "a request behind one with an unknown option of the connection",
      create.replace("\r\n", "\r\nConnection: close-Length: 190\r\n") + create,
      2,
      "nothing",
    ],
  ] as const)("%s", (_name, text, requests, tail) => {
    expect(frame(text)).toEqual([requests, tail]);
  });
});

describe("the judge notices", () => {
  const answer = (status: number, body: string): Answer => ({
    status,
    head: "",
    body,
    endsConnection: false,
  });
  const id = firstIdOf(1);
  const judgeCreate = (body: string, given: Answer, token = TEST_TOKEN): string[] => {
    const [request] = findFraming(formatCreate(id)).requests;
    const fields = request?.fields.map(
      ([name, value]) => [name, value.replace(TEST_TOKEN, token)] as const,
    );
    return judge(
      {
        method: "POST",
        target: "/plants",
        version: "HTTP/1.1",
        fields: fields ?? [],
        body: Buffer.from(body),
      },
      given,
      { ledger: new Ledger(), owner: 1, bodyBytesMax: 1_000, isSound: true },
    );
  };

  test.each([
    ["a plant that is refused", `{"id":${id},"name":"a"}`, 400, '{"error":1003,"message":"no"}'],
    ["what is no plant and accepted", '{"id":1.5,"name":"a"}', 200, '{"name":"a"}'],
    ["an answer about another plant", `{"id":${id},"name":"a"}`, 200, '{"name":"b"}'],
    ["a failure of ours", "{", 500, '{"error":5001,"message":"no"}'],
    ["a 503 that does not say when to come again", "{", 503, '{"error":5002,"message":"no"}'],
    ["a refusal that is not in the catalogue", "{", 400, '{"error":1,"message":"no"}'],
    ["a refusal without a body", "{", 400, ""],
    ["a code under another status", "{", 409, '{"error":1002,"message":"no"}'],
  ])("%s", (_name, body, status, said) => {
    expect(judgeCreate(body, answer(status, said))).toHaveLength(1);
  });

  test("nothing where all is well", () => {
    expect(judgeCreate(`{"id":${id},"name":"a"}`, answer(200, '{"name":"a"}'))).toEqual([]);
    expect(judgeCreate("{", answer(400, '{"error":1002,"message":"no"}'))).toEqual([]);
  });

  test("what is accepted without a good token", () => {
    const faults = judgeCreate(`{"id":${id},"name":"a"}`, answer(200, '{"name":"a"}'), "another");
    expect(faults).toHaveLength(1);
  });
});
