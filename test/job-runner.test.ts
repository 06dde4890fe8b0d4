/** Jobs whose start meets an outage or a shutdown. Their whole life is in test/contract/jobs.test.ts. */

import { expect, test } from "bun:test";
import { Refusal } from "../src/domain/errors.ts";
import type { Job } from "../src/domain/job.ts";
import { Jobs, type Order } from "../src/http/job-runner.ts";
import { createLog } from "../src/observe/log.ts";
import { rejectionOf } from "./support/expect.ts";
import { fakeStore } from "./support/stores.ts";

/** A store of jobs alone. `beforeAnswer` is called when a record is stored. */
function makeJobs(beforeAnswer: () => Promise<void>) {
  const stored = new Map<string, Job>();
  const store = fakeStore({
    listJobs: async () => [...stored.values()],
    putJob: async (next) => {
      if (next !== undefined) stored.set(next.name, next);
      await beforeAnswer();
      return true;
    },
  });
  const authenticator = { watch: () => () => undefined };
  const log = createLog("error", () => undefined);
  return { stored, jobs: new Jobs({ store, authenticator, log }, 600) };
}

function makeOrder() {
  let runs = 0;
  const order: Order = {
    by: "office",
    confinement: "whole store",
    authorization: "",
    requestId: "1",
    kind: "change",
    request: { tag: "a" },
    report: { batch: "spring", plants: 0, complete: false },
    async *run({ signal }) {
      runs++;
      yield [];
      signal.throwIfAborted();
    },
    onEnd: () => undefined,
  };
  return { order, countRuns: () => runs };
}

test("a job whose first record was stored, although the store did not say so, is started by the next request", async () => {
  const lost = new Refusal("store_unavailable");
  let answers: Promise<void>[] = [Promise.reject(lost)];
  answers[0]?.catch(() => undefined);
  const { jobs } = makeJobs(() => answers.shift() ?? Promise.resolve());
  const { order, countRuns } = makeOrder();
  expect(await rejectionOf(jobs.start(order))).toBe(lost);
  expect(countRuns()).toBe(0);
  answers = [];
  expect((await jobs.start(order)).isNew).toBe(true);
  await jobs.close();
  expect(countRuns()).toBe(1);
});

test("a job that is being stored when the service stops has ended when it has stopped", async () => {
  const answered = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const { jobs, stored } = makeJobs(() => {
    reached.resolve();
    return answered.promise;
  });
  const { order } = makeOrder();
  const starting = jobs.start(order);
  await reached.promise;
  const closing = jobs.close();
  answered.resolve();
  await Promise.all([starting, closing]);
  expect(stored.get("spring")?.state).toBe("ended");
});
