/**
 * Checks that the test runner lacks. `expectError` also holds the answer against the API description: an operation must
 * list every error that it answers.
 */

import { expect } from "bun:test";
import { catalogue, type ErrorName, Refusal, StoreOpenError } from "../../src/domain/errors.ts";
import { resolveConfig } from "../../src/config.ts";
import { MalformedFile } from "../../src/format/records.ts";
import { describeApi } from "../../src/http/description.ts";
import { openStore } from "../../src/store/open.ts";
import { askedOf } from "./service.ts";
import { readRefusal } from "./plants.ts";

/** Asks `/livez` again and again until the promise settles, and at least once. */
export async function expectAlive<Result>(url: string, pending: Promise<Result>): Promise<Result> {
  const isPending = (): boolean => Bun.peek.status(pending) === "pending";
  // While an event loop stands still for a lock or a disk, it answers none; the first comes at the end.
  const answersMin = isPending() ? 3 : 1;
  let answers = 0;
  do {
    const live = await fetch(`${url}/livez`);
    await live.bytes();
    expect(live.status).toBe(200);
    answers++;
  } while (isPending());
  expect(answers).toBeGreaterThanOrEqual(answersMin);
  return pending;
}

/** The least processor time of three runs: on a busy machine the clock says nothing about what something costs. */
export async function measureCpuMs(run: () => unknown): Promise<number> {
  const times: number[] = [];
  while (times.length < 3) {
    const before = process.cpuUsage();
    await run();
    const { user, system } = process.cpuUsage(before);
    times.push((user + system) / 1_000);
  }
  return Math.min(...times);
}

/** The message with which a file is refused as a whole. */
export async function malformed(reading: Promise<unknown>): Promise<string> {
  const error = await rejectionOf(reading);
  expect(error).toBeInstanceOf(MalformedFile);
  return (error as Error).message;
}

export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the promise was expected to reject, and resolved");
}

/** Why a store is not opened. What waiting cannot mend is not waited for: otherwise the test would time out. */
export async function openErrorOf(url: string): Promise<StoreOpenError> {
  const { config } = resolveConfig({}, {});
  const error = await rejectionOf(openStore(url, { ...config, queueSecondsMax: 3_600 }));
  expect(error).toBeInstanceOf(StoreOpenError);
  return error as StoreOpenError;
}

/** A command that prints nothing but why it fails. */
export const failure = (exitCode: number, says: string | RegExp) => ({
  exitCode,
  stdout: "",
  stderr: says instanceof RegExp ? expect.stringMatching(says) : expect.stringContaining(says),
});

/** The name of the Refusal that it throws; undefined if it throws none. */
export function reasonOf(run: () => unknown): ErrorName | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    if (error instanceof Refusal) return error.reason;
    throw error;
  }
}

/** A refusal for now: with a time after which it is worth trying again. */
export async function expectRefusal(response: Response, ...names: string[]): Promise<string> {
  const name = String(await readRefusal(response));
  expect(names).toContain(name);
  expect(response.status).toBe(503);
  expect(response.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
  return name;
}

const described = describeApi(resolveConfig({}, {}).config) as {
  readonly paths: Record<
    string,
    Record<string, { readonly responses?: Record<string, { readonly $ref?: string }> }>
  >;
};

/** Any refusal of the catalogue; its message, which it returns, has these parts. */
export async function expectError(
  response: Response,
  reason: ErrorName,
  ...says: readonly string[]
): Promise<string> {
  const { error, message } = (await response.json()) as { error: number; message: string };
  const { status, code } = catalogue[reason];
  const [method = "", path = ""] = askedOf.get(response) ?? [];
  expect([method, path, response.status, error]).toEqual([method, path, status, code]);
  for (const part of says) expect(message).toContain(part);
  expectDescribed(method, path, reason);
  return message;
}

/** That the description of the operation has the error among its responses. Unknown paths and methods have none. */
function expectDescribed(method: string, path: string, reason: ErrorName): void {
  const { status, failures } = catalogue[reason];
  const [, operations] =
    Object.entries(described.paths).find(([pattern]) =>
      new RegExp(`^${pattern.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(path),
    ) ?? [];
  const responses = operations?.[method.toLowerCase()]?.responses;
  if (responses === undefined) return;
  const named = responses[status]?.$ref?.replace(/.*\//, "") ?? "";
  expect(failures as readonly string[], `${method} ${path}`).toContain(named);
}
/** What an import that has created plants prints: `before`, how to undo it, and `after`. */
export const importPrints = (before: string, after = "") => {
  const [start, end] = [before, after].map((text) => text.replaceAll(/[^\w ]/g, String.raw`\$&`));
  const hint = "plantstore: to undo this import: plantstore revert --batch '[^\n]+ [-T:.Z0-9]+'\n";
  return expect.stringMatching(new RegExp(`^${start}${hint}${end}$`));
};
