/** A service with its own temporary store, full of plants and under a light load. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mintToken, toRecord } from "../src/auth/token.ts";
import { resolveConfig } from "../src/config.ts";
import type { Plant } from "../src/domain/plant.ts";
import { scopes } from "../src/domain/token.ts";
import { listRoutes, pathsOf, type RunningServer } from "../src/http/server.ts";
import { Metrics } from "../src/observe/metrics.ts";
import { startHttp } from "../src/workers/start.ts";
import { createLog } from "../src/observe/log.ts";
import { openServed } from "../src/store/open.ts";
import { createDemoPlants } from "./demo-plants.ts";

interface DemoOptions {
  /** If it is in use, a free port is used instead. */
  readonly port: string;
  readonly plants: number;
}

interface DemoService extends AsyncDisposable {
  readonly url: string;
  readonly token: string;
  readonly hasConsole: boolean;
  /** Sends requests like those of a small shop, until the signal is aborted. */
  readonly bustle: (signal: AbortSignal) => Promise<void>;
}

const writeLog = (line: string): boolean => process.stderr.write(line);

export async function startDemo({ port, plants }: DemoOptions): Promise<DemoService> {
  await using opened = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "plantstore-demo-"));
  opened.defer(() => rmSync(folder, { recursive: true, force: true }));
  const environment = { PORT: port, DATABASE_URL: `sqlite:${join(folder, "plants.db")}` };
  const { config } = resolveConfig({}, environment);
  const routes = listRoutes(config);
  const metrics = new Metrics(pathsOf(routes));
  const limits = { ...config, onCommit: metrics.countCommit };
  const served = await openServed(config.databaseUrl, limits, config.workers);
  const { store } = served;
  opened.defer(() => store.close());
  const stock = createDemoPlants(plants);
  await Promise.all(stock.map((plant) => store.createPlant(plant)));
  const token = mintToken();
  await store.createToken(toRecord(token, { name: "demo", scopes, createdAtMs: Date.now() }));
  const parts = { served, routes, metrics, log: createLog("error", writeLog), writeLog };
  const server = await startOn(port, (on) =>
    startHttp({ ...parts, config: { ...config, port: on } }),
  );
  opened.defer(() => server.stop());
  const send = createSender(server.url, token);
  const stack = opened.move();
  return {
    url: server.url,
    token,
    hasConsole: server.hasConsole,
    bustle: (signal) => bustle(send, stock, signal),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

async function startOn(
  port: string,
  start: (port: number) => Promise<RunningServer>,
): Promise<RunningServer> {
  try {
    return await start(Number(port));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    return start(0);
  }
}

type Send = (method: string, path: string, body?: string) => Promise<void>;

function createSender(url: string, token: string): Send {
  return async (method, path, body) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const response = await fetch(`${url}${path}`, { method, headers, ...(body && { body }) });
    await response.arrayBuffer();
  };
}

/** Some requests create, more read, a few are invalid, and every 150 turns a delivery of 40 plants comes in. */
async function bustle(send: Send, stock: readonly Plant[], signal: AbortSignal): Promise<void> {
  let created = 0;
  const pickOne = (): Plant => stock[Math.floor(Math.random() * stock.length)] as Plant;
  const create = (): Promise<void> => {
    const { name, tag } = pickOne();
    return send("POST", "/plants", JSON.stringify({ id: 100_000 + ++created, name, tag }));
  };
  for (let turn = 0; !signal.aborted; turn++) {
    const delivery = turn % 150 === 60 ? 40 : 0;
    const customers = Math.round(3 + 2.5 * Math.sin(turn / 12) + 2 * Math.random());
    await Promise.all([
      ...Array.from({ length: customers + delivery }, create),
      ...Array.from({ length: customers * 2 }, () => send("GET", `/plants/${pickOne().id}`)),
      ...(turn % 3 === 0 ? [send("GET", "/plants?tag=orchid&limit=20")] : []),
      // The service samples the store's size only while a client polls /activity.
      ...(turn % 20 === 0 ? [send("GET", "/activity")] : []),
      ...(Math.random() < 0.07 ? [send("POST", "/plants", '{"id": 1.5}')] : []),
    ]);
    await Bun.sleep(250 + 300 * Math.random());
  }
}
