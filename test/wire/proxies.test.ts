/** The proxy configurations of ops/, each started as it stands there. */

import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { spawnService } from "../support/command.ts";
import { EventReader } from "../support/events.ts";
import { makeTemporaryFolder, makeWorkplace } from "../support/folder.ts";
import { findFreePort } from "../support/postgres-files.ts";
import { runSync } from "../support/processes.ts";
import { bearer, TEST_TOKEN } from "../support/service.ts";
import { makeStore } from "../support/stores.ts";
import { chunk, connectRaw, head } from "../support/wire.ts";
import { until } from "../support/until.ts";

interface Proxy {
  /** In ops/. */
  readonly file: string;
  readonly binary: string;
  /** Around and instead of what a machine of its own would have. */
  readonly adapt: (configuration: string, folder: string, port: number) => string;
  readonly start: (path: string, folder: string) => readonly string[];
  /** It reads on after the answer has begun, and passes on that a body was cut off. */
  readonly isFaithful: boolean;
}

const proxies: Readonly<Record<string, Proxy>> = {
  nginx: {
    file: "nginx.conf",
    binary: "nginx",
    isFaithful: true,
    start: (path, folder) => ["-p", folder, "-c", path, "-e", join(folder, "error.log")],
    adapt: (configuration, folder, port) => `
      daemon off; master_process off; pid ${folder}/nginx.pid;
      events { worker_connections 64; }
      http {
        access_log off;
        ${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${folder}/${name};`).join(" ")}
        ${configuration.replace("listen 443", `listen 127.0.0.1:${port}`)}
      }`,
  },
  caddy: {
    file: "Caddyfile",
    binary: "caddy",
    isFaithful: false,
    start: (path) => ["run", "--adapter", "caddyfile", "--config", path],
    adapt: (configuration, folder, port) =>
      `{\n admin off\n auto_https disable_redirects\n}\n${configuration.replace(
        "plants.example {",
        `https://127.0.0.1:${port} {\n tls ${folder}/plants.example.crt ${folder}/plants.example.key`,
      )}`,
  },
  haproxy: {
    file: "haproxy.cfg",
    binary: "haproxy",
    isFaithful: true,
    start: (path) => ["-db", "-f", path],
    adapt: (configuration, _folder, port) =>
      configuration.replace("bind :443", `bind 127.0.0.1:${port}`),
  },
};

const findBinary = (name: string): string | null =>
  Bun.which(name) ?? Bun.which(name, { PATH: "/usr/sbin" });

const root = join(import.meta.dir, "../..");

async function startProxy(name: string, serviceUrl: string) {
  const { file, binary, adapt, start } = proxies[name] as Proxy;
  const folder = makeTemporaryFolder();
  const key = `${folder.path}/plants.example.key`;
  const certificate = `${folder.path}/plants.example.crt`;
  const subject = ["-subj", "/CN=plants.example", "-addext", "subjectAltName=IP:127.0.0.1"];
  const request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
  const files = ["-nodes", "-days", "1", "-keyout", key, "-out", certificate];
  const made = runSync(["openssl", ...request, ...files, ...subject]);
  expect(made.exitCode).toBe(0);
  const ca = readFileSync(certificate, "utf8");
  writeFileSync(`${folder.path}/plants.example.pem`, ca + readFileSync(key, "utf8"));
  const port = findFreePort();
  const path = `${folder.path}/proxy.conf`;
  const configuration = readFileSync(join(root, "ops", file), "utf8")
    .replaceAll("/etc/ssl/", `${folder.path}/`)
    .replaceAll("127.0.0.1:8080", new URL(serviceUrl).host);
  writeFileSync(path, adapt(configuration, folder.path, port));
  const child = Bun.spawn([findBinary(binary) as string, ...start(path, folder.path)], {
    env: { PATH: process.env["PATH"], HOME: folder.path },
    stdout: "ignore",
    stderr: "pipe",
  });
  const url = `https://127.0.0.1:${port}`;
  const tls = { ca };
  const ask = (target: string, method = "GET", accept = "*/*"): Promise<Response> =>
    fetch(url + target, { method, tls, headers: { ...bearer(), accept } });
  await until(`${name} passes requests on`, async () => {
    if (child.exitCode !== null) throw new Error(`${name}: ${await child.stderr.text()}`);
    return (await ask("/readyz").catch(() => undefined))?.ok === true;
  });
  return {
    url,
    connect: () => connectRaw(url, tls),
    ask,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.exited;
      folder[Symbol.dispose]();
    },
  };
}

const requestHead = (line: string, ...lines: string[]): string =>
  head(line, "Host: 127.0.0.1", `Authorization: Bearer ${TEST_TOKEN}`, ...lines);

describe.each(Object.entries(proxies))("%s", (name, { binary, isFaithful }) => {
  test.skipIf(findBinary(binary) === null || Bun.which("openssl") === null)(
    "as ops/ configures it: batch, events, prefix, and an export that is cut off",
    async () => {
      using folder = makeWorkplace();
      makeStore(folder.store, 200_000);
      await using service = await spawnService({
        ...folder.env,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        PLANTSTORE_TRUSTED_PROXIES: "127.0.0.1",
      });
      await using proxy = await startProxy(name, service.started.url);

      // A batch is answered line by line while it is being sent.
      const batch = await proxy.connect();
      const type = "Content-Type: application/x-ndjson";
      const [first, second] = [300_001, 300_002].map((id) => chunk(`{"id":${id},"name":"Fern"}\n`));
      batch.send(requestHead("POST /plants/batch HTTP/1.1", type, "Transfer-Encoding: chunked"));
      batch.send(first as string);
      if (isFaithful) await batch.receive(/"line":1,/);
      batch.send(`${second}0\r\n\r\n`);
      const results = await batch.receive(/"line":2,[^\n]*\n/);
      expect(results.slice(0, 12)).toBe("HTTP/1.1 200");
      expect(results.match(/"status":200/g)).toHaveLength(2);
      batch.abort();

      // An event arrives when it happens, over a stream that stays open.
      const stream = await proxy.ask("/changes", "GET", "text/event-stream");
      await using events = new EventReader(stream);
      expect(await events.take(2)).toMatchObject([{ event: "created" }, { event: "created" }]);
      expect((await proxy.ask("/plants/300002", "DELETE")).status).toBe(204);
      expect(await events.take(1)).toMatchObject([{ event: "removed" }]);

      // The prefix is taken away, and links stay right.
      const page = await proxy.ask("/shop/plants?limit=2");
      expect(page.status).toBe(200);
      expect(page.headers.get("x-request-id")).toMatch(/./);
      const [, next = ""] = /<([^>]+)>; *rel="next"/.exec(page.headers.get("link") ?? "") ?? [];
      expect(next).toStartWith("/shop/plants?");
      const target = new URL(next, `${proxy.url}/shop/plants?limit=2`);
      expect(target.pathname).toBe("/shop/plants");
      expect((await proxy.ask(target.pathname + target.search)).status).toBe(200);
      expect((await proxy.ask("/plants?limit=2")).headers.get("link")).toStartWith("</plants?");

      // The service dies in the middle of an export: the client can tell.
      const reader = await proxy.connect();
      const accept = "Accept: application/x-ndjson";
      reader.send(requestHead("GET /plants HTTP/1.1", accept, "Connection: close"));
      await reader.receive(/plant 1000/);
      service.kill("SIGKILL");
      const cut = await reader.closed;
      expect(cut.slice(0, 12)).toBe("HTTP/1.1 200");
      // Caddy 2.6 ends it as if it were complete, which the document says.
      if (isFaithful) expect(cut.slice(-5)).not.toBe("0\r\n\r\n");
    },
  );
});
