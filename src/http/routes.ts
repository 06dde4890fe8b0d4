/** Every path of the service, in two tables: the interface, which is described, and the pages for people. */

import type { Config } from "../config.ts";
import { findConsolePages } from "./console-pages.ts";
import { answerActivity, answerMetrics } from "./activity.ts";
import { createDocsRoutes } from "./docs-page.ts";
import { answerLive, answerReady } from "./health.ts";
import { describeApi } from "./openapi.ts";
import { createPlants } from "./batch.ts";
import { listPlants } from "./list.ts";
import { createPlant, readPlant, removePlant, replacePlant } from "./plants.ts";
import { listTags } from "./tags.ts";
import { answerToken } from "./token.ts";
import type { Method, Operation, Route } from "./service.ts";

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
    { path: "/tags", operations: { GET: { scope: "plants:read", handle: listTags } } },
    { path: "/token", operations: { GET: { scope: "any", handle: answerToken } } },
    { path: "/activity", operations: { GET: { scope: "plants:read", handle: answerActivity } } },
    { path: "/metrics", operations: { GET: { scope: "plants:read", handle: answerMetrics } } },
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

/** What a browser shows. None of it shows a plant: pages ask for those with a token, as any client does. */
export function createPageRoutes(config: Config, consoleFolder: string): readonly Route[] {
  const routes: Route[] = [];
  const console = findConsolePages(consoleFolder);
  if (console !== undefined) {
    routes.push(
      { path: "/", operations: { GET: console.serve("index.html") } },
      { path: "/console/:file", operations: { GET: console.serveNamed } },
    );
    // Links in a page are relative, and lead beside it unless its path ends in a slash.
    if (config.basePath !== "")
      routes.push({ path: "", operations: { GET: redirectTo(`${config.basePath}/`) } });
  }
  routes.push(...createDocsRoutes());
  return routes;
}

const redirectTo = (location: string): Operation => ({
  scope: undefined,
  handle: () => ({ status: 308, body: null, headers: { location } }),
});

/** The path as the description writes it. */
export const describePath = ({ path }: Route): string => path.replace(/:([a-z]+)/g, "{$1}");

/** The methods that a path answers to: HEAD wherever GET, and OPTIONS everywhere. */
export function allowedMethods(route: Route): string {
  const methods = Object.keys(route.operations) as Method[];
  return [
    ...methods.flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : [method])),
    "OPTIONS",
  ].join(", ");
}
