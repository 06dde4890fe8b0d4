/** What operators ask of an instance, as the description shows it. */

import type { Config } from "../config.ts";
import { SAMPLES_MAX } from "../observe/activity.ts";
import {
  answer,
  asText,
  type Described,
  integer,
  json,
  maybe,
  objectOf,
  operation,
  parameter,
  scopesShown,
  text,
} from "./openapi-parts.ts";

export function describeToken(): Described {
  const token = {
    type: "object",
    required: ["name", "scopes"],
    properties: {
      name: {
        ...text,
        description: "`PLANTSTORE_TOKEN` for the token from the service's environment.",
      },
      prefix: { ...text, description: "Its first characters." },
      scopes: scopesShown,
      expires: { ...text, format: "date-time", description: "Left out if it does not expire." },
    },
  };
  const example = { name: "till", prefix: "pst_Ab12Cd", scopes: ["plants:write"] };
  return operation("describeToken", "any", "Show the token that the request was sent with", {
    tags: ["operation"],
    answers: { 200: answer("The token, without its secret.", json(token, example)) },
    fails: ["BadQuery"],
  });
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

export function describeActivity({ sampleSeconds }: Config): Described {
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
  const minutes = (SAMPLES_MAX * sampleSeconds) / 60;
  return operation("showActivity", "plants:read", "Show what this instance did lately", {
    tags: ["operation"],
    description: `The last ${minutes} minutes in intervals, oldest first. Counts are per interval.`,
    parameters: [
      parameter("since", "Only samples later than this, in milliseconds since 1970.", {
        ...integer,
        minimum: 0,
      }),
    ],
    answers: {
      200: answer(
        "The samples.",
        json(activity, {
          intervalMs: sampleSeconds * 1000,
          backups: null,
          samples: [example],
          failures: [],
          version: "1.0.0",
          startedAtMs: 1_767_225_000_000,
        }),
      ),
    },
    fails: ["BadQuery"],
  });
}

export function describeMetrics(): Described {
  const example =
    'plantstore_requests_total{method="POST",path="/plants",status="200"} 12\n' +
    "plantstore_writes_waiting 0\n";
  return operation("showMetrics", "plants:read", "Show metrics of this instance, for Prometheus", {
    tags: ["operation"],
    answers: { 200: answer("Prometheus text format 0.0.4.", asText("text/plain", example)) },
    fails: ["BadQuery"],
  });
}
