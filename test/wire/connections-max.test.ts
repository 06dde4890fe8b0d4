/** More connections than the service takes: those it has are answered, new ones refused, and taken again later. */

import { expect, test } from "bun:test";
import { spawnService } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { connectRaw, head, HOST, type RawConnection } from "../support/wire.ts";

const UNFINISHED = `GET /livez HTTP/1.1\r\n${HOST}\r\n`;
const CLIENTS = 400;

const isRefused = (url: string): Promise<boolean> =>
  fetch(`${url}/livez`, { headers: { connection: "close" } }).then(
    () => false,
    ({ code }: NodeJS.ErrnoException) => code === "ECONNREFUSED",
  );

const PLANTSTORE_CONNECTIONS_MAX = "20";
const bounds: [string, Record<string, string>, string[]][] = [
  ["PLANTSTORE_CONNECTIONS_MAX", { PLANTSTORE_CONNECTIONS_MAX }, []],
  ["it with two threads", { PLANTSTORE_CONNECTIONS_MAX, PLANTSTORE_WORKERS: "2" }, []],
  ["its limit of descriptors", {}, ["sh", "-c", 'ulimit -n 300 && exec "$@"', "sh"]],
];

test.skipIf(process.platform !== "linux").each(bounds)(
  "a service at %s refuses connections, answers those it has, and takes new ones when some are gone",
  async (_name, settings, wrapper) => {
    using folder = makeWorkplace();
    const env = { ...folder.env, PLANTSTORE_TOKEN: TEST_TOKEN, ...settings };
    await using service = await spawnService(env, wrapper);
    const { url } = service.started;
    const first = await connectRaw(url);
    first.send(UNFINISHED);
    const others: RawConnection[] = [];
    await until("a connection is refused", async () => {
      if (await isRefused(url)) return true;
      for (let count = 0; count < 20 && others.length < CLIENTS; count++) {
        const connection = await connectRaw(url).catch(() => undefined);
        if (connection === undefined) break;
        connection.send(UNFINISHED);
        others.push(connection);
      }
      return false;
    });
    first.send(head("Connection: close"));
    expect(await first.receive(/alive|ok|\}/)).toContain("HTTP/1.1 200");

    for (const connection of others) connection.abort();
    await until("connections are taken again", async () => !(await isRefused(url)));
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    expect(await service.stderr).toContain('"event":"connections_full"');
  },
);
