/** The state of an instance: health, activity and metrics. */

import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import { scopes } from "../domain/token.ts";
import { REQUESTS_KEPT } from "../observe/recent-requests.ts";
import { PROMETHEUS_TYPE, SAMPLES_MAX } from "../observe/reporter.ts";
import { type Endpoints, json, ok, operation } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import { activityFields, type Values } from "./field.ts";
import { within } from "../tick.ts";
import { METADATA_PATH } from "../auth/challenge.ts";
import { answer, answerText } from "./answer.ts";
import { annotate, integer, list, maybe, number, object, text } from "./shape.ts";

/** Any client may ask, and a probe is a commit, so it is throttled to one per second. */
export function createReadiness(store: Pick<Store, "probe">) {
  let probedAtMs = Number.NEGATIVE_INFINITY;
  let probe: Promise<void> = Promise.resolve();
  const readiness = {
    isDraining: false,
    /** Resolves if a write was committed and synced within the last second; rejects with the reason. */
    check: async (): Promise<void> => {
      if (readiness.isDraining) throw new Refusal("shutting_down");
      if (performance.now() - probedAtMs >= 1_000) {
        probedAtMs = performance.now();
        probe = store.probe();
      }
      await probe;
    },
  };
  return readiness;
}

/** Another thread may be too busy to say how its backups are. */
const READY_MS_MAX = 1_000;

async function showReady(_input: Input, { service }: Exchange) {
  await service.readiness.check();
  // Clients are served all the same, so the status stays 200. The reason is not for everybody who may ask.
  const isFailing = await within(READY_MS_MAX, service.reports.areBackupsFailing());
  return { status: "ready", ...(isFailing && { backups: "failing" }) };
}

async function showActivity(
  { query: { since, ...query } }: Input<object, Values<typeof activityFields>>,
  exchange: Exchange,
): Promise<Response> {
  const body = await exchange.service.reports.readActivity(since, query);
  // Unknown figures are null, so a client can tell them from missing ones.
  return answerText(
    exchange,
    JSON.stringify(body, (_key, value: unknown) => value ?? null),
  );
}

/** Answered even if memory is short: an operator has to see that. */
async function showMetrics(_input: Input, { service }: Exchange): Promise<Response> {
  return answer(200, await service.formatMetrics(), { "content-type": PROMETHEUS_TYPE });
}

const SampleShape = object({
  atMs: integer(1_767_225_600_000, "When the interval ended, in milliseconds since 1970."),
  creates: integer(12, "Plants that were created, those of batches included."),
  requests: integer(40, "Requests that were answered."),
  errors: integer(0, "Answers with status 5xx."),
  refused: integer(3, "Answers with status 4xx."),
  durableP50Ms: maybe(
    number(1.2, "Half of the plants were on disk within this time; null if none was created."),
  ),
  durableP99Ms: maybe(number(4.5, "99 % of the plants were on disk within this time.")),
  readP50Ms: maybe(number(0.4, "Half of the reads of plants and tags took at most this time.")),
  readP99Ms: maybe(number(2.1, "99 % of these reads took at most this time.")),
  writeP50Ms: maybe(number(1.2, "Half of all changes of plants took at most this time.")),
  writeP99Ms: maybe(number(4.5, "99 % of these changes took at most this time.")),
  waiting: integer(0, "Writes that waited for a commit when the interval ended."),
  storeBytes: maybe(integer(4_096_000, "Size of the store; null if it was not measured.")),
});

const BackupsShape = object({
  place: text("/mnt/backups", "The folder or bucket."),
  everyMs: integer(86_400_000),
  made: integer(1),
  failed: integer(0),
  last: maybe(object({ atMs: integer(1_767_225_600_000), bytes: integer(4_096_000) })),
  loggedAtMs: maybe(
    integer(
      1_767_225_600_000,
      "Changes committed before this time are in the backups; null without a journal.",
    ),
  ),
  lagChanges: maybe(integer(0, "Changes of this instance that may not be in the backups.")),
  proven: maybe(
    annotate(
      object({
        atMs: integer(1_767_225_600_000),
        change: integer(1_767_225_599_000_000),
        copies: integer(48),
        oldestAtMs: integer(1_767_182_400_000, "When the oldest copy was made."),
      }),
      "When the backups were last restored and compared with the store, up to which change, and how far back they reach.",
    ),
  ),
  proofs: integer(1),
  proofsFailed: integer(0),
  problem: maybe(text("The folder /mnt/backups does not exist.", "Why backups fail at present.")),
});

const RequestShape = object({
  atMs: integer(1_767_225_600_000),
  durationMs: number(0.412, "Until it was answered, or the answer's stream began."),
  status: integer(404),
  reason: maybe(text("plant_not_found", "The name of the error; null if the request succeeded.")),
  method: text("GET"),
  path: text("/plants/7", "`other` if there is nothing at the path."),
  token: maybe(text("till", "The name of the token, if a valid one was sent.")),
  requestId: maybe(
    text("k3v9x2-1", "The `X-Request-Id` of the answer; null if the answer has none."),
  ),
});

const ActivityShape = object({
  intervalMs: integer(5_000),
  samples: list(SampleShape),
  backups: maybe(
    annotate(BackupsShape, "The backups of this instance since its start; null if it makes none."),
  ),
  requests: list(
    RequestShape,
    `The last requests that match the query, newest first. Each HTTP thread keeps ${REQUESTS_KEPT} with a status below 400, ` +
      "as many with 4xx, and as many with 5xx. Those below 400 to `/activity`, `/metrics` and paths without a token are not kept.",
  ),
  version: text("1.0.0", "The version of the program."),
  startedAtMs: integer(1_767_225_000_000),
});

const METRICS_EXAMPLE =
  'plantstore_requests_total{method="POST",path="/plants",status="200"} 12\nplantstore_writes_waiting 0\n';

const valueOf = (value: string, description?: string) =>
  text(value, description, { enum: [value] });

const describeStatus = (meaning: string, value: string) =>
  ok(meaning, json(object({ status: valueOf(value) })));

const ReadyShape = object(
  {
    status: valueOf("ready"),
    backups: valueOf(
      "failing",
      "Only if changes or copies do not arrive in the backups, or a proof failed. `GET /activity` says why.",
    ),
  },
  { optional: ["backups"] },
);

/** RFC 9728, for clients that ask the issuer for a token. */
function describeResource({ jwtIssuer, jwtAudience }: Config): Endpoints {
  if (jwtIssuer === "") return {};
  const metadata = object({
    resource: text(jwtAudience, "The audience of JWTs for this service."),
    authorization_servers: list(text(jwtIssuer)),
    scopes_supported: { ...list(text()), example: scopes },
    bearer_methods_supported: list(text("header")),
    resource_name: text("Plant Store"),
  });
  return {
    describeResource: operation({
      at: `GET ${METADATA_PATH}`,
      scopes: undefined,
      kind: "other",
      summary: "Show whose JWTs the service accepts",
      description: "For clients that ask the issuer for a token.",
      run: () => metadata.example,
      answers: ok("Protected resource metadata (RFC 9728).", json(metadata)),
    }),
  };
}

export const listStatusOperations = (config: Config): Endpoints => ({
  showActivity: operation({
    at: "GET /activity",
    scopes: ["plants:read"],
    kind: "other",
    isWhole: true,
    summary: "Show the recent activity of this instance",
    description: ({ sampleSeconds }) =>
      `The last ${(SAMPLES_MAX * sampleSeconds) / 60} minutes in intervals, oldest first, with counts per interval; and recent requests, newest first.`,
    query: activityFields,
    run: showActivity,
    answers: ok("The samples.", json(ActivityShape)),
  }),
  showMetrics: operation({
    at: "GET /metrics",
    scopes: ["plants:read"],
    kind: "other",
    isWhole: true,
    summary: "Show metrics of this instance, for Prometheus",
    description: "Counters since the start of this instance, and figures as they are now.",
    run: showMetrics,
    answers: ok("Prometheus text format 0.0.4.", { "text/plain": text(METRICS_EXAMPLE) }),
  }),
  isAlive: operation({
    at: "GET /livez",
    scopes: undefined,
    kind: "other",
    summary: "Check liveness",
    description: "Answers as long as the process runs.",
    run: () => ({ status: "alive" }),
    answers: describeStatus("The process runs.", "alive"),
  }),
  isReady: operation({
    at: "GET /readyz",
    scopes: undefined,
    kind: "other",
    summary: "Check readiness",
    description:
      "Answers 200 if a write was committed and synced within the last second and the service is not shutting down.",
    run: showReady,
    answers: ok("The service is ready.", json(ReadyShape)),
    fails: ["BadRequest", "Unavailable"],
  }),
  ...describeResource(config),
});
