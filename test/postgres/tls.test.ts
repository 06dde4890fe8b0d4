/** Who is believed to be the server, and who the server believes us to be. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { resolveConfig } from "../../src/config.ts";
import { StoreOpenError } from "../../src/domain/errors.ts";
import { openStore } from "../../src/store/open.ts";
import { rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { type PostgresServer, sharedPostgres, startPostgres } from "../support/postgres-server.ts";

const hasOpenssl = Bun.which("openssl") !== null;

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"];

interface Certificate {
  /** Paths of PEM files. */
  readonly certificate: string;
  readonly key: string;
}

class Authority {
  readonly certificate: string;
  readonly #folder: string;
  readonly #key: string;

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.certificate = join(folder, `${name}.pem`);
    this.#key = join(folder, `${name}.key`);
    const made = ["-keyout", this.#key, "-out", this.certificate];
    openssl("req", "-x509", ...NEW_KEY, ...made, "-subj", `/CN=${name}`, "-days", "2");
  }

  /** For a user by the name, or for a server by the alternative names, as in `DNS:localhost`. */
  certify(name: string, alternativeNames: readonly string[] = []): Certificate {
    const path = (ending: string): string => join(this.#folder, `${name}.${ending}`);
    const [certificate, key] = [path("pem"), path("key")];
    const [request, extensions] = [path("csr"), path("ext")];
    openssl("req", ...NEW_KEY, "-keyout", key, "-out", request, "-subj", `/CN=${name}`);
    const lines = alternativeNames.length === 0 ? "" : `subjectAltName=${alternativeNames.join()}`;
    writeFileSync(extensions, `basicConstraints=CA:FALSE\n${lines}\n`);
    const signed = ["-in", request, "-out", certificate, "-extfile", extensions, "-days", "2"];
    const by = ["-CA", this.certificate, "-CAkey", this.#key, "-CAcreateserial", "-sha256"];
    openssl("x509", "-req", ...signed, ...by);
    return { certificate, key };
  }
}

function openssl(...args: readonly string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(["openssl", ...args], { stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`openssl ${args[0]}: ${stderr.toString()}`);
}

/** What waiting cannot mend is not waited for: otherwise the test would run into its time-out. */
const config = { ...resolveConfig({}, {}).config, queueSecondsMax: 3_600 };

/** Of this machine, for others; there is none where there is no network. */
const address = Object.values(networkInterfaces())
  .flatMap((found) => found ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

const opened = new AsyncDisposableStack();
let server: PostgresServer;
let authority: Authority;
let stranger: Authority;
let keeper: Certificate;

beforeAll(async () => {
  if (!hasOpenssl) return;
  const folder = opened.use(makeTemporaryFolder()).path;
  authority = new Authority(folder, "authority");
  stranger = new Authority(folder, "stranger");
  keeper = authority.certify("keeper");
  // Not for 127.0.0.1: by that address the server is the wrong one.
  const names = ["DNS:localhost", ...(address === undefined ? [] : [`IP:${address}`])];
  const certified = authority.certify("server", names);
  server = opened.use(
    await startPostgres({
      settings: {
        listen_addresses: "*",
        ssl: "on",
        ssl_cert_file: "server.pem",
        ssl_key_file: "server.key",
        ssl_ca_file: "authority.pem",
      },
      hbaLines: [
        "hostssl all keeper all cert",
        "host all keeper all reject",
        "hostssl all encrypted all trust",
        "host all encrypted all reject",
        "host all all all trust",
      ],
      prepare: (dataFolder) => {
        copyFileSync(certified.certificate, join(dataFolder, "server.pem"));
        copyFileSync(certified.key, join(dataFolder, "server.key"));
        copyFileSync(authority.certificate, join(dataFolder, "authority.pem"));
      },
    }),
  );
  for (const role of ["keeper", "encrypted"])
    await server.run(`CREATE ROLE ${role} LOGIN SUPERUSER`);
});
afterAll(() => opened.disposeAsync());

interface Place {
  readonly user?: string;
  readonly host?: string;
  readonly port?: number;
}

const urlOf = (
  parameters: Readonly<Record<string, string>>,
  { user = "postgres", host = "localhost", port = server.port }: Place = {},
): string =>
  `postgres://${user}@${host}:${port}/postgres?${new URLSearchParams({ ...parameters, application_name: "tls" }).toString()}`;

/** Opens a store there and writes. Whether by TLS, the server has to know. */
async function isEncrypted(url: string, on = server): Promise<boolean> {
  const store = await openStore(url, config);
  try {
    await store.probe();
    const rows = await on.run<{ ssl: boolean }>(
      "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'tls'",
    );
    expect(rows.length).toBeGreaterThan(0);
    return rows.every(({ ssl }) => ssl);
  } finally {
    await store.close();
  }
}

/** The sentence, which comes at once. */
async function refusalOf(url: string): Promise<string> {
  const error = await rejectionOf(openStore(url, config));
  expect(error).toBeInstanceOf(StoreOpenError);
  const { message } = error as StoreOpenError;
  expect(message).toMatch(/^postgres:\/\/[^ ]+ cannot be opened: .+\.$/);
  return message;
}

describe.skipIf(!hasOpenssl)("a server with TLS", () => {
  test.each<[sslmode: string, root: "authority" | undefined, isEncrypted: boolean]>([
    ["disable", undefined, false],
    ["prefer", undefined, true],
    ["require", undefined, true],
    ["", undefined, true],
    ["require", "authority", true],
    ["verify-ca", "authority", true],
    ["verify-full", "authority", true],
  ])("sslmode=%s on this machine, with the root %p: believed", async (sslmode, root, is) => {
    const parameters = {
      ...(sslmode === "" ? {} : { sslmode }),
      ...(root === undefined ? {} : { sslrootcert: authority.certificate }),
    };
    expect(await isEncrypted(urlOf(parameters))).toBe(is);
  });

  test.each([
    ["require", true],
    ["verify-ca", true],
    ["verify-full", true],
    ["verify-ca", false],
    ["verify-full", false],
  ])("sslmode=%s, another authority being given: %p: refused", async (sslmode, isGiven) => {
    const root: object = isGiven ? { sslrootcert: stranger.certificate } : {};
    expect(await refusalOf(urlOf({ sslmode, ...root }))).toMatch(
      /certificate|self.signed|issuer|verif/i,
    );
  });

  test("by a name that its certificate has not: refused by verify-full alone", async () => {
    const sslrootcert = authority.certificate;
    const place = { host: "127.0.0.1" };
    for (const sslmode of ["require", "verify-ca"])
      expect(await isEncrypted(urlOf({ sslmode, sslrootcert }, place))).toBe(true);
    expect(await refusalOf(urlOf({ sslmode: "verify-full", sslrootcert }, place))).toMatch(
      /127\.0\.0\.1.*(altname|host|match|identity|valid)/i,
    );
  });

  test("that lets only TLS in: reached by default, and not without it", async () => {
    expect(await isEncrypted(urlOf({}, { user: "encrypted" }))).toBe(true);
    expect(await refusalOf(urlOf({ sslmode: "disable" }, { user: "encrypted" }))).toMatch(
      /pg_hba|no encryption/,
    );
  });

  test("that asks for a certificate lets in whose name is in it, and nobody else", async () => {
    const user = "keeper";
    const certified = { sslcert: keeper.certificate, sslkey: keeper.key };
    expect(await isEncrypted(urlOf({ sslmode: "require", ...certified }, { user }))).toBe(true);
    expect(await refusalOf(urlOf({ sslmode: "require" }, { user }))).toMatch(/certificate/);
    for (const [{ certificate, key }, says] of [
      [authority.certify("another"), /certificate authentication failed/],
      [stranger.certify("forged"), /UNKNOWN_CA/i],
    ] as const) {
      const wrong = { sslmode: "require", sslcert: certificate, sslkey: key };
      expect(await refusalOf(urlOf(wrong, { user }))).toMatch(says);
    }
  });

  test.each(["sslrootcert", "sslcert", "sslkey"])("%s that is not there is named", async (name) => {
    const given = { sslcert: keeper.certificate, sslkey: keeper.key };
    const url = urlOf({ sslmode: "require", ...given, [name]: "/nowhere/at-all.pem" });
    const error = await rejectionOf(openStore(url, config));
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as StoreOpenError).message).toStartWith(`${name}: /nowhere/at-all.pem cannot be`);
  });
});

describe.skipIf(!hasOpenssl || address === undefined)("a server on another machine", () => {
  const place = { host: address ?? "" };

  test("is believed without being told to verify only where its certificate is the right one", async () => {
    expect(await refusalOf(urlOf({}, place))).toMatch(/certificate|self.signed|issuer|verif/i);
    expect(await isEncrypted(urlOf({ sslrootcert: authority.certificate }, place))).toBe(true);
    expect(await refusalOf(urlOf({ sslrootcert: stranger.certificate }, place))).toMatch(
      /certificate|self.signed|issuer|verif/i,
    );
  });

  test("is used without TLS where that is asked for", async () => {
    expect(await isEncrypted(urlOf({ sslmode: "disable" }, place))).toBe(false);
  });
});

describe("a server without TLS", () => {
  test.each(["disable", "prefer", ""])("sslmode=%s: used as it is", async (sslmode) => {
    const plain = await sharedPostgres();
    const url = urlOf(sslmode === "" ? {} : { sslmode }, { host: "127.0.0.1", port: plain.port });
    expect(await isEncrypted(url, plain)).toBe(false);
  });

  test.each([
    ["require", "127.0.0.1"],
    ["verify-ca", "127.0.0.1"],
    ["verify-full", "127.0.0.1"],
    ["", address ?? ""],
  ])("sslmode=%s at %p: refused, and told nothing", async (sslmode, host) => {
    if (host === "") return;
    let received = 0;
    using listener = Bun.listen({
      hostname: host,
      port: 0,
      socket: {
        data(socket, bytes) {
          received = Math.max(received, bytes.length);
          socket.write("N");
        },
      },
    });
    const parameters: Record<string, string> = sslmode === "" ? {} : { sslmode };
    expect(await refusalOf(urlOf(parameters, { host, port: listener.port }))).toMatch(/TLS|SSL/);
    // The question for TLS, and nothing of who asks.
    expect(received).toBe(8);
  });
});
