/** How the service verifies the server, and the server the service. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { openStoreAt } from "../support/database.ts";
import { openErrorOf } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { type PostgresServer, sharedPostgres, startPostgres } from "../support/postgres-server.ts";
import { runSync } from "../support/processes.ts";

/** LibreSSL, and OpenSSL before 3, cannot make and sign a certificate by one command. */
const hasOpenssl =
  Bun.which("openssl") !== null &&
  /^OpenSSL ([3-9]|\d\d)/.test(runSync(["openssl", "version"]).stdout.toString());

const opened = new AsyncDisposableStack();
const folder = opened.use(makeTemporaryFolder()).path;
const fileOf = (name: string): string => join(folder, name);

/** An authority; or a certificate by one, for the user of that name or for a server. */
function certify(name: string, by = "", extension = ""): void {
  const signed = by && ` -CA ${by}.pem -CAkey ${by}.key -addext basicConstraints=CA:FALSE`;
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -sha256 -days 2";
  const files = `-keyout ${name}.key -out ${name}.pem -subj /CN=${name}`;
  const command = `openssl req -x509 ${key} ${files}${signed}${extension}`;
  const { exitCode, stderr } = runSync(command.split(" "), { cwd: folder });
  if (exitCode !== 0) throw new Error(`openssl: ${stderr.toString()}`);
}

/** The address of this machine on its network; undefined without a network. */
const address = Object.values(networkInterfaces())
  .flatMap((found) => found ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

let server: PostgresServer;

beforeAll(async () => {
  if (!hasOpenssl) return;
  certify("authority");
  certify("stranger");
  certify("keeper", "authority");
  certify("another", "authority");
  certify("forged", "stranger");
  // Not for 127.0.0.1: by that address the server is the wrong one.
  const names = ["DNS:localhost", ...(address === undefined ? [] : [`IP:${address}`])];
  certify("server", "authority", ` -addext subjectAltName=${names.join()}`);
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
        for (const file of ["server.pem", "server.key", "authority.pem"])
          copyFileSync(fileOf(file), join(dataFolder, file));
      },
    }),
  );
  for (const role of ["keeper", "encrypted"])
    await server.run(`CREATE ROLE ${role} LOGIN SUPERUSER`);
});
afterAll(() => opened.disposeAsync());

/** A parameter that is empty is not given. */
function urlOf(
  parameters: Readonly<Record<string, string>>,
  { user = "postgres", host = "localhost", port = server.port } = {},
): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== "");
  const query = new URLSearchParams([...given, ["application_name", "tls"]]);
  return `postgres://${user}@${host}:${port}/postgres?${query.toString()}`;
}

/** Opens a store there and writes. Whether by TLS, the server has to know. */
async function isEncrypted(url: string, on = server): Promise<boolean> {
  await using store = await openStoreAt(url);
  await store.probe();
  const rows = await on.run<{ ssl: boolean }>(
    "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'tls'",
  );
  expect(rows.length).toBeGreaterThan(0);
  return rows.every(({ ssl }) => ssl);
}

/** The sentence, which comes at once. */
async function refusalOf(
  url: string,
  form = /^postgres:\/\/[^ ]+ cannot be opened: .+\.$/,
): Promise<string> {
  const { message } = await openErrorOf(url);
  expect(message).toMatch(form);
  return message;
}

const UNTRUSTED = /certificate|self.signed|issuer|verif/i;

describe.skipIf(!hasOpenssl)("a server with TLS", () => {
  const cases: [sslmode: string, root: string, host: string | undefined, boolean | RegExp][] = [
    ["disable", "", "localhost", false],
    ["prefer", "", "localhost", true],
    ["require", "", "localhost", true],
    ["", "", "localhost", true],
    ["require", "authority", "localhost", true],
    ["verify-ca", "authority", "localhost", true],
    ["verify-full", "authority", "localhost", true],
    ["require", "stranger", "localhost", UNTRUSTED],
    ["verify-ca", "stranger", "localhost", UNTRUSTED],
    ["verify-full", "stranger", "localhost", UNTRUSTED],
    ["verify-ca", "", "localhost", UNTRUSTED],
    ["verify-full", "", "localhost", UNTRUSTED],
    // Its certificate lacks this name.
    ["require", "authority", "127.0.0.1", true],
    ["verify-ca", "authority", "127.0.0.1", true],
    ["verify-full", "authority", "127.0.0.1", /127\.0\.0\.1.*(altname|host|match|identity|valid)/i],
    // On another machine it is verified unless that is turned off.
    ["", "", address, UNTRUSTED],
    ["", "authority", address, true],
    ["", "stranger", address, UNTRUSTED],
    ["disable", "", address, false],
  ];

  async function expectOutcome(url: string, expected: boolean | RegExp): Promise<void> {
    if (typeof expected === "boolean") expect(await isEncrypted(url)).toBe(expected);
    else expect(await refusalOf(url)).toMatch(expected);
  }

  test.each(cases.filter(([, , host]) => host !== undefined))(
    "sslmode=%s with the root of %p at %s: encrypted or refused: %p",
    (sslmode, root, host, expected) => {
      const sslrootcert = root && fileOf(`${root}.pem`);
      return expectOutcome(urlOf({ sslmode, sslrootcert }, { host: host ?? "" }), expected);
    },
  );

  const certified = (name: string): Readonly<Record<string, string>> =>
    name === "" ? {} : { sslcert: fileOf(`${name}.pem`), sslkey: fileOf(`${name}.key`) };

  test.each<[user: string, sslmode: string, certificate: string, expected: boolean | RegExp]>([
    // Only by TLS.
    ["encrypted", "", "", true],
    ["encrypted", "disable", "", /pg_hba|no encryption/],
    // Only by a certificate with that name in it.
    ["keeper", "require", "keeper", true],
    ["keeper", "require", "", /certificate/],
    ["keeper", "require", "another", /certificate authentication failed/],
    ["keeper", "require", "forged", /UNKNOWN_CA/i],
  ])(
    "that lets %s in on a condition: sslmode=%s, the certificate of %p: encrypted or refused: %p",
    (user, sslmode, certificate, expected) =>
      expectOutcome(urlOf({ sslmode, ...certified(certificate) }, { user }), expected),
  );

  test.each(["sslrootcert", "sslcert", "sslkey"])("%s that is not there is named", async (name) => {
    const wrong = { ...certified("keeper"), [name]: "/nowhere/at-all.pem" };
    const url = urlOf({ sslmode: "require", ...wrong });
    await refusalOf(url, new RegExp(`^${name}: /nowhere/at-all\\.pem cannot be`));
  });
});

describe("a file of the URL that the TLS library does not understand is named, with what it should be", () => {
  const broken = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
  test.each([
    ["sslrootcert", "no text of that kind", "a certificate"],
    ["sslrootcert", "", "a certificate"],
    ["sslrootcert", broken, "a certificate"],
    ["sslcert", broken, "a certificate"],
    ["sslcert", "no text of that kind", "a certificate"],
    ["sslkey", "no text of that kind", "a private key without a passphrase"],
  ])("%s with %j: not %s", async (name, text, what) => {
    if (!hasOpenssl && name === "sslkey") return;
    const path = fileOf("wrong.pem");
    await Bun.write(path, text);
    const plain = await sharedPostgres();
    const sound = name === "sslkey" ? fileOf("keeper.pem") : path;
    const files =
      name === "sslrootcert"
        ? { sslrootcert: path }
        : { sslcert: sound, sslkey: name === "sslkey" ? path : fileOf("keeper.key") };
    const url = urlOf({ sslmode: "require", ...files }, { host: "127.0.0.1", port: plain.port });
    const { message } = await openErrorOf(url);
    expect(message).toBe(`${name}: ${path} is not ${what} in PEM format.`);
  });
});

describe("a server without TLS", () => {
  test.each(["disable", "prefer", ""])("sslmode=%s: used as it is", async (sslmode) => {
    const plain = await sharedPostgres();
    const url = urlOf({ sslmode }, { host: "127.0.0.1", port: plain.port });
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
    expect(await refusalOf(urlOf({ sslmode }, { host, port: listener.port }))).toMatch(/TLS|SSL/);
    // The question for TLS, and nothing of who asks.
    expect(received).toBe(8);
  });
});
