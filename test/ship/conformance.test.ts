/** The official conformance suite of MCP, as far as it applies. It is installed for the test alone. */

import { expect, test } from "bun:test";
import { cpSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../support/folder.ts";
import { isLong } from "../support/long.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";
import { run } from "../support/shipped.ts";

/** The other scenarios are about prompts, resources, and tools that a server has only for them. */
const since2025 = ["server-initialize", "ping", "tools-list"];
const since2026 = ["server-stateless", "caching", "http-header-validation", "tools-list"];
const scenarios = Object.entries({
  "2026-07-28": [...since2026, "server-sse-multiple-streams", "dns-rebinding-protection"],
  "2025-11-25": [...since2025, "dns-rebinding-protection"],
  "2025-06-18": since2025,
}).flatMap(([version, names]) => names.map((name) => [version, name] as const));

/** A check that needs what this server does not have, by the words of the suite. */
const NOT_APPLICABLE =
  /^Not testable: server does not list|Method not found: (prompts|resources)\//;

interface Check {
  readonly id: string;
  readonly status: "SUCCESS" | "FAILURE" | "WARNING" | "SKIPPED" | "INFO";
  readonly errorMessage?: string;
}

/** The suite sends no token. */
const addToken = (url: string) =>
  Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request) => {
      const sent = new Request(url + new URL(request.url).pathname, request);
      sent.headers.set("authorization", `Bearer ${TEST_TOKEN}`);
      return fetch(sent);
    },
  });

test.skipIf(!isLong)("the conformance suite of MCP finds no fault", async () => {
  using folder = makeTemporaryFolder();
  cpSync(join(import.meta.dir, "conformance"), folder.path, { recursive: true });
  const install = ["npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"];
  await run(install, { cwd: folder.path });
  await using service = await startService();
  using server = addToken(service.url);
  for (const [version, scenario] of scenarios) {
    const results = join(folder.path, version, scenario);
    const suite = join(folder.path, "node_modules/@modelcontextprotocol/conformance/dist/index.js");
    const chosen = ["--scenario", scenario, "--spec-version", version, "-o", results];
    const command = [suite, "server", "--url", `http://127.0.0.1:${server.port}/mcp`, ...chosen];
    // It fails if a check does not apply.
    await run([process.execPath, ...command], { cwd: folder.path }).catch(() => undefined);
    const [name = ""] = readdirSync(results);
    const checks = (await Bun.file(join(results, name, "checks.json")).json()) as Check[];
    const faults = checks.filter(
      ({ status, errorMessage = "" }) =>
        (status === "FAILURE" || status === "WARNING") && !NOT_APPLICABLE.test(errorMessage),
    );
    expect([scenario, version, faults]).toEqual([scenario, version, []]);
    const passed = checks.filter(({ status }) => status === "SUCCESS");
    expect([scenario, version, passed.length > 0]).toEqual([scenario, version, true]);
  }
});
