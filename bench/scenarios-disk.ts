/** SQLite on a disk with slow syncs: a cloud volume, an SSD without a capacitor, a hard disk. */

import { mkdirSync } from "node:fs";
import { DiskShim, lackOfShim } from "../test/support/disk-shim.ts";
import type { Load } from "./load.ts";
import {
  type Candidate,
  loaded,
  measureTable,
  nameConnections,
  ONE_THREAD,
  OURS,
  type Run,
  type Scenario,
} from "./measure.ts";
import { ratioAtLeast, type Role, type Row, type Table, valueOf } from "./results.ts";
import {
  FASTIFY,
  peers,
  type Server,
  servePeer,
  servePlain,
  servePlants,
  WrongAnswer,
} from "./servers.ts";
import { CONNECTIONS, ROUND_SECONDS, WARM_UP_SECONDS } from "./settings.ts";
import { countRows, fillStore, getFolder, makePath } from "./stores.ts";

const READING = 32;
const STORED_HERE = 1_000;

/** A server on its own simulated disk, whose syncs can be slowed. */
interface Slowed {
  readonly name: string;
  readonly shim: DiskShim;
  readonly measure: (load: Load, name?: string) => Candidate;
}

async function startSlowed(
  { stack }: Run,
  name: string,
  role: Role,
  schema: "ours" | "plain",
  serve: (path: string, options: { env: Record<string, string> }) => Promise<Server>,
): Promise<Slowed> {
  const place = makePath("shim");
  mkdirSync(place);
  const shim = new DiskShim(place);
  const path = fillStore(STORED_HERE, schema);
  const server = await serve(path, { env: shim.environmentFor(getFolder()) });
  stack.defer(server.stop);
  const measure = (load: Load, of = name): Candidate => {
    const isWriting = load.kind === "create" || load.hasWriter === true;
    const counting = isWriting ? { countRows: () => countRows(path) } : {};
    const candidate = loaded({ name: of, role, server, load, ...counting });
    return {
      ...candidate,
      measure: async (seconds) => {
        const before = shim.faults;
        const sample = await candidate.measure(seconds);
        if (isWriting && shim.faults === before)
          throw new WrongAnswer("no sync of this server was slowed");
        return sample;
      },
    };
  };
  return { name, shim, measure };
}

const startAll = async (run: Run): Promise<readonly Slowed[]> => [
  await startSlowed(run, OURS, "ours", "ours", (path, options) =>
    servePlants(`sqlite:${path}`, options),
  ),
  await startSlowed(run, FASTIFY, "peer", "plain", (path, options) => {
    const { program } = peers.find(({ name }) => name === FASTIFY) ?? peers[0];
    return servePeer(program, path, options);
  }),
  await startSlowed(run, ONE_THREAD, "limit", "ours", (path, options) =>
    servePlain("group-commit", path, options),
  ),
];

const slow = (servers: readonly Slowed[], syncMs: number): void => {
  for (const { shim } of servers) shim.set({ syncMs });
};

/** Measures each server without a writer and beside one. */
async function measureReads(
  { isQuick }: Run,
  servers: readonly Slowed[],
  syncMs: number,
  warmUpSeconds: number,
): Promise<Table> {
  slow(servers, syncMs);
  const load: Load = { kind: "get", connections: READING, stored: STORED_HERE };
  const table = await measureTable(isQuick, {
    name: `reads, ${nameConnections(READING)}, syncs of ${syncMs} ms more`,
    unit: "reads a second",
    warmUpSeconds,
    candidates: servers.flatMap(({ name, measure }) => [
      measure(load, `${name}, alone`),
      measure({ ...load, hasWriter: true }, `${name}, beside a writer`),
    ]),
  });
  const rows = table.rows.map((row, index) => {
    const writes = row.figures?.writes;
    if (writes === undefined) return row;
    const share = describeRatio(row, table.rows[index - 1]);
    const remark = `${share} of its reads alone; the writer created ${Math.round(writes)} plants a second`;
    return { ...row, remark };
  });
  return { ...table, rows };
}

async function measureCreates(
  { isQuick }: Run,
  servers: readonly Slowed[],
  syncMs: number,
): Promise<Table> {
  slow(servers, syncMs);
  const table = await measureTable(isQuick, {
    name: `creates, ${nameConnections(CONNECTIONS)}, syncs of ${syncMs} ms more`,
    unit: "creates a second",
    warmUpSeconds: ROUND_SECONDS,
    candidates: servers.map(({ measure }) => measure({ kind: "create" })),
  });
  const last = table.rows.at(-1);
  const rows = table.rows.map((row) =>
    row === last ? row : { ...row, remark: `${describeRatio(row, last)} of ${ONE_THREAD}` },
  );
  return { ...table, rows };
}

const describeRatio = (row: Row, other: Row | undefined): string =>
  (valueOf(row) / valueOf(other)).toFixed(2);

const reasons = {
  reads: "The writer's creates take their share of the core.",
  creates:
    "A group waits for the clients that were just answered, so most of them share each sync. A server with one thread gathers them too: they queue up while it syncs. The rest of the cycle is the work on 64 requests, and the bare runtime checks less, and wakes no second thread. The longer a sync takes, the less that matters.",
};

export const slowDisk: Scenario = {
  name: "slow-disk",
  title: "A slow disk",
  about: `A library between the server and its files slows every sync by some milliseconds. GET /plants/{id} out of ${STORED_HERE.toLocaleString("en")} plants by ${READING} clients, without and beside one more client that creates plants one after the other; then POST /plants, ${nameConnections(CONNECTIONS)}. Fastify commits each plant separately. The bare runtime with a group commit has our tables, does everything on one thread, and starts a commit as soon as the last one has ended.`,
  user: "clients on a disk whose syncs are slow",
  measure: async (run) => {
    const lack = lackOfShim();
    if (lack !== undefined) throw new Error(lack);
    const servers = await startAll(run);
    const short = await measureReads(run, servers, 5, Math.ceil(WARM_UP_SECONDS / 2));
    const long = await measureReads(run, servers, 20, ROUND_SECONDS);
    const creates = await measureCreates(run, servers, 2);
    const slower = await measureCreates(run, servers, 10);
    const [alone, beside] = short.rows;
    return {
      tables: [short, long, creates, slower],
      targets: [
        ratioAtLeast(
          "reads beside a writer / alone, syncs of 5 ms more",
          beside,
          alone,
          0.8,
          reasons.reads,
        ),
        ratioAtLeast(
          "create, syncs of 2 ms more / group commit on one thread",
          creates.rows[0],
          creates.rows[2],
          0.85,
          reasons.creates,
        ),
      ],
    };
  },
};
