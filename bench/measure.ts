/**
 * Runs rounds of all candidates in turn, so other load on the machine affects all of them, and repeats disturbed
 * rounds.
 */

import { join } from "node:path";
import { type Load, load } from "./load.ts";
import { POCKETBASE, type Served, servePocketBase } from "./pocketbase.ts";
import { watchOthers } from "./processes.ts";
import {
  type Role,
  type Row,
  type Sample,
  type ScenarioResult,
  summarize,
  type Table,
} from "./results.ts";
import {
  FASTIFY,
  peers,
  type Server,
  servePeer,
  servePlain,
  servePlants,
  WrongAnswer,
} from "./servers.ts";
import {
  CONNECTIONS,
  FEW_ROUNDS,
  FOREIGN_CORES_MAX,
  REPEATS_MAX,
  REPEATS_TOTAL_MAX,
  ROUND_SECONDS,
  ROUNDS,
  STORED,
  WARM_UP_SECONDS,
} from "./settings.ts";
import { copyFilledStore, countRows, makePath, makeStore } from "./stores.ts";

export const OURS = "plantstore";
export const BARE = "bare runtime, storing nothing";
export const ONE_THREAD = "bare runtime, group commit on one thread";
export const STORE_THREAD = "bare runtime, group commit on two threads";

export interface Run {
  /** Stops the scenario's servers when it ends. */
  readonly stack: AsyncDisposableStack;
  /** Fewer rounds, one peer, and only the connection counts that have targets. */
  readonly isQuick: boolean;
  /** A folder with another build of the service. */
  readonly baseline?: string;
}

export interface Scenario extends Pick<ScenarioResult, "name" | "title" | "about" | "user"> {
  /** Included in --quick. */
  readonly isQuick?: boolean;
  readonly measure: (run: Run) => Promise<Pick<ScenarioResult, "tables" | "targets">>;
  /** Profiles the service if a target is missed. */
  readonly profile?: (run: Run) => Promise<string>;
}

export interface Candidate {
  readonly name: string;
  readonly role: Role;
  readonly durability?: string;
  readonly measure: (seconds: number) => Promise<Sample>;
  /** Runs after the last round. Throws if an acknowledged plant is missing. */
  readonly verify?: () => Promise<void>;
}

interface Plan {
  readonly name: string;
  readonly unit: string;
  readonly rounds?: number;
  /** Shorter if an earlier table has warmed up the servers. */
  readonly warmUpSeconds?: number;
  readonly candidates: readonly Candidate[];
}

export const nameConnections = (connections: number): string =>
  connections === 1 ? "1 connection" : `${connections} connections`;

export async function measureTable(isQuick: boolean, plan: Plan): Promise<Table> {
  const { name, unit, candidates } = plan;
  const rounds = isQuick ? FEW_ROUNDS : (plan.rounds ?? ROUNDS);
  const measured = candidates.map((candidate) => new MeasuredCandidate(candidate));
  // Flush the dirty pages of filled and copied stores, so the rounds do not pay for them.
  Bun.spawnSync(["sync"]);
  for (const each of measured) await each.warmUp(plan.warmUpSeconds ?? WARM_UP_SECONDS);
  for (let round = 0; round < rounds; round++)
    for (const each of measured) await each.measureRound();
  for (const each of measured) await each.verify();
  return { name, unit, rows: measured.map((each) => each.toRow()) };
}

let repeatsTotal = 0;

class MeasuredCandidate {
  readonly #candidate: Candidate;
  readonly #samples: Sample[] = [];
  #repeats = 0;
  #disturbed = 0;
  #failure: string | undefined;

  constructor(candidate: Candidate) {
    this.#candidate = candidate;
  }

  warmUp(seconds: number): Promise<void> {
    return this.#attempt(async ({ measure }) => void (await measure(seconds)));
  }

  measureRound(): Promise<void> {
    return this.#attempt(async ({ name, measure }) => {
      for (let repeats = 0; ; repeats++) {
        const countForeignCores = watchOthers();
        const sample = await measure(ROUND_SECONDS);
        const foreignCores = countForeignCores();
        const isDisturbed = foreignCores > FOREIGN_CORES_MAX;
        if (!isDisturbed || repeats === REPEATS_MAX || repeatsTotal === REPEATS_TOTAL_MAX) {
          this.#samples.push(sample);
          if (isDisturbed) this.#disturbed++;
          return;
        }
        process.stdout.write(`repeated: others used ${foreignCores.toFixed(2)} cores (${name})\n`);
        repeatsTotal++;
        this.#repeats++;
      }
    });
  }

  verify(): Promise<void> {
    return this.#attempt(async ({ verify }) => verify?.());
  }

  toRow(): Row {
    const { measure: _measure, verify: _verify, ...about } = this.#candidate;
    return {
      ...about,
      ...(this.#failure === undefined
        ? { figures: summarize(this.#samples) }
        : { notMeasured: this.#failure }),
      rounds: this.#samples.length,
      repeats: this.#repeats,
      disturbed: this.#disturbed,
    };
  }

  /** A peer that does not start or answers wrongly gets no figure. If our own service does, the scenario fails. */
  async #attempt(act: (candidate: Candidate) => Promise<void>): Promise<void> {
    if (this.#failure !== undefined) return;
    try {
      await act(this.#candidate);
    } catch (error) {
      if (this.#candidate.role !== "peer") throw error;
      this.#failure = (error as Error).message;
    }
  }
}

interface Loaded extends Pick<Candidate, "name" | "role"> {
  readonly server: Server;
  readonly load: Load;
  /** Absent if the candidate stores nothing, or another candidate counts. */
  readonly countRows?: () => Promise<number> | number;
}

/** A server under load. It keeps running, and its store grows each round. */
export function loaded({ server, load: about, countRows: count, ...rest }: Loaded): Candidate {
  let rowsBefore: number | undefined;
  let sent = 0;
  let rounds = 0;
  return {
    ...rest,
    durability: server.durability,
    measure: async (seconds) => {
      rowsBefore ??= await count?.();
      const { created, ...sample } = await load(server, about, seconds);
      sent += created;
      rounds++;
      return sample;
    },
    verify: async () => {
      if (count === undefined) return;
      const inFlightMax = rounds * (about.connections ?? CONNECTIONS);
      checkStored(sent, (await count()) - (rowsBefore ?? 0), inFlightMax);
    },
  };
}

/** Sent and stored plants may differ only by those in flight at the end of a round. */
export function checkStored(sent: number, stored: number, inFlightMax: number): void {
  if (stored < sent - inFlightMax || stored > sent)
    throw new WrongAnswer(`${sent} creates were sent, but ${stored} plants were stored`);
}

type Maker<Result> = (load: Load, name?: string) => Result;

/** Starts our service on a SQLite file. */
export async function startOurs(
  { stack }: Run,
  path: string,
  options: Parameters<typeof servePlants>[1] = {},
): Promise<Maker<Candidate>> {
  const server = await servePlants(`sqlite:${path}`, options);
  stack.defer(server.stop);
  return (about, name = OURS) =>
    loaded({ name, role: "ours", server, load: about, countRows: () => countRows(path) });
}

/** Another build of our service, on an empty store. */
export async function startBaseline(
  { stack }: Run,
  folder: string,
  options: Parameters<typeof servePlants>[1] = {},
): Promise<Maker<Candidate>> {
  const path = makePath();
  const program = [join(folder, "bin/plantstore")];
  const server = await servePlants(`sqlite:${path}`, options, program);
  stack.defer(server.stop);
  return (about, name = `baseline, commit ${readCommit(folder)}`) =>
    loaded({ name, role: "peer", server, load: about, countRows: () => countRows(path) });
}

/** A plus marks uncommitted changes. */
export function readCommit(folder: string): string {
  const args = ["describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+"];
  const { stdout } = Bun.spawnSync(["git", "-C", folder, ...args]);
  return stdout.toString().trim() || "unknown";
}

/** With a path, the server looks plants up in that store. */
export async function startBare({ stack }: Run, path = ""): Promise<Maker<Candidate>> {
  const server = await servePlain("bare", path);
  stack.defer(server.stop);
  return (about, name = BARE) =>
    loaded({ name, role: "limit", server, load: { ...about, storesNothing: true } });
}

/** The bare runtime that stores plants in our tables, on the thread that answers and on another. */
export async function startStoring({ stack }: Run): Promise<Maker<Candidate[]>> {
  const kinds = [
    [ONE_THREAD, "group-commit"],
    [STORE_THREAD, "store-thread"],
  ] as const;
  const makers: Maker<Candidate>[] = [];
  for (const [name, kind] of kinds) {
    const path = makeStore();
    const server = await servePlain(kind, path);
    stack.defer(server.stop);
    makers.push((about) =>
      loaded({ name, role: "limit", server, load: about, countRows: () => countRows(path) }),
    );
  }
  return (about) => makers.map((make) => make(about));
}

/** A peer that does not start gets a row that says why. */
export async function startPeer(
  { stack }: Run,
  name: string,
  serve: () => Promise<Served>,
  use: (served: Served, about: Load) => Candidate,
): Promise<Maker<Candidate>> {
  try {
    const served = await serve();
    stack.defer(served.server.stop);
    return (about) => use(served, about);
  } catch (error) {
    return () => ({ name, role: "peer", measure: () => Promise.reject(error) });
  }
}

/** Starts the peers, each on an empty store or on a million plants. */
export async function startPeers(run: Run, { isFilled = false } = {}): Promise<Maker<Candidate[]>> {
  const services = peers.map(({ name, program }) => ({
    name,
    serve: async () => {
      const path = isFilled ? copyFilledStore(STORED, "plain") : makePath();
      return { server: await servePeer(program, path), countRows: () => countRows(path) };
    },
  }));
  const pocketBase = { name: POCKETBASE, serve: () => servePocketBase(isFilled ? STORED : 0) };
  const makers: Maker<Candidate>[] = [];
  for (const { name, serve } of [pocketBase, ...services]) {
    if (run.isQuick && name !== FASTIFY) continue;
    makers.push(
      await startPeer(run, name, serve, (served, about) =>
        loaded({ name, role: "peer", load: about, ...served }),
      ),
    );
  }
  return (about) => makers.map((make) => make(about));
}
