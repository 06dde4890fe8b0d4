/** GET and DELETE /jobs, and the answer to a request that becomes a job. */

import { Refusal } from "../domain/errors.ts";
import { JOBS_MAX, JOBS_RUNNING_MAX, LEFT_MAX } from "../domain/job.ts";
import { formatJson } from "../domain/json.ts";
import { answering, type Endpoints, json, ok, operation } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import { jobFields, stopFields, type Values } from "./field.ts";
import { answerText } from "./answer.ts";
import type { ListedJob, Order } from "./job-runner.ts";
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
  const { authorization, service, token, requestId, confinement } = exchange;
  // Another instance can run it to its end.
  if (service.readiness.isDraining) throw new Refusal("shutting_down");
  const { job, isNew } = await service.jobs.start({
    ...work,
    by: token?.name,
    confinement,
    authorization,
    requestId,
    onEnd: () => {
      exchange.hold(0, 0);
      exchange.span?.end();
    },
  });
  // Its memory is held until it ends.
  exchange.isStreamed = isNew;
  return answerText(exchange, formatJob(job), { "preference-applied": "respond-async" }, 202);
}

async function listJobs(
  { query: { batch } }: Input<object, Values<typeof jobFields>>,
  exchange: Exchange,
): Promise<Response> {
  const all = await exchange.service.jobs.list(exchange.confinement);
  const jobs = all.filter(({ name }) => (batch ?? name) === name);
  return answerText(exchange, `[${jobs.map(formatJob).join(",")}]`);
}

async function stopJob(
  { query }: Input<object, Values<typeof stopFields>>,
  exchange: Exchange,
): Promise<Response> {
  const { service, confinement } = exchange;
  return answerText(exchange, formatJob(await service.jobs.stop(query.batch, confinement)));
}

const EXAMPLE = "Tag 2 plants as tropical 2026-01-02T00:00:00.000Z";

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
  listJobs: operation({
    at: "GET /jobs",
    scopes: ["plants:read"],
    kind: "other",
    summary: "List jobs",
    description: ({ jobLostSeconds }) =>
      "The work of requests with `Prefer: respond-async`, the oldest first: all that runs, by any token and on any service of this store, and what ended before. " +
      `At most ${JOBS_RUNNING_MAX} run at a time. ${JOBS_MAX} are kept. ` +
      `A service that shuts down ends its jobs after a commit. One that is killed leaves them \`lost\` after ${jobLostSeconds} seconds. ` +
      "Send the request again, with the same batch, and the work continues.",
    query: jobFields,
    run: listJobs,
    answers: ok("The jobs.", json(list(Job))),
  }),
  stopJob: operation({
    at: "DELETE /jobs",
    scopes: ["plants:write", "plants:read"],
    kind: "other",
    summary: "Stop a job",
    description:
      "The job changes nothing after the answer, and ends within two seconds. Its changes stay; `POST /changes/revert` undoes them by the batch.",
    query: stopFields,
    run: stopJob,
    answers: ok("The job.", json(Job)),
    fails: ["BadQuery", "JobNotFound"],
  }),
};
