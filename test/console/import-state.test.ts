/** Whose a comparison is, without a browser: the worker of an import is a stand-in that notes its orders. */

import { afterAll, beforeEach, expect, test } from "bun:test";
import type { ImportRequest } from "../../console/import/messages.ts";
import {
  checkFile,
  chooseAnother,
  current,
  isImporting,
  startImport,
} from "../../console/import/state.ts";
import { endSession } from "../../console/state/session.ts";
import { startPage } from "./page.ts";
import { grantToken, signIn, startShared, TEST_TOKEN } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);
const other = await grantToken(service);
const orders: ImportRequest[] = [];
const working = new Set<object>();
const { Worker: Real } = globalThis;
globalThis.Worker = class extends EventTarget {
  constructor() {
    super();
    working.add(this);
  }
  postMessage = (order: ImportRequest): unknown => orders.push(order);
  terminate = (): unknown => working.delete(this);
} as unknown as typeof Worker;
afterAll(() => void (globalThis.Worker = Real));

const file = new File(["id,name\n1,Rose\n"], "stock.csv");
beforeEach(() => {
  chooseAnother();
  signIn();
  orders.length = 0;
  checkFile(file);
});

test("a comparison is made again with another token of the same person", () => {
  endSession("expired");
  signIn("Anna", other);
  expect(orders.map(({ token }) => token)).toEqual([TEST_TOKEN, other]);
  expect(orders[1]?.file).toBe(file);
  expect(working.size).toBe(1);
});

test("a comparison ends with another person, whatever ended the session before", () => {
  endSession("expired");
  signIn("Bernd", other);
  expect(current.value).toBeUndefined();
  expect([orders.length, working.size]).toEqual([1, 0]);
});

test("an import that runs survives the end of its token", () => {
  startImport({ file });
  endSession("expired");
  signIn("Anna", other);
  expect([isImporting.value, orders.length, working.size]).toEqual([true, 2, 1]);
});
