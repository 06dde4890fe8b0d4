/** How an instance is: health, activity and metrics. */

import type { Config } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import { SAMPLES_MAX } from "../observe/activity.ts";
import { PROMETHEUS_TYPE } from "../observe/reporter.ts";
import { answer, type Exchange } from "./handle.ts";
import {
  answer as describeAnswer,
  asText,
  type Entry,
  integer,
  json,
  maybe,
  objectOf,
  parameter,
  text,
} from "./openapi-parts.ts";
import { parseSince } from "./query.ts";

/** Any client may ask, and a probe is a commit: the service makes at most one in this time. */
const PROBE_VALID_MS = 1_000;

export class Readiness {
  private readonly store: Pick<Store, "probe">;
  private readonly validMs: number;
  isDraining = false;
  private probedAtMs = Number.NEGATIVE_INFINITY;
  private probe: Promise<void> = Promise.resolve();
  /** By the last probe that has ended; undefined before the first. */
  private outcome: boolean | undefined;

  constructor(store: Pick<Store, "probe">, validMs = PROBE_VALID_MS) {
    this.store = store;
    this.validMs = validMs;
  }

  drain(): void {
    this.isDraining = true;
  }

  /** Resolves if a write was committed and synced within the last second; rejects with the reason. */
  async check(): Promise<void> {
    if (this.isDraining) throw new Refusal("shutting_down");
    if (performance.now() - this.probedAtMs >= this.validMs) {
      this.probedAtMs = performance.now();
      this.probe = this.store.probe();
      this.probe.then(
        () => (this.outcome = true),
        () => (this.outcome = false),
      );
    }
    await this.probe;
  }

  /** As it was when a client last asked. */
  readonly findLast = (): boolean | undefined => (this.isDraining ? false : this.outcome);
}

async function showReady({ service }: Exchange): Promise<Response> {
  await service.readiness.check();
  return answer(200, '{"status":"ready"}');
}

async function showActivity({ request, service }: Exchange): Promise<Response> {
  const body = await service.reports.readActivity(parseSince(request.url));
  // Unknown figures are null, so a client can tell them from missing ones.
  return answer(
    200,
    JSON.stringify(body, (_key, value: unknown) => value ?? null),
  );
}

async function showMetrics({ service }: Exchange): Promise<Response> {
  const body = await service.reports.formatMetrics();
  return answer(200, body, { "content-type": PROMETHEUS_TYPE });
}

/** Name, type, example and meaning of the figures of an interval. */
const figures: readonly [name: string, type: object, example: number, description: string][] = [
  ["atMs", integer, 1_767_225_600_000, "When the interval ended, in milliseconds since 1970."],
  ["creates", integer, 12, "Plants that were created, those of batches included."],
  ["requests", integer, 40, "Requests that were answered."],
  ["errors", integer, 0, "Answers of status 5xx."],
  ["refused", integer, 3, "Answers of status 4xx."],
  [
    "durableP50Ms",
    maybe("number"),
    1.2,
    "Half of the plants were on disk within this time; null if none was created.",
  ],
  ["durableP99Ms", maybe("number"), 4.5, "The same for 99 of 100."],
  [
    "readP50Ms",
    maybe("number"),
    0.4,
    "Half of the reads of plants and tags took this time at most.",
  ],
  ["readP99Ms", maybe("number"), 2.1, "The same for 99 of 100."],
  ["writeP50Ms", maybe("number"), 1.2, "Half of all changes of plants took this time at most."],
  ["writeP99Ms", maybe("number"), 4.5, "The same for 99 of 100."],
  ["waiting", integer, 0, "Writes that waited for a commit when the interval ended."],
  ["storeBytes", maybe("integer"), 4_096_000, "Size of the store; null if it was not measured."],
];

/** The answer to GET /activity. */
function describeActivity(sampleSeconds: number): object {
  const sample = Object.fromEntries(
    figures.map(([name, type, , description]) => [name, Object.assign({}, type, { description })]),
  );
  const example = Object.fromEntries(figures.map(([name, , value]) => [name, value]));
  const backup = objectOf({ atMs: integer, bytes: integer });
  const backups = objectOf({
    everyMs: integer,
    made: integer,
    failed: integer,
    last: { ...backup, ...maybe("object") },
  });
  const failure = {
    atMs: integer,
    status: integer,
    reason: { ...text, description: "The name of the error." },
    method: text,
    path: { ...text, description: "`other` if there is nothing at the path." },
    token: { ...maybe("string"), description: "The name of the token, if a valid one was sent." },
    requestId: text,
  };
  const activity = objectOf({
    intervalMs: integer,
    samples: { type: "array", items: objectOf(sample) },
    backups: {
      ...backups,
      ...maybe("object"),
      description: "The backups of this instance since its start; null if it makes none.",
    },
    failures: {
      type: "array",
      items: objectOf(failure),
      description: "The last 20 answers of status 4xx and the last 20 of 5xx, newest first.",
    },
    version: { ...text, description: "Of the program." },
    startedAtMs: integer,
  });
  return describeAnswer(
    "The samples.",
    json(activity, {
      intervalMs: sampleSeconds * 1000,
      backups: null,
      samples: [example],
      failures: [],
      version: "1.0.0",
      startedAtMs: 1_767_225_000_000,
    }),
  );
}

const METRICS_EXAMPLE =
  'plantstore_requests_total{method="POST",path="/plants",status="200"} 12\n' +
  "plantstore_writes_waiting 0\n";

const tags = ["operation"];
const describeStatus = (value: string): object =>
  describeAnswer("Yes.", json(objectOf({ status: { ...text, enum: [value] } }), { status: value }));

export const listStatusOperations = ({ sampleSeconds }: Config): readonly Entry[] => [
  {
    at: "GET /activity",
    id: "showActivity",
    scope: "plants:read",
    handle: showActivity,
    tags,
    summary: "Show what this instance did lately",
    description: `The last ${(SAMPLES_MAX * sampleSeconds) / 60} minutes in intervals, oldest first. Counts are per interval.`,
    parameters: [
      parameter("since", "Only samples later than this, in milliseconds since 1970.", {
        ...integer,
        minimum: 0,
      }),
    ],
    answers: { 200: describeActivity(sampleSeconds) },
  },
  {
    at: "GET /metrics",
    id: "showMetrics",
    scope: "plants:read",
    handle: showMetrics,
    tags,
    summary: "Show metrics of this instance, for Prometheus",
    answers: {
      200: describeAnswer("Prometheus text format 0.0.4.", asText("text/plain", METRICS_EXAMPLE)),
    },
  },
  {
    at: "GET /livez",
    id: "isAlive",
    scope: undefined,
    handle: () => answer(200, '{"status":"alive"}'),
    tags,
    summary: "Is the process alive?",
    description: "Answers while the process does.",
    answers: { 200: describeStatus("alive") },
  },
  {
    at: "GET /readyz",
    id: "isReady",
    scope: undefined,
    handle: showReady,
    tags,
    summary: "Is the service ready?",
    description:
      "Answers 200 if a write was committed and synced within the last second and the service is not shutting down.",
    answers: { 200: describeStatus("ready") },
    fails: ["BadRequest", "Unavailable"],
  },
];
