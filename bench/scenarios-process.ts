/** Scenarios about the process itself: its threads, its tokens, and its start. */

import { buildExecutable, findOwnTarget } from "../scripts/build-executable.ts";
import { makeKey, secondsFromNow, startIssuer } from "../test/support/issuer.ts";
import type { Load } from "./load.ts";
import {
  BARE,
  type Candidate,
  measureTable,
  nameConnections,
  OURS,
  type Scenario,
  startOurs,
} from "./measure.ts";
import { atMost, median, ratioAtLeast, type Role, rowOf, type Table, valueOf } from "./results.ts";
import { peers, type Server, servePeer, servePlain, servePlants } from "./servers.ts";
import { CONNECTIONS, CORES, FEW_ROUNDS, MANY_CONNECTIONS } from "./settings.ts";
import { makePath } from "./stores.ts";

export const workers: Scenario = {
  name: "workers",
  title: "Create with several workers",
  about: "POST /plants with PLANTSTORE_WORKERS set. The service and the load share all cores.",
  measure: async (run) => {
    const makers: ((load: Load) => Candidate)[] = [];
    // Powers of two up to the number of cores, and at least two.
    for (let count = 1; count <= Math.max(2, CORES); count *= 2) {
      const env = { PLANTSTORE_WORKERS: String(count) };
      const ours = await startOurs(run, makePath(), { isShared: true, env });
      makers.push((load) => ours(load, count === 1 ? "1 worker" : `${count} workers`));
    }
    const threads = Math.max(1, Math.floor(CORES / 2));
    const tables: Table[] = [];
    for (const connections of [CONNECTIONS, MANY_CONNECTIONS]) {
      const load: Load = { kind: "create", connections, threads, isShared: true };
      const candidates = makers.map((make) => make(load));
      const plan = { name: nameConnections(connections), unit: "creates a second", candidates };
      tables.push(await measureTable(run.isQuick, plan));
    }
    return { tables, targets: [] };
  },
};

/** Identity providers add claims until a token has about 900 characters. */
const MORE_CLAIMS = 300;

export const jwt: Scenario = {
  name: "jwt",
  title: "Create with a JWT",
  about: `POST /plants into an empty store, ${nameConnections(CONNECTIONS)}, with a token of the service and with a JWT signed by RS256.`,
  user: "clients that sign in at an issuer",
  measure: async (run) => {
    const issuer = run.stack.use(await startIssuer());
    const key = await makeKey("rsa", "RS256");
    issuer.documents.keys = { keys: [key.publicJwk] };
    const more = { exp: secondsFromNow(86_400), more: "x".repeat(MORE_CLAIMS) };
    const token = await issuer.sign(more, {}, key);
    const start = (): ReturnType<typeof startOurs> =>
      startOurs(run, makePath(), { env: issuer.settings });
    const [own, other] = [await start(), await start()];
    const table = await measureTable(run.isQuick, {
      name: nameConnections(CONNECTIONS),
      unit: "creates a second",
      candidates: [
        own({ kind: "create" }, "with a token of the service"),
        other({ kind: "create", token }, "with a JWT"),
      ],
    });
    const [first, second] = table.rows;
    const target = ratioAtLeast(
      "create: JWT / own token",
      second,
      first,
      0.9,
      "A JWT is verified once; after that each request still sends its 900 characters, and they are looked up.",
    );
    return { tables: [table], targets: [target] };
  },
};

export const traces: Scenario = {
  name: "traces",
  title: "Create with traces",
  about: `POST /plants into an empty store, ${nameConnections(CONNECTIONS)}, without traces, with one request in 100 traced, and with all. The collector answers at once.`,
  user: "operators who trace requests to find slow ones",
  measure: async (run) => {
    const collector = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: async (request) => {
        await request.arrayBuffer();
        return Response.json({});
      },
    });
    run.stack.defer(() => collector.stop(true));
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: String(collector.url) };
    const ratio = { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.01" };
    const cases: [string, Record<string, string>][] = [
      ["without traces", {}],
      ["one in 100", { ...endpoint, ...ratio }],
      ["every request", endpoint],
    ];
    const candidates: Candidate[] = [];
    for (const [name, env] of cases)
      candidates.push((await startOurs(run, makePath(), { env }))({ kind: "create" }, name));
    const table = await measureTable(run.isQuick, {
      name: nameConnections(CONNECTIONS),
      unit: "creates a second",
      candidates,
    });
    const [without, few] = table.rows;
    const target = ratioAtLeast(
      "create: one in 100 traced / none",
      few,
      without,
      0.9,
      "A traced request is formatted as several spans and sent to the collector, on the core that answers.",
    );
    return { tables: [table], targets: [target] };
  },
};

const ONE_FILE = `${OURS}, one file`;

export const start: Scenario = {
  name: "start",
  title: "Start",
  about:
    "From the start of the process to its first correct answer to a create, on an empty store. A round is the median of its starts.",
  user: "operators who restart or upgrade the service",
  measure: async ({ isQuick }) => {
    const oneFile = [await buildExecutable(findOwnTarget(), makePath())];
    const table = await measureTable(isQuick, {
      name: "on one core",
      unit: "ms to the first answer",
      rounds: FEW_ROUNDS,
      candidates: [
        starting(OURS, "ours", () => servePlants(`sqlite:${makePath()}`)),
        starting(ONE_FILE, "ours", () => servePlants(`sqlite:${makePath()}`, {}, oneFile)),
        ...peers.map(({ name, program }) =>
          starting(name, "peer", () => servePeer(program, makePath())),
        ),
        starting(BARE, "limit", () => servePlain("bare")),
      ],
    });
    const reason =
      "Besides the runtime, which the last row shows, two more threads start and the store is opened and synced before the service listens, here all on one core.";
    const target = atMost("first answer, ms", valueOf(rowOf(table, OURS)), 100, reason);
    return { tables: [table], targets: [target] };
  },
};

const starting = (name: string, role: Role, serve: () => Promise<Server>): Candidate => ({
  name,
  role,
  measure: async (seconds) => {
    const untilMs = performance.now() + seconds * 1000;
    const times: number[] = [];
    let rssMb: number;
    do {
      const server = await serve();
      times.push(server.startMs);
      rssMb = server.rssMb();
      await server.stop();
    } while (performance.now() < untilMs);
    return { value: median(times), rssMb };
  },
});
