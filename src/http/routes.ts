/** Every path of the service, in one table. */

import type { Config } from "../config.ts";
import { answerLive, answerReady } from "./health.ts";
import { describeApi } from "./openapi.ts";
import { createPlants } from "./batch.ts";
import { listPlants } from "./list.ts";
import { createPlant, readPlant, removePlant, replacePlant } from "./plants.ts";
import type { Method, Route } from "./service.ts";

export function createRoutes(config: Config): readonly Route[] {
  const description = JSON.stringify(describeApi(config));
  return [
    {
      path: "/plants",
      operations: {
        GET: { scope: "plants:read", handle: listPlants },
        POST: { scope: "plants:write", handle: createPlant },
      },
    },
    {
      path: "/plants/batch",
      operations: { POST: { scope: "plants:write", handle: createPlants } },
    },
    {
      path: "/plants/:id",
      operations: {
        GET: { scope: "plants:read", handle: readPlant },
        PUT: { scope: "plants:write", handle: replacePlant },
        DELETE: { scope: "plants:write", handle: removePlant },
      },
    },
    { path: "/livez", operations: { GET: { scope: undefined, handle: answerLive } } },
    { path: "/readyz", operations: { GET: { scope: undefined, handle: answerReady } } },
    {
      path: "/openapi.json",
      operations: {
        GET: { scope: undefined, handle: () => ({ status: 200, body: description }) },
      },
    },
  ];
}

/** The methods that a path answers to: HEAD wherever GET, and OPTIONS everywhere. */
export function allowedMethods(route: Route): string {
  const methods = Object.keys(route.operations) as Method[];
  return [
    ...methods.flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method])),
    "OPTIONS",
  ].join(", ");
}
