/** Every public method of the client has an example that prints what its comments say, and calls what its errors tell. */

import { afterAll, beforeEach, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { formatWithOptions } from "node:util";
import { Client, ServiceError } from "../../client/client.ts";
import { clientComments, methods } from "../../scripts/tables.ts";
import { type Endpoint } from "../../src/http/endpoint.ts";
import { listOperations } from "../../src/http/operations.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { startReceiver } from "../support/receiver.ts";
import { removeAll, startShared, TEST_TOKEN } from "../support/service.ts";

const service = await startShared({ PLANTSTORE_WEBHOOKS_PRIVATE: "true" });
const receiver = startReceiver();
afterAll(() => receiver[Symbol.dispose]());

const asked = new Set<string>();
const client = new Client(service.url, TEST_TOKEN, {
  fetch: (url, init) => {
    asked.add(`${init.method ?? "GET"} ${new URL(url).pathname}`);
    return fetch(url, init);
  },
});

beforeEach(async () => {
  await removeAll(service);
  for (const { name } of await client.listWebhooks()) await client.removeWebhook(name);
  for await (const { id, revoked } of client.listTokens())
    if (revoked === null) await client.revokeToken(id);
  await client.writeAtomic([
    { id: 1n, name: "Rose", tag: "shrub" },
    { id: 2n, name: "Tulip", tag: "bulb" },
    { id: 3n, name: "Fern" },
  ]);
  await client.createToken({ name: "till", scopes: ["plants:read"] });
  await client.addWebhook({ name: "till", url: receiver.url });
  asked.clear();
});

const endpoints = Object.values(listOperations(service.config)).flatMap((group) =>
  Object.entries<Endpoint>(group),
);

function findOperation(request: string): string | undefined {
  const matches = ({ at }: Endpoint): boolean =>
    new RegExp(`^${at.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(request.replace(/^HEAD/, "GET"));
  // A path without a parameter is the more exact one.
  return endpoints
    .filter(([, endpoint]) => matches(endpoint))
    .toSorted(
      ([, one], [, other]) => one.at.split("{").length - other.at.split("{").length,
    )[0]?.[0];
}

type Example = (client: Client, console: object, error: typeof ServiceError) => Promise<void>;

/** Each example as a function. */
const folder = makeTemporaryFolder();
afterAll(() => folder[Symbol.dispose]());
const file = join(folder.path, "examples.ts");
const head = "(client: Client, console: Console, ServiceError: object): Promise<void>";
const functions = Array.from(
  clientComments,
  ([name, { example: code }]) => `export async function of_${name}${head} {\n${code}}`,
);
writeFileSync(file, functions.join("\n"));
const examples = (await import(file)) as Readonly<Record<string, Example>>;

/** What it prints, and what its comments say. */
async function runExample(name: string): Promise<readonly [printed: string, told: string]> {
  const printed: string[] = [];
  const log = (...values: readonly unknown[]): void =>
    void printed.push(formatWithOptions({ breakLength: Infinity }, ...values));
  await examples[`of_${name}`]?.(client, { log }, ServiceError);
  const told = [...(clientComments.get(name)?.example ?? "").matchAll(/ \/\/ (.*)$/gm)];
  return [printed.join(", "), told.map(([, text]) => text).join(", ")];
}

test.each([...methods])("%s", async (method, { operations }) => {
  expect(clientComments.get(method)?.example).toContain(`client.${method}`);
  if (/Jobs?\b/.test(method)) {
    await client.removeMatching({ tag: "none" }, { batch: "tidy up", respondAsync: true });
    asked.clear();
  }
  const [printed, told] = await runExample(method);
  expect(printed).toBe(told);
  expect(told).not.toBe("");
  const called = [...asked].map(findOperation);
  const [first = ""] = operations;
  expect([...called, ...(method === "followJob" ? operations : [])]).toContain(first);
});

test.each(["request", "FailureOf"])("%s", async (name) => {
  const [printed, told] = await runExample(name);
  expect(printed).toBe(told);
  expect(told).not.toBe("");
});

test("no example is of something else", () => {
  const names = [...methods.keys(), "request", "FailureOf"];
  expect([...clientComments.keys()].toSorted()).toEqual(names.toSorted());
});

test("test/support/client-scenario.ts has every method", async () => {
  const text = await Bun.file(join(import.meta.dir, "../support/client-scenario.ts")).text();
  const missing = [...methods.keys()].filter((name) => !text.includes(`.${name}(`));
  expect(missing).toEqual([]);
});
