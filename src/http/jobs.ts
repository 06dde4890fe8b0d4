/** GET and DELETE /jobs, and the answer to a request that becomes a job. */

import { Refusal } from "../domain/errors.ts";
import { LEFT_MAX } from "../domain/job.ts";
import { formatJson } from "../domain/json.ts";
import { answering, type Endpoints, json, ok, operation } from "./endpoint.ts";
import { ignoreBody } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import { answer, answerText } from "./handle.ts";
import type { ListedJob, Order } from "./job-runner.ts";
import { jobParameters, parseQuery, stopParameters } from "./query.ts";
import { define, int64, integer, list, object, text, time } from "./shape.ts";

function formatJob({ name, kind, by, state, startedAtMs, report, left }: ListedJob): string {
  const shown = {
    batch: name,
    kind,
    by,
    state,
    started: new Date(startedAtMs).toISOString(),
    report,
  };
  return `${formatJson(shown).slice(0, -1)},"left":[${left.join(",")}]}`;
}

export type Work = Pick<Order, "kind" | "request" | "report" | "run">;

/** The answer to a request with `Prefer: respond-async`. */
export async function answerAccepted(exchange: Exchange, work: Work): Promise<Response> {
  const { request, service, token, requestId } = exchange;
  // Another instance can run it to its end.
  if (service.readiness.isDraining) throw new Refusal("shutting_down");
  const { job, isNew } = await service.jobs.start({
    ...work,
    by: token?.name,
    authorization: request.headers.get("authorization") ?? "",
    requestId,
    onEnd: () => {
      exchange.hold(0, 0);
      exchange.span?.end();
    },
  });
  // Its memory is held until it ends.
  exchange.isStreamed = isNew;
  return answer(202, formatJob(job), { "preference-applied": "respond-async" });
}

async function listJobs(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const { batch } = parseQuery(request.url, jobParameters);
  const jobs = (await service.jobs.list()).filter(({ name }) => (batch ?? name) === name);
  return answerText(exchange, `[${jobs.map(formatJob).join(",")}]`);
}

async function stopJob(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  await ignoreBody(request);
  const { batch } = parseQuery(request.url, stopParameters);
  return answerText(exchange, formatJob(await service.jobs.stop(batch)));
}

const EXAMPLE = "Tag 2 plants as tropical 2026-01-02T00:00:00.000Z";

/** Headers of requests that may be answered with 202. */
export const asyncHeaders = {
  Prefer: text(
    undefined,
    "`respond-async` answers 202, and the service finishes the work without the client (RFC 7240). Other preferences are ignored.",
  ),
};

const Job = define("Job", {
  batch: text(EXAMPLE, "The name of the job, and of its writes in the journal."),
  kind: text("change", undefined, { enum: ["change", "remove", "revert", "upsert"] }),
  by: text("office", "The name of the token."),
  state: text("running", "`lost`: the service that ran it was killed, or writes no progress.", {
    enum: ["running", "stopping", "ended", "lost"],
  }),
  started: time("2026-01-02T00:00:00.000Z"),
  report: {
    schema: {
      type: "object",
      description: "The last line that a streamed answer would have by now.",
    },
    example: { plants: 1, replaced: 1, batch: EXAMPLE, complete: false },
  },
  left: list(
    object({ id: int64(2), status: integer(412), error: integer(3003), message: text("…") }),
    `The first ${LEFT_MAX} plants that were left alone: the lines of a streamed answer.`,
  ),
});

export const accepted = answering(
  202,
  "With `Prefer: respond-async`: the service has accepted the job.",
  json(Job),
  "Preference-Applied",
);

export const jobOperations: Endpoints = {
  listJobs: operation("GET /jobs", "plants:read", listJobs, {
    summary: "List jobs",
    query: jobParameters,
    answers: ok("The jobs.", json(list(Job))),
  }),
  stopJob: operation("DELETE /jobs", "plants:write", stopJob, {
    summary: "Stop a job",
    needs: "plants:read",
    query: stopParameters,
    answers: ok("The job.", json(Job)),
    fails: ["BadQuery", "JobNotFound"],
  }),
};
