/** Statements are prepared on a server, and not behind a pooler, where the name of one may be another's. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { type AddressInfo, connect, createServer } from "node:net";
import { openStoreAt } from "../support/database.ts";
import { HOSTNAME } from "../support/postgres-files.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";

let manner: "server" | "pooler that ignores parameters" | "pooler that refuses parameters";
/** Under which statements were prepared. */
const names = new Set<string>();
const opened = new AsyncDisposableStack();
let url: string;
let id = 0n;

beforeAll(async () => {
  const shared = await sharedPostgres();
  const { name } = opened.use(await createTestDatabase(shared));
  const standIn = createServer((client) => {
    const server = connect(shared.port, HOSTNAME);
    client.once("data", (bytes: Buffer) => {
      const start = passStart(bytes);
      if (start === undefined) return void client.end(REFUSAL);
      server.write(start);
      client.on("data", noteName).pipe(server);
    });
    server.pipe(client);
    client.on("error", () => undefined).on("close", () => server.destroy());
    server.on("error", () => undefined).on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => standIn.listen(0, HOSTNAME, resolve));
  opened.defer(() => void standIn.close());
  const { port } = standIn.address() as AddressInfo;
  url = `postgres://postgres@${HOSTNAME}:${port}/${name}?sslmode=disable`;
});
afterAll(() => opened.disposeAsync());

/** The first message: its length, the version of the protocol, names and values. */
function passStart(bytes: Buffer): Buffer | undefined {
  const parameters = bytes.toString("latin1", 8).replace(/plantstore\.session\0[^\0]*\0/, "");
  if (manner === "server" || parameters.length === bytes.length - 8) return bytes;
  if (manner === "pooler that refuses parameters") return undefined;
  const head = Buffer.from(bytes.subarray(0, 8));
  head.writeInt32BE(8 + parameters.length, 0);
  return Buffer.concat([head, Buffer.from(parameters, "latin1")]);
}

/** A Parse message: "P", its length, the name. */
function noteName(bytes: Buffer): void {
  if (bytes[0] === 0x50) names.add(bytes.toString("latin1", 5, bytes.indexOf(0, 5)));
}

/** An error of the protocol, as PgBouncer sends it: "E" and the length of all that follows. */
const FIELDS = "SFATAL\0C08P01\0Munsupported startup parameter: plantstore.session\0\0";
const REFUSAL = Buffer.from(`E\0\0\0${String.fromCharCode(FIELDS.length + 4)}${FIELDS}`, "latin1");

for (const [kind, parameter, isPrepared] of [
  ["server", "", true],
  ["server", "&prepare=false", false],
  ["pooler that ignores parameters", "", false],
  ["pooler that refuses parameters", "", false],
  ["pooler that ignores parameters", "&prepare=true", true],
] as const)
  test(`statements on a ${kind}${parameter.replace("&", ", with ")} are ${isPrepared ? "" : "not "}prepared`, async () => {
    manner = kind;
    names.clear();
    const store = await openStoreAt(url + parameter);
    const plants = [++id, ++id].map((each) => ({ id: each, name: "Fern", tag: undefined }));
    await Promise.all(plants.map((plant) => store.createPlant(plant)));
    for (const plant of plants) expect(await store.findPlant(plant.id)).toEqual(plant);
    await store.close();
    expect(names.size).toBeGreaterThan(0);
    if (isPrepared) expect(names).not.toContain("");
    else expect([...names]).toEqual([""]);
  });
