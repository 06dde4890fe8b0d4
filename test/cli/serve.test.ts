/** plantstore serve: how it starts and stops, and what it says if it cannot. */

import { dlopen } from "bun:ffi";
import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { hashToken } from "../../src/auth/token.ts";
import { keepFirstToken } from "../../src/auth/first-token.ts";
import { resolveConfig, settings } from "../../src/config.ts";
import type { Store } from "../../src/domain/store.ts";
import type { TokenRecord } from "../../src/domain/token.ts";
import { openDatabase } from "../../src/store/sqlite/database.ts";
import { openAlone } from "../../src/store/sqlite/engine.ts";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  environment,
  runCommand,
  runScript,
  type ServiceProcess,
  spawnService,
} from "../support/command.ts";
import { certify, hasOpenssl } from "../support/certificates.ts";
import { failure, rejectionOf } from "../support/expect.ts";
import { makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { killProcesses, listChildren } from "../support/processes.ts";
import { startReceiver } from "../support/receiver.ts";
import { bearer, readMetric, send, TEST_TOKEN } from "../support/service.ts";
import { settingExamples } from "../support/settings.ts";
import { makeStore } from "../support/stores.ts";
import { until } from "../support/until.ts";

const installed = join(import.meta.dir, "../../bin/plantstore.cjs");

describe("plantstore serve", () => {
  test("starts with every setting at once, and counts the requests of every path", async () => {
    using at = makeWorkplace();
    const pair = hasOpenssl ? certify(at.path, "own") : { cert: "", key: "" };
    const env = {
      ...Object.fromEntries(settingExamples.map(({ setting, allowed }) => [setting.env, allowed])),
      [settings.tlsCert.env]: pair.cert,
      [settings.tlsKey.env]: pair.key,
      [settings.databaseUrl.env]: at.env.DATABASE_URL,
      [settings.backupTo.env]: at.path,
      [settings.token.env]: TEST_TOKEN,
    };
    const { stdout } = await runCommand(["config", "--json"], env);
    const sources = (JSON.parse(stdout) as { source: string }[]).map(({ source }) => source);
    expect(new Set(sources)).toEqual(new Set(["environment"]));
    await using service = await spawnService(env);
    const { started } = service;
    const tls = { rejectUnauthorized: false };
    const described = (await (await send(started, "GET", "/openapi.json", { tls })).json()) as {
      paths: Record<string, object>;
    };
    const sent = { headers: bearer(), body: '{"id":1,"name":"a"}', tls };
    expect((await send(started, "POST", "/plants", sent)).status).toBe(200);
    const metrics = await (await send(started, "GET", "/metrics", { tls })).text();
    const counted = new Set(Array.from(metrics.matchAll(/path="([^"]*)"/g), ([, path]) => path));
    expect([...counted]).toEqual(expect.arrayContaining([...Object.keys(described.paths), "/mcp"]));
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });
});

const isRoot = process.getuid?.() === 0;
/** Root may do everything, so its tests run the command as somebody else. */
const asUser = isRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];
const uid = isRoot ? 65_534 : process.getuid?.();
const owner = isRoot ? 0 : uid;

describe.skipIf(isRoot && Bun.which("setpriv") === null)("a user without the permission", () => {
  /** The store is in `data`, which is the last to be changed. */
  const cases: [what: string, spoil: (folder: string) => void, says: string][] = [
    [
      "to make the store's folder",
      (folder) => chmodSync(folder, 0o555),
      `may not write to FOLDER (owner ${owner}, mode 0555)`,
    ],
    [
      "to make the store in its folder",
      (folder) => mkdirSync(`${folder}/data`, { mode: 0o555 }),
      `may not write to FOLDER/data (owner ${owner}, mode 0555)`,
    ],
    [
      "to read the store",
      (folder) => {
        mkdirSync(`${folder}/data`);
        makeStore(`${folder}/data/plants.db`, 1);
        chmodSync(`${folder}/data/plants.db`, 0o200);
      },
      `may not read FOLDER/data/plants.db (owner ${owner}, mode 0200)`,
    ],
    [
      "to write the store",
      (folder) => {
        mkdirSync(`${folder}/data`);
        makeStore(`${folder}/data/plants.db`, 1);
        chmodSync(`${folder}/data/plants.db`, 0o444);
        chmodSync(`${folder}/data`, 0o777);
      },
      `may not write to FOLDER/data/plants.db (owner ${owner}, mode 0444)`,
    ],
    [
      "to read the log of another user",
      (folder) => {
        mkdirSync(`${folder}/data`);
        makeStore(`${folder}/data/plants.db`, 1);
        chmodSync(`${folder}/data/plants.db`, 0o666);
        writeFileSync(`${folder}/data/plants.db-wal`, "", { mode: 0o200 });
        chmodSync(`${folder}/data`, 0o777);
      },
      `may not read FOLDER/data/plants.db-wal (owner ${owner}, mode 0200)`,
    ],
  ];

  test.each(cases)(
    "%s: the error names the path and the permission",
    async (_what, spoil, says) => {
      using at = makeWorkplace({ "plants.ndjson": '{"id":7,"name":"a"}\n' });
      chmodSync(at.path, 0o755);
      spoil(at.path);
      const before = readdirSync(at.path, { recursive: true });
      const env = { DATABASE_URL: `sqlite:${at.path}/data/plants.db`, PORT: "0" };
      const why = `user ${uid} ${says.replace("FOLDER", at.path)}.`;
      const run = async (...args: readonly string[]): Promise<void> => {
        const finished = await runCommand(args, env, { wrapper: asUser });
        expect(finished).toEqual(failure(1, why));
        expect(finished.stderr).toStartWith(`plantstore: ${at.path}/data/plants.db cannot be `);
      };
      await run("serve");
      expect(readdirSync(at.path, { recursive: true })).toEqual(before);
      await run("import", at.file("plants.ndjson"));
      chmodSync(at.path, 0o755);
    },
  );

  test("for a command's file: the error names the file", async () => {
    using at = makeWorkplace({ "plants.csv": "id,name\n1,a\n" });
    makeStore(at.store, 1);
    chmodSync(at.file("plants.csv"), 0o200);
    chmodSync(at.path, 0o555);
    const imported = await runCommand(["import", at.file("plants.csv")], at.env, {
      wrapper: asUser,
    });
    const unreadable = `user ${uid} may not read ${at.file("plants.csv")} (owner ${owner}, mode 0200)`;
    expect(imported).toEqual(failure(1, `plantstore: ${at.file("plants.csv")}: ${unreadable}.`));
    const args = ["export", "--url", "http://127.0.0.1:1", "--output", at.file("out.csv")];
    const exported = await runCommand(args, { PLANTSTORE_TOKEN: TEST_TOKEN }, { wrapper: asUser });
    const unwritable = `user ${uid} may not write to ${at.path} (owner ${owner}, mode 0555)`;
    expect(exported).toEqual(failure(1, `plantstore: ${at.file("out.csv")}: ${unwritable}.`));
    chmodSync(at.path, 0o755);
  });
});

test("a folder in place of the store, or a file in place of its folder, is named", async () => {
  using at = makeWorkplace({ file: "" });
  mkdirSync(at.store);
  const cases = {
    [at.store]: `${at.store} is a folder`,
    [at.file("file/a.db")]: "file is not a folder",
  };
  for (const [path, says] of Object.entries(cases)) {
    const finished = await runCommand(["serve"], { DATABASE_URL: `sqlite:${path}` });
    expect(finished).toEqual(failure(1, `plantstore: ${path} cannot be opened: `));
    expect(finished.stderr).toContain(says);
  }
});

test
  .skipIf(isRoot && Bun.which("setpriv") === null)
  .each(process.platform === "linux" ? ["1", "2"] : ["1"])(
  "%s threads: metrics are answered while the store's folder cannot be read",
  async (workers) => {
    using at = makeWorkplace();
    const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WORKERS: workers };
    chmodSync(at.path, 0o777);
    await using service = await spawnService(env, asUser);
    chmodSync(at.path, 0o000);
    for (let count = 0; count < 20; count++) {
      const headers = { ...bearer(), connection: "close" };
      const metrics = await send(service.started, "GET", "/metrics", { headers });
      expect(metrics.status).toBe(200);
      expect(await metrics.text()).toContain("plantstore_writes_waiting 0\n");
    }
    chmodSync(at.path, 0o777);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  },
);

describe("with few file descriptors", () => {
  const limitTo = (count: number): string[] => ["sh", "-c", `ulimit -n ${count}; exec "$@"`, "sh"];
  const needs = /^plantstore: .* file descriptors .*\(ulimit -n.*\n$/;

  test.each([13, 16, 20, 24, 32, 48, 64])("%i: serve says how many it needs", async (count) => {
    using at = makeWorkplace();
    for (const workers of process.platform === "linux" ? ["1", "2"] : ["1"]) {
      const env = { ...at.env, PLANTSTORE_WORKERS: workers };
      const finished = await runCommand(["serve"], env, { wrapper: limitTo(count) });
      expect(finished).toEqual(failure(1, needs));
    }
    expect(readdirSync(at.path)).toEqual([]);
  });

  test.each([13, 16, 20, 31, 32, 64])("%i: so does the installed command", async (count) => {
    using at = makeWorkplace();
    const script = `ulimit -n ${count}; exec ${installed} serve --port 0`;
    expect(await runScript(script, at.env)).toEqual(failure(1, needs));
  });

  test("128 are enough", async () => {
    using at = makeWorkplace();
    await using service = await spawnService(at.env, limitTo(128));
    expect((await fetch(`${service.started.url}/readyz`)).status).toBe(200);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });
});

test("a service whose launcher was killed stops, and frees its port", async () => {
  using at = makeWorkplace();
  // As npx runs it, on every version of Node.js: the service is a child of the launcher.
  const env = environment({ ...at.env, npm_command: "exec" });
  const command = [installed, "serve", "--port", "0"];
  const launcher = Bun.spawn(command, { env, stdout: "pipe", stderr: "ignore" });
  const { value } = await launcher.stdout.getReader().read();
  const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  const [service] = listChildren(launcher.pid).map(({ pid }) => pid);
  await killProcesses(launcher.pid);
  const isGone = (): boolean => {
    try {
      return !process.kill(service as number, 0);
    } catch {
      return true;
    }
  };
  await until("the service is gone", isGone);
  expect(await rejectionOf(fetch(`${url}/livez`))).toBeInstanceOf(Error);
});

describe("services that start at once on a new store", () => {
  const { config } = resolveConfig({}, {});

  /** Does `meanwhile` between the look for tokens and the write of the first one. */
  const interrupt = (store: Store, meanwhile: () => Promise<unknown>): Store =>
    new Proxy(store, {
      get: (target, name) =>
        name === "createToken"
          ? async (record: TokenRecord) => {
              await meanwhile();
              return target.createToken(record);
            }
          : Reflect.get(target, name),
    });

  async function expectValid(store: Store, file: string): Promise<void> {
    const token = readFileSync(file, "utf8").trim();
    expect(await store.findToken(hashToken(token))).toMatchObject({ name: "first" });
    expect(statSync(file).mode & 0o777).toBe(0o600);
  }

  test("leave the token file of the one that was first", async () => {
    using at = makeWorkplace();
    const tokenFile = `${at.store}.token`;
    await using store = Object.assign(openAlone(at.store, config), {
      [Symbol.asyncDispose]: () => store.close(),
    });
    let first: object | undefined;
    const late = interrupt(store, async () => (first = await keepFirstToken(store, tokenFile)));
    expect(await keepFirstToken(late, tokenFile)).toEqual({});
    expect(first).toEqual({ tokenFile });
    await expectValid(store, tokenFile);
    expect(readdirSync(at.path).filter((name) => name.includes("token"))).toEqual([
      "plants.db.token",
    ]);
  });

  test("find the token of one that crashed before its file had its name", async () => {
    using at = makeWorkplace();
    const tokenFile = `${at.store}.token`;
    await using store = Object.assign(openAlone(at.store, config), {
      [Symbol.asyncDispose]: () => store.close(),
    });
    const crash = new Error("crash");
    const crashing = new Proxy(store, {
      get: (target, name) =>
        name === "createToken"
          ? async (record: TokenRecord) => {
              await target.createToken(record);
              throw crash;
            }
          : Reflect.get(target, name),
    });
    expect(await rejectionOf(keepFirstToken(crashing, tokenFile))).toBe(crash);
    expect(existsSync(tokenFile)).toBe(false);
    expect(await keepFirstToken(store, tokenFile)).toEqual({ tokenFile });
    await expectValid(store, tokenFile);
    expect(await keepFirstToken(store, tokenFile)).toEqual({});
  });

  test("wait for the one that sets the store up", async () => {
    using at = makeWorkplace();
    using first = new Database(at.store);
    first.run("BEGIN IMMEDIATE");
    const starting = spawnService(at.env);
    // Long enough for the service to fail if it does not wait.
    await Promise.race([starting, Bun.sleep(500)]);
    first.run("COMMIT");
    await using service = await starting;
    expect((await fetch(`${service.started.url}/livez`)).status).toBe(200);
  });

  /** What a frozen process holds, by how far its own start got. Each keeps the lock until it is disposed of. */
  const frozen: Readonly<Record<string, (path: string) => Disposable>> = {
    "an empty file": (path) => {
      const db = new Database(path);
      db.run("BEGIN EXCLUSIVE");
      return db;
    },
    // It creates the WAL index.
    ...(process.platform === "linux" && { "a file in WAL mode": lockIndex }),
    "a store without its schema": (path) => {
      const db = new Database(path);
      db.run("PRAGMA journal_mode = WAL");
      db.run("BEGIN IMMEDIATE");
      return db;
    },
    "a store without its first token": (path) => {
      openDatabase(path).close();
      const db = new Database(path);
      db.run("BEGIN IMMEDIATE");
      return db;
    },
  };

  test("give up, with a reason, when one of them is frozen and keeps its lock", async () => {
    const outcomes = await Promise.all(
      Object.entries(frozen).map(async ([left, lock]) => {
        using at = makeWorkplace();
        using _ = lock(at.store);
        const { exitCode, stderr } = await runCommand(["serve"], { ...at.env, PORT: "0" });
        return [left, exitCode, stderr.replaceAll(at.store, "STORE")];
      }),
    );
    const says = "plantstore: STORE is in use: another process kept it locked for too long.\n";
    const saysLast =
      "plantstore: STORE did not store the first token in time: another process keeps it locked, or its disk hangs.\n";
    expect(outcomes).toEqual(
      Object.keys(frozen).map((left) => [left, 1, left.endsWith("token") ? saysLast : says]),
    );
  });

  test("announce a token file that is valid, and it stays", async () => {
    using at = makeWorkplace();
    const starting = Array.from({ length: 3 }, () => spawnService(at.env));
    await using services = new AsyncDisposableStack();
    for (const service of await Promise.all(starting)) services.use(service);
    const all = await Promise.all(starting);
    const announced = all.flatMap(({ started }) => started.tokenFile ?? []);
    expect(new Set(announced)).toEqual(new Set([`${at.store}.token`]));
    const token = readFileSync(`${at.store}.token`, "utf8").trim();
    for (const { started } of all)
      expect((await send(started, "GET", "/token", { headers: bearer(token) })).status).toBe(200);
  });
});

/** Locks the byte that a process holds while it creates the WAL index. SQLite has no statement for it. */
function lockIndex(path: string): Disposable {
  const db = new Database(path);
  db.run("PRAGMA journal_mode = WAL");
  db.close();
  const [setLock, writeLock, byte] = [6, 1, 128];
  const lock = new BigInt64Array([BigInt(writeLock), BigInt(byte), 1n, 0n]);
  const library = dlopen("libc.so.6", {
    fcntl: { args: ["int", "int", "ptr"], returns: "int" },
  });
  const index = openSync(`${path}-shm`, "w+");
  expect(library.symbols.fcntl(index, setLock, lock)).toBe(0);
  library.close();
  return { [Symbol.dispose]: () => closeSync(index) };
}

/** A stop that waits for one of these would take longer than the test. */
const patient = limits({ drainSecondsMax: 600 });

describe("SIGTERM stops the service at once, with exit code 0,", () => {
  test("while a receiver of webhooks does not answer", async () => {
    using at = makeWorkplace();
    using receiver = startReceiver();
    receiver.answers.push(new Promise<Response>(() => undefined));
    const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WEBHOOKS_PRIVATE: "true" };
    await using service = await spawnService({ ...env, ...patient });
    const body = JSON.stringify({ name: "hook", url: receiver.url });
    expect((await send(service.started, "POST", "/webhooks", { body })).status).toBe(201);
    const plant = '{"id":1,"name":"a"}';
    expect((await send(service.started, "POST", "/plants", { body: plant })).status).toBe(200);
    await receiver.until(1);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    // The next instance need not wait for a lease.
    await using next = await spawnService(env);
    await receiver.until(2);
    expect(receiver.received[1]?.id).toBe(receiver.received[0]?.id as string);
    expect((await fetch(`${next.started.url}/livez`)).status).toBe(200);
  });

  test.each([
    ["without a token", ["Content-Length: 100000", "Connection: keep-alive"], 401],
    ["for its length", ["Content-Length: 2000000", `Authorization: Bearer ${TEST_TOKEN}`], 413],
  ])("while a client that was refused %s still sends its body", async (_why, heads, status) => {
    using at = makeWorkplace();
    const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN, ...patient };
    await using service = await spawnService(env);
    const answered = Promise.withResolvers<string>();
    const { port } = new URL(service.started.url);
    const type = "Content-Type: application/json";
    const head = ["POST /plants HTTP/1.1", "Host: a", type, ...heads, "", ""].join("\r\n");
    const client = await Bun.connect({
      hostname: "127.0.0.1",
      port: Number(port),
      socket: {
        open: (socket) => void socket.write(head),
        data: (_socket, bytes) => answered.resolve(bytes.toString()),
      },
    });
    const sending = setInterval(() => client.write(" "), 50);
    expect(await answered.promise).toStartWith(`HTTP/1.1 ${status} `);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    clearInterval(sending);
    client.end();
  });
});

test("a store thread that ends by itself ends the service, also with writes in flight", async () => {
  using at = makeWorkplace();
  makeStore(at.store, 1);
  // The write is in flight for as long as another process has the lock.
  using other = new Database(at.store);
  other.run("BEGIN IMMEDIATE");
  const main = join(import.meta.dir, "../support/ending-threads.ts");
  const child = Bun.spawn([process.execPath, "--no-env-file", main, "serve"], {
    env: environment({ ...at.env, PORT: "0", PLANTSTORE_TOKEN: TEST_TOKEN }),
    stdout: "pipe",
    stderr: "pipe",
  });
  const { value } = await child.stdout.getReader().read();
  const started = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  const write = send(started, "POST", "/plants", { body: '{"id":2,"name":"a"}' });
  const countWaiting = () => readMetric(started, "plantstore_writes_waiting");
  await until("the write waits", async () => (await countWaiting()) > 0);
  child.kill("SIGUSR2");
  expect((await write).status).toBe(503);
  expect(await child.exited).toBe(1);
  const log = await child.stderr.text();
  expect(log).toContain("the thread store-worker has ended");
  expect(log).not.toContain("stop_incomplete");
});

test("two services on one SQLite file are one store: writes, reads, changes, webhooks, tokens", async () => {
  using at = makeWorkplace();
  using receiver = startReceiver();
  const env = { ...at.env, PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WEBHOOKS_PRIVATE: "true" };
  await using one = await spawnService(env);
  await using other = await spawnService(env);
  const both = [one.started, other.started];
  const hook = JSON.stringify({ name: "hook", url: receiver.url });
  expect((await send(one.started, "POST", "/webhooks", { body: hook })).status).toBe(201);
  const ids = Array.from({ length: 40 }, (_, index) => index + 1);
  const create = async (id: number): Promise<number> => {
    const to = both[id % 2] as ServiceProcess["started"];
    const { status } = await send(to, "POST", "/plants", { body: `{"id":${id},"name":"a"}` });
    // The service that just wrote is read by the other one.
    const from = both[(id + 1) % 2] as ServiceProcess["started"];
    return status + (await send(from, "GET", `/plants/${id}`)).status;
  };
  expect(new Set(await Promise.all(ids.map(create)))).toEqual(new Set([400]));
  // A different plant under an id that the other service stored.
  const taken = await send(one.started, "POST", "/plants", { body: '{"id":1,"name":"b"}' });
  expect(taken.status).toBe(409);
  const readChanges = async (from: ServiceProcess["started"]): Promise<string> => {
    const headers = { ...bearer(), accept: "application/x-ndjson" };
    return (await send(from, "GET", "/changes", { headers })).text();
  };
  const [changes = "", same] = await Promise.all(both.map(readChanges));
  expect(same).toBe(changes);
  expect(changes.trimEnd().split("\n")).toHaveLength(ids.length);
  const countReceived = (): number => new Set(receiver.received.map(({ id }) => id)).size;
  await until("the receiver has every change", () => countReceived() === ids.length);
  const grant = JSON.stringify({ name: "till", scopes: ["plants:read"] });
  const granted = await send(one.started, "POST", "/tokens", { body: grant });
  const { id, token } = (await granted.json()) as Record<"id" | "token", string>;
  const readWith = async (): Promise<number> =>
    (await send(other.started, "GET", "/plants/1", { headers: bearer(token) })).status;
  expect(await readWith()).toBe(200);
  expect((await send(one.started, "DELETE", `/tokens/${id}`)).status).toBe(204);
  await until("the other service refuses the token", async () => (await readWith()) === 401);
  for (const service of [one, other]) {
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  }
  expect((await runCommand(["check"], at.env)).exitCode).toBe(0);
});
