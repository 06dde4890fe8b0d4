/** Every path of the interface. The description has the same. */

import type { Config } from "../config.ts";
import { BATCH_TYPES, createPlants } from "./batch.ts";
import { listChanges } from "./changes.ts";
import { answer, type Route } from "./handle.ts";
import { answerTags, countPlants, listPlants } from "./list.ts";
import { describeApi } from "./openapi.ts";
import { createPlant, readPlant, removePlant, replacePlant } from "./plants.ts";
import { JSON_TYPE } from "./request-headers.ts";
import { webhookRoutes } from "./webhooks.ts";
import { showActivity, showLive, showMetrics, showReady, showToken } from "./status.ts";
import { createToken, listTokens, revokeToken } from "./tokens.ts";

export function createRoutes(config: Config): readonly Route[] {
  const description = JSON.stringify(describeApi(config));
  return [
    {
      path: "/plants",
      operations: {
        GET: { scope: "plants:read", handle: listPlants, hasQuery: true },
        POST: { scope: "plants:write", handle: createPlant, bodyTypes: [JSON_TYPE] },
      },
    },
    {
      path: "/plants/batch",
      operations: {
        POST: { scope: "plants:write", handle: createPlants, bodyTypes: BATCH_TYPES },
      },
    },
    {
      path: "/plants/count",
      operations: { GET: { scope: "plants:read", handle: countPlants, hasQuery: true } },
    },
    {
      path: "/plants/:id",
      operations: {
        GET: { scope: "plants:read", handle: readPlant },
        PUT: { scope: "plants:write", handle: replacePlant },
        DELETE: { scope: "plants:write", handle: removePlant },
      },
    },
    {
      path: "/tags",
      operations: { GET: { scope: "plants:read", handle: answerTags(false), hasQuery: true } },
    },
    {
      path: "/tags/counts",
      operations: { GET: { scope: "plants:read", handle: answerTags(true), hasQuery: true } },
    },
    {
      path: "/changes",
      operations: { GET: { scope: "plants:read", handle: listChanges, hasQuery: true } },
    },
    ...webhookRoutes,
    { path: "/token", operations: { GET: { scope: "any", handle: showToken } } },
    {
      path: "/tokens",
      operations: {
        GET: { scope: "tokens:manage", handle: listTokens },
        POST: { scope: "tokens:manage", handle: createToken, bodyTypes: [JSON_TYPE] },
      },
    },
    {
      path: "/tokens/:id",
      operations: { DELETE: { scope: "tokens:manage", handle: revokeToken } },
    },
    {
      path: "/activity",
      operations: { GET: { scope: "plants:read", handle: showActivity, hasQuery: true } },
    },
    { path: "/metrics", operations: { GET: { scope: "plants:read", handle: showMetrics } } },
    { path: "/livez", operations: { GET: { scope: undefined, handle: showLive } } },
    { path: "/readyz", operations: { GET: { scope: undefined, handle: showReady } } },
    {
      path: "/openapi.json",
      operations: { GET: { scope: undefined, handle: () => answer(200, description) } },
    },
  ];
}
