/** Statements are prepared on a server, and not behind a pooler, where the name of one may be another's. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect, createServer, type Server } from "node:net";
import { resolveConfig } from "../../src/config.ts";
import { openStore } from "../../src/store/open.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";

type Manner = "server" | "pooler that ignores parameters" | "pooler that refuses parameters";

/** In front of the shared server; remembers the names under which statements were prepared. */
class StandIn {
  manner: Manner = "server";
  readonly names = new Set<string>();
  readonly #server: Server;

  constructor(targetPort: number) {
    this.#server = createServer((client) => {
      const server = connect(targetPort, "127.0.0.1");
      let isStarted = false;
      client.on("data", (bytes: Buffer) => {
        if (isStarted) this.#note(bytes);
        const sent = isStarted ? bytes : this.#start(bytes);
        isStarted = true;
        if (sent === undefined) client.end(REFUSAL);
        else server.write(sent);
      });
      server.on("data", (bytes) => client.write(bytes));
      for (const [one, other] of [
        [client, server],
        [server, client],
      ] as const)
        one.on("error", () => undefined).on("close", () => other.destroy());
    });
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  listen = (): Promise<void> =>
    new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));

  close = (): void => void this.#server.close();

  /** The first message: its length, the version of the protocol, names and values. */
  #start(bytes: Buffer): Buffer | undefined {
    const parameters = bytes.toString("latin1", 8).replace(/plantstore\.session\0[^\0]*\0/, "");
    if (this.manner === "server" || parameters.length === bytes.length - 8) return bytes;
    if (this.manner === "pooler that refuses parameters") return undefined;
    const head = Buffer.from(bytes.subarray(0, 8));
    head.writeInt32BE(8 + parameters.length, 0);
    return Buffer.concat([head, Buffer.from(parameters, "latin1")]);
  }

  /** A Parse message: "P", its length, the name. */
  #note(bytes: Buffer): void {
    if (bytes[0] === 0x50) this.names.add(bytes.toString("latin1", 5, bytes.indexOf(0, 5)));
  }
}

/** An error of the protocol, as PgBouncer sends it. */
const FIELDS = "SFATAL\0C08P01\0Munsupported startup parameter: plantstore.session\0\0";
const REFUSAL = Buffer.concat([
  Buffer.from([0x45, 0, 0, 0, FIELDS.length + 4]),
  Buffer.from(FIELDS, "latin1"),
]);

describe("statements", () => {
  let standIn: StandIn;
  let database: Awaited<ReturnType<typeof createTestDatabase>>;
  let id = 0n;
  beforeAll(async () => {
    const server = await sharedPostgres();
    database = await createTestDatabase(server);
    standIn = new StandIn(server.port);
    await standIn.listen();
  });
  afterAll(async () => {
    standIn.close();
    await database[Symbol.asyncDispose]();
  });

  for (const [manner, parameter, isPrepared] of [
    ["server", "", true],
    ["server", "&prepare=false", false],
    ["pooler that ignores parameters", "", false],
    ["pooler that refuses parameters", "", false],
    ["pooler that ignores parameters", "&prepare=true", true],
  ] as const)
    test(`on a ${manner}${parameter.replace("&", ", with ")} are ${isPrepared ? "" : "not "}prepared`, async () => {
      standIn.manner = manner;
      standIn.names.clear();
      const { config } = resolveConfig({}, {});
      const store = await openStore(
        `postgres://postgres@127.0.0.1:${standIn.port}/${database.name}?sslmode=disable${parameter}`,
        config,
      );
      const plants = [++id, ++id].map((each) => ({ id: each, name: "Fern", tag: undefined }));
      await Promise.all(plants.map((plant) => store.createPlant(plant)));
      for (const plant of plants) expect(await store.findPlant(plant.id)).toEqual(plant);
      await store.close();
      expect(standIn.names.size).toBeGreaterThan(0);
      if (isPrepared) expect(standIn.names).not.toContain("");
      else expect([...standIn.names]).toEqual([""]);
    });
});
