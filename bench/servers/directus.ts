/** Directus on SQLite: its settings, and a database with a collection of plants to copy from. */

import { findFreePort } from "../../test/support/postgres-files.ts";
import { TOKEN } from "../settings.ts";
import { makeLastingPath } from "../stores.ts";
import { nodeBinary, peerPath } from "./install.ts";
import { type Api, headers } from "./server.ts";

const START_MS_MAX = 120_000;

export const directusApi: Api = {
  createPath: "/items/plants",
  createStatus: 200,
  getPath: "/items/plants",
  listPath: "/items/plants?limit=100",
  findPlant: (answer) => (answer as { data?: unknown } | null)?.data,
};

export const directusCommand = [
  nodeBinary(22),
  peerPath("directus", "node_modules/directus/cli.js"),
] as const;

export const directusEnv = (path: string): Record<string, string> => ({
  DB_CLIENT: "sqlite3",
  DB_FILENAME: path,
  HOST: "127.0.0.1",
  SECRET: "a secret of the benchmark, at least so long",
  ADMIN_EMAIL: "gardener@example.com",
  ADMIN_PASSWORD: "a-password-of-the-benchmark",
  ADMIN_TOKEN: TOKEN,
  NODE_ENV: "production",
  LOG_LEVEL: "error",
  TELEMETRY: "false",
  // It would refuse requests under load, which is the very thing that is measured.
  PRESSURE_LIMITER_ENABLED: "false",
});

let template: Promise<string> | undefined;

/** Made once a run. */
export const createDirectusTemplate = (): Promise<string> => (template ??= createTemplate());

async function createTemplate(): Promise<string> {
  const path = makeLastingPath("directus.db");
  const env = { ...process.env, ...directusEnv(path), PORT: String(findFreePort()) };
  const cwd = peerPath("directus");
  const options = { cwd, env, stdout: "ignore", stderr: "pipe" } as const;
  const bootstrap = Bun.spawn([...directusCommand, "bootstrap"], {
    ...options,
    timeout: START_MS_MAX,
  });
  const errors = await new Response(bootstrap.stderr).text();
  if ((await bootstrap.exited) !== 0)
    throw new Error(`directus bootstrap failed: ${errors.trim().split("\n")[0] ?? ""}`);
  const child = Bun.spawn([...directusCommand, "start"], { ...options, stderr: "ignore" });
  try {
    await createCollection(`http://127.0.0.1:${env.PORT}`);
  } finally {
    child.kill();
    await child.exited;
  }
  return path;
}

async function createCollection(url: string): Promise<void> {
  const body = JSON.stringify({
    collection: "plants",
    schema: {},
    meta: {},
    fields: [
      {
        field: "id",
        type: "bigInteger",
        schema: { is_primary_key: true, has_auto_increment: false },
        meta: {},
      },
      { field: "name", type: "string", schema: { is_nullable: false }, meta: {} },
      { field: "tag", type: "string", schema: {}, meta: {} },
    ],
  });
  const startedMs = performance.now();
  for (;;) {
    try {
      const response = await fetch(`${url}/collections`, { method: "POST", headers, body });
      if (response.ok) return;
      throw new Error(`it refused the collection: ${await response.text()}`);
    } catch (error) {
      const isRefused = (error as Error).message.startsWith("it refused");
      if (isRefused || performance.now() - startedMs > START_MS_MAX) throw error;
    }
    await Bun.sleep(50);
  }
}
