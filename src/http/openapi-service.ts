/** Tags, tokens and figures: the other operations that need a token, as the description shows them. */

import { TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { scopes } from "../domain/token.ts";
import { SAMPLE_MS, SAMPLES_MAX } from "../observe/activity.ts";
import { describeErrors, requestIdHeader } from "./openapi-errors.ts";
import {
  errorsOfAny,
  errorsOfStore,
  limitParameter,
  linkHeader,
  operation,
  parameter,
} from "./openapi-parts.ts";

export function describeServicePaths(): object {
  return {
    "/tags": { get: describeTags() },
    "/token": { get: describeToken() },
    "/activity": { get: describeActivity() },
    "/metrics": { get: describeMetrics() },
  };
}

function describeTags(): object {
  return operation("listTags", "plants:read", "List the tags in use", {
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters and more are not listed; where there are many of those, ` +
      "a page may end early or even empty, with a next link.",
    parameters: [
      parameter("prefix", "What the tags begin with, exactly.", { type: "string" }),
      parameter("after", "The last tag seen; the page begins behind it.", { type: "string" }),
      limitParameter("Tags on a page."),
    ],
    responses: {
      200: {
        description: "The tags.",
        headers: { ...requestIdHeader, ...linkHeader },
        content: {
          "application/json": {
            schema: { type: "array", items: { type: "string" } },
            example: ["bulb", "herb", "tropical"],
          },
        },
      },
      ...describeErrors([...errorsOfAny, "invalid_query", ...errorsOfStore]),
    },
  });
}

function describeToken(): object {
  const errors = errorsOfAny.filter((name) => name !== "insufficient_scope");
  return operation("describeToken", "any", "What the sent token is, and what it may do", {
    tags: ["operation"],
    responses: {
      200: json(
        "The token, without its secret.",
        {
          type: "object",
          required: ["name", "scopes"],
          properties: {
            name: {
              type: "string",
              description: "`PLANTSTORE_TOKEN` for the one that the service was started with.",
            },
            prefix: { type: "string", description: "Its first characters." },
            scopes: { type: "array", items: { type: "string", enum: scopes } },
            expires: {
              type: "string",
              format: "date-time",
              description: "Left out where it does not expire.",
            },
          },
        },
        { name: "till", prefix: "pst_Ab12Cd", scopes: ["plants:write"] },
      ),
      ...describeErrors([...errors, ...errorsOfStore]),
    },
  });
}

const count = { type: "integer" };
const milliseconds = { type: ["number", "null"] };

function describeActivity(): object {
  const properties = {
    atMs: { ...count, description: "When the interval ended, in milliseconds since 1970." },
    creates: { ...count, description: "Plants that were created, those of batches included." },
    requests: { ...count, description: "Requests that were answered." },
    errors: { ...count, description: "Answers of status 5xx." },
    refused: { ...count, description: "Answers of status 4xx." },
    durableP50Ms: {
      ...milliseconds,
      description: "Half of the plants were on disk in this time; null where none was created.",
    },
    durableP99Ms: { ...milliseconds, description: "The same for 99 of 100." },
    waiting: { ...count, description: "Writes that waited for a commit at the end." },
    storeBytes: {
      type: ["integer", "null"],
      description: "Size of the store; null where it was not looked at.",
    },
  };
  const minutes = (SAMPLES_MAX * SAMPLE_MS) / 60_000;
  return operation("showActivity", "plants:read", "What this instance did lately", {
    tags: ["operation"],
    description: `The last ${minutes} minutes in intervals, oldest first. Counts are per interval.`,
    parameters: [
      parameter("since", "Only samples later than this, in milliseconds since 1970.", {
        type: "integer",
        minimum: 0,
      }),
    ],
    responses: {
      200: json(
        "The samples.",
        {
          type: "object",
          required: ["intervalMs", "samples"],
          properties: {
            intervalMs: count,
            samples: {
              type: "array",
              items: { type: "object", required: Object.keys(properties), properties },
            },
          },
        },
        {
          intervalMs: SAMPLE_MS,
          samples: [
            {
              atMs: 1_767_225_600_000,
              creates: 12,
              requests: 40,
              errors: 0,
              refused: 3,
              durableP50Ms: 1.2,
              durableP99Ms: 4.5,
              waiting: 0,
              storeBytes: 4_096_000,
            },
          ],
        },
      ),
      ...describeErrors([...errorsOfAny, "invalid_query", ...errorsOfStore]),
    },
  });
}

function describeMetrics(): object {
  return operation("showMetrics", "plants:read", "Metrics of this instance, for Prometheus", {
    tags: ["operation"],
    responses: {
      200: {
        description: "Prometheus text format 0.0.4.",
        headers: requestIdHeader,
        content: {
          "text/plain": {
            schema: { type: "string" },
            example:
              'plantstore_requests_total{method="POST",path="/plants",status="200"} 12\n' +
              "plantstore_writes_waiting 0\n",
          },
        },
      },
      ...describeErrors([...errorsOfAny, ...errorsOfStore]),
    },
  });
}

function json(description: string, itsSchema: object, example: object): object {
  return {
    description,
    headers: requestIdHeader,
    content: { "application/json": { schema: itsSchema, example } },
  };
}
