/** plantstore serve: how it starts and stops, and what it says if it cannot. */

import { describe, expect, test } from "bun:test";
import { type SettingName, settings } from "../src/config.ts";
import { runCommand, spawnService } from "./support/command.ts";
import { makeWorkplace } from "./support/folder.ts";
import { bearer, send, TEST_TOKEN } from "./support/service.ts";

describe("plantstore serve", () => {
  test("starts with every setting at once, and counts the requests of every path", async () => {
    using at = makeWorkplace();
    const every: Record<SettingName, string> = {
      host: "localhost",
      port: "0",
      databaseUrl: at.env.DATABASE_URL,
      token: TEST_TOKEN,
      jwtIssuer: "http://127.0.0.1:1",
      jwtAudience: "https://plants.example",
      jwtClientId: "console",
      basePath: "/shop",
      corsOrigins: "https://shop.example",
      logLevel: "debug",
      trustedProxies: "10.0.0.0/8",
      workers: process.platform === "linux" ? "2" : "1",
      rateLimit: "1000/s",
      bodyBytesTotalMax: "16777216",
      connectionsMax: "100",
      backupTo: at.path,
      backupEvery: "1h",
      writeConnections: "3",
      plantsMax: "1000",
      diskFreeBytesMin: "1",
      changesDays: "1",
      webhooksPrivate: "true",
      drainDelaySeconds: "1",
    };
    const env = Object.fromEntries(
      Object.entries(every).map(([name, value]) => [settings[name as SettingName].env, value]),
    );
    const { stdout } = await runCommand(["config", "--json"], env);
    const sources = (JSON.parse(stdout) as { source: string }[]).map(({ source }) => source);
    expect(new Set(sources)).toEqual(new Set(["environment"]));
    await using service = await spawnService(env);
    const { started } = service;
    const described = (await (await send(started, "GET", "/openapi.json")).json()) as {
      paths: Record<string, object>;
    };
    const sent = { headers: bearer(), body: '{"id":1,"name":"a"}' };
    expect((await send(started, "POST", "/plants", sent)).status).toBe(200);
    const metrics = await (await send(started, "GET", "/metrics")).text();
    const counted = new Set(Array.from(metrics.matchAll(/path="([^"]*)"/g), ([, path]) => path));
    expect([...counted]).toEqual(expect.arrayContaining([...Object.keys(described.paths), "/mcp"]));
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });
});
