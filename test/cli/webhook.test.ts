/** plantstore webhook, on a store and through a service with workers; what sends, and the receivers of the documents. */

import { heapStats } from "bun:jsc";
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { listChange } from "../../src/domain/change.ts";
import { createLog } from "../../src/observe/log.ts";
import {
  createSecret,
  createTestEvent,
  isPrivate,
  sendEvent,
  toEvent,
} from "../../src/webhooks/send.ts";
import { createWebhookSender } from "../../src/webhooks/sender.ts";
import { runCommand, spawnService } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { runSync } from "../support/processes.ts";
import { makeWebhook, type Received, startReceiver, verify } from "../support/receiver.ts";
import { findFreePort } from "../support/postgres-files.ts";
import { getText, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { fakeStore } from "../support/stores.ts";
import type { Store } from "../../src/domain/store.ts";

const settings = { PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WEBHOOKS_PRIVATE: "true" };

describe.each([
  ["on the store", false],
  ["through a service", true],
])("the commands %s", (_where, isRemote) => {
  test("manage a webhook from add to remove, while the service sends past the proxy of its environment", async () => {
    using at = makeWorkplace();
    using receiver = startReceiver();
    const env = { ...at.env, ...settings };
    await using service = await spawnService({
      ...env,
      PLANTSTORE_WORKERS: process.platform === "linux" ? "2" : "1",
      // A proxy would choose where an event goes. Nothing listens there.
      HTTP_PROXY: "http://127.0.0.1:9",
      http_proxy: "http://127.0.0.1:9",
      ...limits({ webhookPollMs: 5, webhookRetrySeconds: [0.01] }),
    });
    const { url } = service.started;
    const where = isRemote ? ["--url", url] : [];
    const run = async (...args: string[]): Promise<string> => {
      const { exitCode, stdout, stderr } = await runCommand(["webhook", ...args, ...where], env);
      expect([args, exitCode, stderr]).toEqual([args, 0, ""]);
      return stdout.trim();
    };
    const fail = async (...args: string[]): Promise<string> => {
      const { exitCode, stdout, stderr } = await runCommand(["webhook", ...args, ...where], env);
      return `${exitCode} ${stderr}${stdout}`;
    };
    expect(await run("list")).toStartWith("No webhooks yet.");
    const secret = await run("add", receiver.url, "--name", "shop", "--types", "created,removed");
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    await sendPlant(url, { id: 1n, name: "Fern", tag: null });
    await receiver.until(1);
    verify(receiver.received[0] as Received, secret);
    expect(await run("test", "shop")).toMatch(/ 204 in \d+ ms$/);
    expect(receiver.received[1]?.type).toBe("webhook.test");
    receiver.answers = [1, 2].map(() => new Response("\u001b[2J", { status: 500 }));
    expect(await fail("test", "shop", "--json")).toMatch(
      /^1 plantstore: shop did not accept .*"status": 500/s,
    );
    expect(await fail("test", "shop")).toMatch(
      /^1 plantstore: shop did not accept the event.*500 in \d+ ms "\\u001b\[2J"/s,
    );
    expect(await run("show", "shop")).toMatch(
      /\nTIME .*\n\S+ +msg_test_\w+ +500 +\d+ +"\\u001b\[2J"\n.*\n\S+ +msg_test_\w+ +204 .*\n\S+ +msg_\d+ +204 /,
    );
    expect(await fail("skip", "shop")).toBe(
      "1 plantstore: Nothing was skipped: shop has no change that failed.\n",
    );
    expect(await run("pause", "shop")).toStartWith("shop is paused, after change ");
    const table = await run("list");
    expect(table).toContain("shop is paused: Paused on request.");
    expect(table).toMatch(/^NAME +URL +TYPES +TAGS .*\nshop +http\S+ +created,removed +- +paused /);
    expect(await run("resume", "shop")).toStartWith("shop is active, after change ");
    const before = receiver.received.length;
    await run("replay", "shop", "--from", "0");
    await receiver.until(before + 1);
    expect(receiver.received[before]?.id).toBe(receiver.received[0]?.id as string);
    receiver.answers = [1, 2].map(() => new Response("no herbs", { status: 422 }));
    await sendPlant(url, { id: 2n, name: "Basil", tag: "herb" });
    while (!(await run("show", "shop")).includes("shop is paused: 2 attempts failed."));
    expect(await run("show", "shop")).toMatch(/\n\S+ +msg_\d+ +422 +\d+ +"no herbs"\n/);
    // Those of a webhook are read again every second.
    let metrics = "";
    await until("its metrics have the pause", async () => {
      metrics = await getText(service.started, "/metrics");
      return metrics.includes('plantstore_webhook_paused{webhook="shop"} 1\n');
    });
    expect(metrics).toMatch(/^plantstore_webhook_attempts_total.*"shop",result="failed"\} 2$/m);
    expect(metrics).toMatch(/^plantstore_webhook_attempts_total.*"shop",result="taken"\} 2$/m);
    const lag = /^plantstore_webhook_lag_seconds\{webhook="shop"\} (?!0$)\d/m;
    await until("the lag is shown", async () =>
      lag.test(await getText(service.started, "/metrics")),
    );
    expect(await run("skip", "shop")).toStartWith("shop is active, after change ");
    const rotated = JSON.parse(await run("rotate", "shop", "--json")) as { secret: string };
    expect(rotated).toMatchObject({ name: "shop", state: "active" });
    expect(rotated.secret).not.toBe(secret);
    const [listed] = JSON.parse(await run("list", "--json")) as [object];
    expect(listed).not.toHaveProperty("secret");
    expect(await fail("replay", "shop", "--from", "soon")).toStartWith("2 plantstore: --from:");
    expect(await fail("add", "shop", "--types", "sold")).toMatch(
      /^2 plantstore: <target>: expected an http.*, got the string "shop"\n--types: expected .*, got "sold"\n$/,
    );
    expect(await fail("pause", "missing")).toContain("There is no webhook with this name.");
    expect(await run("remove", "shop")).toBe("Removed shop.");
    service.kill("SIGTERM");
    expect(await service.stderr).toContain('"event":"webhook_paused"');
  });
});

test("another service fails: no command takes its answer for that of a plant store", async () => {
  using elsewhere = Bun.serve({ port: 0, fetch: () => Response.json({ ok: true }) });
  const { origin } = elsewhere.url;
  const stderr = `plantstore: ${origin} does not answer as a plant store does.\n`;
  const verbs = ["list", "add https://shop.example", "pause shop", "remove shop"];
  const commands = [...verbs.map((one) => `webhook ${one}`), "token list", "token create --name a"];
  for (const command of commands) {
    const finished = await runCommand([...command.split(" "), "--url", origin], settings);
    expect([command, finished]).toEqual([command, { exitCode: 1, stdout: "", stderr }]);
  }
});

test.skipIf(Bun.which("openssl") === null)(
  "the certificate has to be for the name in the URL, although the address is dialled",
  async () => {
    using at = makeWorkplace();
    const env = { ...at.env, ...settings };
    await runCommand(["token", "create", "--name", "any"], env);
    for (const name of ["localhost", "shop.example"]) {
      const [key, cert] = [at.file(`${name}.key`), at.file(`${name}.pem`)];
      const made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
      const named = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`];
      runSync(["openssl", "req", ...made, "-keyout", key, "-out", cert, ...named]);
      using server = Bun.serve({
        port: 0,
        hostname: "127.0.0.1",
        tls: { key: Bun.file(key), cert: Bun.file(cert) },
        fetch: () => new Response(null, { status: 204 }),
      });
      const url = `https://localhost:${server.port}/`;
      await runCommand(["webhook", "add", url, "--name", name], env);
      // Nothing listens at the proxy.
      const trusting = { ...env, NODE_EXTRA_CA_CERTS: cert, HTTPS_PROXY: "http://127.0.0.1:9" };
      const { exitCode, stdout } = await runCommand(["webhook", "test", name], trusting);
      expect([name, exitCode, stdout]).toEqual(
        name === "localhost"
          ? [name, 0, expect.stringContaining(" 204 ")]
          : [name, 1, expect.stringContaining("ERR_TLS_CERT_ALTNAME_INVALID")],
      );
    }
  },
);

test("an address is public or not", () => {
  const refused = `0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 127.255.255.255 169.254.169.254 172.16.0.1 172.31.255.255
    192.0.0.1 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1
    ::ffff:8.8.8.8 ::ffff:127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1:: 3fff::1
    5f00::1 fc00::1 fd12:3456::1 fe80::1 fec0::1 ff02::1 4000::1`;
  const taken = `1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.167.0.1 198.17.0.1 198.20.0.1
    223.255.255.255 2606:4700::1111 2a00:1450::1 2001:4860:4860::8888 2400::1`;
  expect(refused.split(/\s+/).filter((address) => !isPrivate(address))).toEqual([]);
  expect(taken.split(/\s+/).filter(isPrivate)).toEqual([]);
});

const silent = createLog("error", () => undefined);
const senderLimits = {
  webhooksPrivate: true,
  webhookSecondsMax: 15,
  webhookRetrySeconds: [1],
  webhookLeaseSeconds: 60,
  webhookPollMs: 5,
  drainSecondsMax: 10,
};
const CURSOR = 1_767_225_605_000_000;

const makeShop = (name: string, url = "http://127.0.0.1:9/") =>
  makeWebhook(name, { cursor: CURSOR, url });

function startSender(store: Pick<Store, "listWebhooks" | "readChanges">) {
  const sender = createWebhookSender(
    fakeStore({ ...store, putWebhook: async () => true }),
    senderLimits,
    silent,
  );
  sender.start();
  return sender;
}

test("32 idle webhooks share one look at the journal", async () => {
  const webhooks = Array.from({ length: 32 }, (_, id) => makeShop(`shop-${id}`));
  let looks = 0;
  let lists = 0;
  const listedTwice = Promise.withResolvers<void>();
  const sender = startSender({
    listWebhooks: async () => {
      if (++lists === 2) listedTwice.resolve();
      return webhooks;
    },
    readChanges: async () => {
      looks++;
      return { changes: [], last: CURSOR, hasMore: false, newest: CURSOR };
    },
  });
  // Between two reads of the list the journal is looked at ten times.
  await listedTwice.promise;
  expect(looks).toBeWithin(1, 12);
  await sender.stop();
});

test("a webhook that wants none of many changes leaves others their turn while it looks", async () => {
  const LOOKS = 100_000;
  let looks = 0;
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const sender = startSender({
    listWebhooks: async () => [makeShop("shop")],
    readChanges: async ({ after }: { readonly after: number }) => {
      begin();
      return { changes: [], last: after + 1, hasMore: ++looks < LOOKS, newest: after + 1 };
    },
  });
  await begun;
  await new Promise(setImmediate);
  expect(looks).toBeLessThan(LOOKS);
  await sender.stop();
});

test("a large event is sent when no other is: each takes memory", async () => {
  using receiver = startReceiver();
  using other = startReceiver();
  const held = Promise.withResolvers<Response>();
  receiver.answers = [held.promise];
  const json = JSON.stringify("x".repeat(300_000));
  const type = "created" as const;
  const changes = [1, 2].map((more) => ({ seq: CURSOR + more, atMs: 0, type, json }));
  const webhooks = [1, 2, 3].map((id) => makeShop(`shop-${id}`, receiver.url));
  const sender = startSender({
    listWebhooks: async () => webhooks,
    readChanges: async ({ after }: { readonly after: number }) => {
      const rest = changes.filter(({ seq }) => seq > after);
      return { changes: rest, last: CURSOR + 2, hasMore: false, newest: CURSOR + 2 };
    },
  });
  await receiver.until(1);
  // Small ones find their way meanwhile.
  for (let sent = 0; sent < 20; sent++)
    await sendEvent(makeShop("other", other.url), createTestEvent(), senderLimits);
  expect(receiver.received).toHaveLength(1);
  held.resolve(new Response());
  await receiver.until(6);
  await sender.stop();
  expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(2);
});

test("events that are taken at once leave no timers in memory", async () => {
  using receiver = startReceiver();
  const { signal } = new AbortController();
  for (let sent = 0; sent < 200; sent++)
    await sendEvent(makeShop("shop", receiver.url), createTestEvent(), senderLimits, signal);
  Bun.gc(true);
  expect(heapStats().objectTypeCounts["AbortSignal"] ?? 0).toBeLessThan(100);
});

/** The receivers that a reader would run. */
const root = join(import.meta.dir, "../..");
const document = await Bun.file(join(root, "docs/changes.md")).text();
const packages: Readonly<Record<string, string>> = {
  "@plantstore/client": join(root, "client/client.ts"),
  standardwebhooks: Bun.resolveSync("standardwebhooks", root),
};
const change = {
  seq: CURSOR,
  atMs: 1_767_225_605_000,
  type: "created",
  id: 9_007_199_254_740_993n,
  by: undefined,
  plant: { id: 1n, name: "Fern", tag: undefined },
  before: undefined,
} as const;

for (const [language, program] of [
  ["ts", process.execPath],
  ["js", process.execPath],
  ["python", "python3"],
] as const)
  test.skipIf(Bun.which(program) === null)(
    `the receiver in ${language} takes what is signed, and nothing else`,
    async () => {
      using at = makeWorkplace();
      const sample = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(document)?.[1] ?? "";
      const file = at.file(`receiver.${language === "js" ? "mjs" : language}`);
      const local = sample.replace(/"(@plantstore\/client|standardwebhooks)"/, (_, name: string) =>
        JSON.stringify(packages[name]),
      );
      await Bun.write(file, local);
      const secret = createSecret();
      const port = findFreePort();
      const { PATH = "", HOME = "" } = process.env;
      const env = { PATH, HOME, SECRET: secret, PORT: String(port) };
      const child = Bun.spawn([program, file], { env, stdout: "pipe" });
      try {
        const webhook = { url: `http://127.0.0.1:${port}/`, secret, oldSecret: undefined };
        const send = async (event: ReturnType<typeof toEvent>, by = webhook) =>
          (await sendEvent(by, event, senderLimits)).attempt;
        let tested = await send(createTestEvent());
        await until("the receiver listens", async () => {
          if (tested.status === null) tested = await send(createTestEvent());
          return tested.status !== null;
        });
        expect(tested.status).toBe(204);
        expect((await send(toEvent(listChange(change)))).status).toBe(204);
        const stranger = { ...webhook, secret: createSecret() };
        expect((await send(toEvent(listChange(change)), stranger)).status).toBe(400);
        child.kill();
        expect(await child.stdout.text()).toContain("plant.created 9007199254740993");
      } finally {
        child.kill("SIGKILL");
        await child.exited;
      }
    },
  );
