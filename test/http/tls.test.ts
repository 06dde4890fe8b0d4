/** HTTPS from files: which pairs are taken, at the start and while the service runs, and who talks to it. */

import { describe, expect, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { connect, type TLSSocket } from "node:tls";
import { Client } from "../../client/client.ts";
import { runCommand, runOnTerminal, runScript, spawnService } from "../support/command.ts";
import { certify, hasOpenssl } from "../support/certificates.ts";
import { failure } from "../support/expect.ts";
import { makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { runSync } from "../support/processes.ts";
import { bearer, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite"];

const isLinux = process.platform === "linux";

function makePlace() {
  const at = makeWorkplace();
  const first = certify(at.path, "first");
  const cert = at.file("cert.pem");
  const key = at.file("key.pem");
  /** As a renewal does it: a new file takes the place of the old one. */
  const place = (from: string, to: string): void => {
    copyFileSync(from, `${to}.new`);
    renameSync(`${to}.new`, to);
  };
  const use = (pair: { cert: string; key: string }): void => {
    place(pair.key, key);
    place(pair.cert, cert);
  };
  use(first);
  const env = {
    ...at.env,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_TLS_CERT: cert,
    PLANTSTORE_TLS_KEY: key,
  };
  return { ...at, first, cert, key, place, use, env };
}

const QUICK = limits({ tlsPollSeconds: 0.02, idleSecondsMax: 1 });

type Place = ReturnType<typeof makePlace>;

const trust = (...files: readonly string[]) => ({
  headers: bearer(),
  tls: { ca: files.map((file) => readFileSync(file, "utf8")).join("") },
});

async function openSocket(url: string, more: object = {}): Promise<TLSSocket> {
  const { hostname: host, port } = new URL(url);
  const socket = connect({ host, port: Number(port), rejectUnauthorized: false, ...more });
  await once(socket, "secureConnect");
  return socket;
}

async function nameAt(url: string): Promise<string> {
  const socket = await openSocket(url);
  const { subject } = new X509Certificate(socket.getPeerCertificate().raw);
  socket.destroy();
  return subject;
}

async function get(socket: TLSSocket, path: string): Promise<string> {
  const received = once(socket, "data");
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const [data] = (await received) as [Buffer];
  return data.toString();
}

describe.skipIf(!hasOpenssl)("HTTPS", () => {
  test("the service, its commands and the client speak TLS 1.2 and later", async () => {
    using at = makePlace();
    await using service = await spawnService(at.env);
    const { url } = service.started;
    expect(url).toStartWith("https://127.0.0.1:");
    for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
      const socket = await openSocket(url, { minVersion: version, maxVersion: version });
      expect(socket.getProtocol()).toBe(version);
      expect(await get(socket, "/livez")).toStartWith("HTTP/1.1 200 ");
      socket.destroy();
    }
    const old = openSocket(url, { minVersion: "TLSv1", maxVersion: "TLSv1.1" });
    expect(await old.catch((error: Error) => error.message)).toContain("PROTOCOL_VERSION");

    const client = new Client(url, TEST_TOKEN, {
      fetch: (address, init) =>
        fetch(address, { ...init, ...trust(at.cert), headers: init.headers }),
    });
    await client.create({ id: 1n, name: "Fern" });
    const ask = (...args: string[]) => runCommand(args, { ...at.env, PORT: new URL(url).port });
    const exported = await ask("export", "--url", url, "--ca", at.cert);
    expect(exported).toEqual({ exitCode: 0, stdout: '{"id":1,"name":"Fern"}\n', stderr: "" });
    expect(await ask("export", "--url", url)).toMatchObject(
      failure(1, "has a certificate that is not trusted"),
    );
    expect(await ask("health")).toMatchObject({ exitCode: 0, stderr: "" });
    expect(await ask("health", "--ca", at.cert)).toMatchObject({ exitCode: 0, stderr: "" });
    const { cert: stranger } = certify(at.path, "stranger");
    expect(await ask("health", "--ca", stranger)).toMatchObject(
      failure(1, "does not answer: its certificate is not trusted: "),
    );
  });

  test("without TLS on one side, both sides say so", async () => {
    using at = makePlace();
    await using service = await spawnService(at.env);
    const { port } = new URL(service.started.url);
    const plain = new Client(`http://127.0.0.1:${port}`, TEST_TOKEN, { delaysMs: [1, 1] });
    expect(await plain.countPlants().catch((error: Error) => error.message)).toContain(
      "was lost. If it has TLS, its address begins with https.",
    );
    const { PLANTSTORE_TLS_CERT: _, PLANTSTORE_TLS_KEY: __, ...without } = at.env;
    expect(await runCommand(["health", "--port", port], without)).toMatchObject(
      failure(1, "PLANTSTORE_TLS_CERT"),
    );
    using other = makeWorkplace();
    await using unsecured = await spawnService({ ...other.env, PLANTSTORE_TOKEN: TEST_TOKEN });
    const secure = unsecured.started.url.replace("http:", "https:");
    const args = ["export", "--url", secure, "--ca", at.cert];
    expect(await runCommand(args, without)).toMatchObject(
      failure(1, "Without TLS, its address begins with http."),
    );
  });

  test("the printed link has a name of the certificate", async () => {
    using at = makePlace();
    const { screen } = await runOnTerminal(
      ["serve", "--host", "0.0.0.0"],
      { ...at.env, PORT: "0" },
      "Ctrl-C",
    );
    expect(screen).toMatch(/Address +https:\/\/localhost:\d+/);
    expect(screen).toMatch(/TLS +until 2120-01-01T00:00:00.000Z, for localhost, 127.0.0.1/);
  });

  test("the certificate of docs/operations.md is taken, under its name", async () => {
    using at = makePlace();
    const text = readFileSync(`${import.meta.dir}/../../docs/operations.md`, "utf8");
    const [, section = ""] = text.split("## HTTPS\n");
    const blocks = [...section.matchAll(/^ *```sh\n([^]*?)```/gm)].map(([, block]) => block);
    const script = blocks.slice(0, 2).join("\n");
    expect(script).toContain("plants.ext");
    expect(await runScript(`set -e\n${script}`, {}, at.path)).toMatchObject({ exitCode: 0 });
    const pair = { PLANTSTORE_TLS_CERT: "plants.pem", PLANTSTORE_TLS_KEY: "plants.key" };
    const files = Object.entries(pair).map(([name, file]) => [name, at.file(file)]);
    await using service = await spawnService({ ...at.env, ...Object.fromEntries(files) });
    const ca = readFileSync(at.file("authority.pem"), "utf8");
    const socket = await openSocket(service.started.url, {
      ca,
      servername: "plants.lan",
      rejectUnauthorized: true,
    });
    expect(socket.authorized).toBeTrue();
    socket.destroy();
  });

  test("a certificate for another name is refused by commands, and not by health", async () => {
    using at = makePlace();
    at.use(certify(at.path, "lan", { names: "DNS:plants.lan" }));
    await using service = await spawnService(at.env);
    const { url } = service.started;
    const env = { ...at.env, PORT: new URL(url).port };
    expect(await runCommand(["health", "--ca", at.cert], env)).toMatchObject({ exitCode: 0 });
    const exported = await runCommand(["export", "--url", url, "--ca", at.cert], env);
    const says = `plantstore: ${url} has a certificate that is not trusted: it is for another name.\n`;
    expect(exported).toMatchObject({ exitCode: 1, stderr: says });
  });

  const refused: [what: string, spoil: (at: Place) => Record<string, string>, says: string][] = [
    [
      "a certificate without its key",
      () => ({ PLANTSTORE_TLS_KEY: "" }),
      "PLANTSTORE_TLS_CERT: needs PLANTSTORE_TLS_KEY",
    ],
    [
      "a key without its certificate",
      () => ({ PLANTSTORE_TLS_CERT: "" }),
      "PLANTSTORE_TLS_KEY: needs PLANTSTORE_TLS_CERT",
    ],
    [
      "a missing file",
      (at) => (rmSync(at.cert), {}),
      "PLANTSTORE_TLS_CERT: FOLDER/cert.pem cannot be read: no such file or directory.",
    ],
    [
      "a folder",
      (at) => (rmSync(at.key), mkdirSync(at.key), {}),
      "PLANTSTORE_TLS_KEY: FOLDER/key.pem is not a file in PEM format.",
    ],
    [
      "a file that is no certificate",
      (at) => (
        writeFileSync(at.cert, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
        {}
      ),
      "PLANTSTORE_TLS_CERT: FOLDER/cert.pem is not a certificate in PEM format.",
    ],
    [
      "a chain that was cut off",
      (at) => {
        const pem = readFileSync(at.cert, "utf8");
        writeFileSync(at.cert, pem + pem.slice(0, -60));
        return {};
      },
      "PLANTSTORE_TLS_CERT: FOLDER/cert.pem is not a certificate in PEM format.",
    ],
    [
      "a key of a curve that the runtime does not support",
      (at) => (at.use(certify(at.path, "odd", { curve: "secp224r1" })), {}),
      "PLANTSTORE_TLS_CERT: FOLDER/cert.pem cannot be used for TLS (ERR_OSSL_EVP_UNSUPPORTED_ALGORITHM).",
    ],
    [
      "a certificate in place of the key",
      (at) => (copyFileSync(at.cert, at.key), {}),
      "PLANTSTORE_TLS_KEY: FOLDER/key.pem is not a private key in PEM format.",
    ],
    [
      "a key with a passphrase",
      (at) => {
        const args = ["pkcs8", "-topk8", "-in", at.first.key, "-out", at.key, "-passout", "pass:x"];
        runSync(["openssl", ...args]);
        return {};
      },
      "PLANTSTORE_TLS_KEY: FOLDER/key.pem has a passphrase; it must not have one.",
    ],
    [
      "the key of another certificate",
      (at) => (copyFileSync(certify(at.path, "other").key, at.key), {}),
      "PLANTSTORE_TLS_KEY: FOLDER/key.pem does not belong to the first certificate in FOLDER/cert.pem.",
    ],
    [
      "an expired certificate",
      (at) => (at.use(certify(at.path, "old", { to: "20210101000000Z" })), {}),
      "PLANTSTORE_TLS_CERT: FOLDER/cert.pem has expired: it was valid until 2021-01-01T00:00:00.000Z.",
    ],
    [
      "the key itself",
      (at) => ({ PLANTSTORE_TLS_KEY: readFileSync(at.key, "utf8") }),
      'PLANTSTORE_TLS_KEY: "********" is not allowed; expected the path of a file',
    ],
  ];
  test.each(refused)("%s is refused at the start", async (_, spoil, says) => {
    using at = makePlace();
    const finished = await runCommand(["serve"], { ...at.env, PORT: "0", ...spoil(at) });
    expect(finished.stderr.trim()).toBe(`plantstore: ${says.replaceAll("FOLDER", at.path)}`);
    expect(finished).toMatchObject({ exitCode: 2, stdout: "" });
  });

  test("a certificate that is not valid yet is served, with a warning", async () => {
    using at = makePlace();
    at.use(certify(at.path, "early", { from: "21190101000000Z" }));
    await using service = await spawnService(at.env);
    service.kill("SIGTERM");
    expect(await service.stderr).toContain('"tls_not_valid_yet"');
  });

  test.each([
    [["--url", "https://127.0.0.1:1", "--ca", "missing.pem"], "cannot be read: no such file"],
    [["--url", "https://127.0.0.1:1", "--ca", "key.pem"], "is not a certificate in PEM format"],
    [["--url", "http://127.0.0.1:1", "--ca", "cert.pem"], "is not an https URL"],
    [["--ca", "cert.pem"], "has no effect without --url"],
  ])("export %p is refused", async (args, says) => {
    using at = makePlace();
    const env = { ...at.env, PLANTSTORE_TLS_CERT: "", PLANTSTORE_TLS_KEY: "" };
    const finished = await runCommand(["export", ...args], env, { cwd: at.path });
    expect(finished).toMatchObject(failure(2, says));
  });
});

/** Busy enough to notice a lost request, and not so busy that the tests beside it wait. */
const BUSY_MS = 10;
/** The old listener stays open for at least this long. */
const RETIRE_MS = 5_000;

describe.skipIf(!hasOpenssl).each(isLinux ? ["1", "3"] : ["1"])(
  "new files, with %s HTTP threads",
  (PLANTSTORE_WORKERS) => {
    test("are taken without a restart or a lost request", async () => {
      using at = makePlace();
      await using service = await spawnService({ ...at.env, ...QUICK, PLANTSTORE_WORKERS });
      const { url } = service.started;
      const second = certify(at.path, "second");
      const both = trust(at.first.cert, second.cert);
      const feed = await fetch(`${url}/changes`, {
        ...both,
        headers: { ...both.headers, accept: "text/event-stream" },
      });
      expect(feed.status).toBe(200);
      const over = new AbortController();
      let answered = 0;
      const statuses = new Set<number>();
      const lostAtMs: number[] = [];
      const ask = async (): Promise<void> => {
        for (; !over.signal.aborted; await Bun.sleep(BUSY_MS))
          try {
            statuses.add((await fetch(`${url}/livez`, both)).status);
            answered++;
          } catch {
            lostAtMs.push(performance.now());
          }
      };
      const busy = Array.from({ length: 8 }, ask);
      await until("the clients are busy", () => answered > 100);
      const idle = await openSocket(url);
      at.use(second);
      const replacedAtMs = performance.now();
      await until("a connection gets the new certificate", async () =>
        (await nameAt(url)).includes("second"),
      );
      // Its answer, by whichever listener, still comes; then the connection may be closed.
      expect(await get(idle, "/livez")).toStartWith("HTTP/1.1 200 ");
      // The old listener is gone when no connection gets its certificate any longer.
      let news = 0;
      await until("all connections get it", async () => {
        news = (await nameAt(url)).includes("second") ? news + 1 : 0;
        return news > 30;
      });
      over.abort();
      await Promise.all(busy);
      expect([...statuses]).toEqual([200]);
      // Later, a connection that was opened in the last moment of the old listener may be reset: docs/operations.md.
      expect(lostAtMs.filter((atMs) => atMs - replacedAtMs < RETIRE_MS)).toEqual([]);
      // The stream is still open, and still gets changes.
      const created = await fetch(`${url}/plants`, {
        ...both,
        method: "POST",
        headers: { ...both.headers, "content-type": "application/json" },
        body: '{"id":1,"name":"Fern"}',
      });
      expect(created.status).toBe(200);
      const decoder = new TextDecoder();
      let events = "";
      for await (const bytes of feed.body as ReadableStream<Uint8Array>) {
        events += decoder.decode(bytes, { stream: true });
        if (events.includes('"Fern"')) break;
      }
      service.kill("SIGTERM");
      expect(await service.exited).toBe(0);
      const log = await service.stderr;
      expect(log.match(/"tls_replaced"/g)).toHaveLength(1);
      expect(log).not.toContain("PRIVATE KEY");
    });
  },
);

describe.skipIf(!hasOpenssl)("new files that cannot be used", () => {
  test("leave the old pair in use, until they can", async () => {
    using at = makePlace();
    await using service = await spawnService({ ...at.env, ...QUICK });
    const { url } = service.started;
    const second = certify(at.path, "second");
    const read = async (): Promise<string> =>
      (await fetch(`${url}/metrics`, trust(at.first.cert, second.cert))).text();
    const hasProblem = (value: 0 | 1) => async () =>
      (await read()).includes(`\nplantstore_tls_problem ${value}\n`);
    // With the key that is in use: it is not a mismatch that is noticed first.
    const { key } = at.first;
    const expired = certify(at.path, "old", { key, to: "20210101000000Z" });
    const late = certify(at.path, "late", { key, from: "21190101000000Z" });
    const faulty: [how: string, says: string, spoil: () => void][] = [
      ["the key of another", "does not belong", () => at.place(second.key, at.key)],
      ["a torn file", "is not a certificate", () => writeFileSync(at.cert, "-----BEGIN CERT")],
      ["a missing file", "cannot be read", () => rmSync(at.cert)],
      ["an expired one", "has expired", () => at.place(expired.cert, at.cert)],
      ["one of later", "is not valid before", () => at.place(late.cert, at.cert)],
    ];
    for (const [how, , spoil] of faulty) {
      spoil();
      await until(`${how} is noticed`, hasProblem(1));
      expect(await nameAt(url)).toContain("first");
      at.use(at.first);
      await until("the problem is gone", hasProblem(0));
    }
    at.use(second);
    await until("the new pair is used", async () => (await nameAt(url)).includes("second"));
    const [, seconds] = /^plantstore_tls_expiry_seconds (\S+)$/m.exec(await read()) ?? [];
    const expected = (Date.parse("2120-01-01") - Date.now()) / 1000;
    expect(Number(seconds)).toBeWithin(expected - 60, expected + 60);
    service.kill("SIGTERM");
    const log = await service.stderr;
    for (const [, says] of faulty) expect(log).toContain(says);
    expect(log.match(/"tls_not_replaced"/g)?.length).toBeLessThan(20);
    expect(log).not.toContain("PRIVATE KEY");
  });
});
