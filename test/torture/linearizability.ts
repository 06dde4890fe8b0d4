/**
 * Many clients on few plants, through kills and lost connections: some order of their requests must explain every
 * answer, and each request must have its place between its sending and its answer. Plants are independent of each
 * other, so each has an order of its own. The search is that of Wing and Gong, with a memory of what led nowhere.
 */

import { entityTagOf } from "../../src/domain/plant.ts";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { Fleet } from "../support/fleet.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { isReplay, readRefusal } from "../support/plants.ts";
import { createTestDatabase, startPostgres } from "../support/postgres-server.ts";
import { startProxy } from "../support/proxy.ts";
import { createRandom, type Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { environment, findMissingPostgres } from "./postgres-scene.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";

/** The name of the plant; no name is ever written by two requests. Undefined where there is no plant. */
type State = string | undefined;

interface Request {
  readonly kind: "create" | "read" | "replace" | "remove";
  readonly name?: string;
  /** The change is made only where the plant still has this name. */
  readonly seen?: string | undefined;
}

interface Operation extends Request {
  readonly calledMs: number;
  readonly answeredMs: number;
  /** Undefined where a write may have been made, or may still be made. */
  readonly answer: string | undefined;
}

/** What one request does to one plant. */
function apply(state: State, { kind, name, seen }: Request): { answer: string; state: State } {
  if (kind === "read") return { answer: state ?? "missing", state };
  if (kind === "create") {
    if (state === undefined) return { answer: "created", state: name };
    return { answer: state === name ? "replayed" : "taken", state };
  }
  if (state === undefined) return { answer: "missing", state };
  if (seen !== undefined && seen !== state) return { answer: "changed", state };
  return { answer: "done", state: kind === "replace" ? name : undefined };
}

const VISITS_MAX = 100_000;
/** Writes without an answer that are made one after the other, with no other request between them. */
const CHAIN_MAX = 3;

/** Undefined where an order explains the history of one plant; else how far the search came. */
function findContradiction(history: readonly Operation[]): string | undefined {
  const byTime = history.toSorted((one, other) => one.calledMs - other.calledMs);
  const known = byTime.filter(({ answer }) => answer !== undefined);
  const unknown = byTime.filter(({ answer }) => answer === undefined);
  const isPlaced = known.map(() => false);
  const isUsed = unknown.map(() => false);
  const visited = new Set<string>();
  let furthest = 0;

  /** Tries everything that may come next; all before `from` have their places. */
  const search = (state: State, from: number): boolean => {
    let first = from;
    while (isPlaced[first]) first++;
    const next = known[first];
    if (next === undefined) return true;
    furthest = Math.max(furthest, first);
    // Nothing comes next that was sent after another request had its answer.
    let untilMs = next.answeredMs;
    const candidates: number[] = [];
    let placed = "";
    for (let at = first; (known[at]?.calledMs ?? Infinity) <= untilMs; at++) {
      if (isPlaced[at]) placed += ` ${at}`;
      else {
        candidates.push(at);
        untilMs = Math.min(untilMs, known[at]?.answeredMs ?? Infinity);
      }
    }
    const used = isUsed.flatMap((is, at) => (is ? [at] : []));
    const key = `${first}:${placed}:${used.join()}:${state}`;
    if (visited.has(key) || visited.size > VISITS_MAX) return false;
    visited.add(key);
    const ready = candidates.filter((at) => (known[at] as Operation).calledMs <= untilMs);
    const fits = (at: number, before: State): boolean =>
      apply(before, known[at] as Operation).answer === known[at]?.answer;
    const place = (at: number, before: State): boolean => {
      if (!fits(at, before)) return false;
      isPlaced[at] = true;
      const isFound = search(apply(before, known[at] as Operation).state, first);
      isPlaced[at] = isFound;
      return isFound;
    };
    // What fits and changes nothing can come first, whatever comes next.
    const idle = ready.find(
      (at) => fits(at, state) && apply(state, known[at] as Operation).state === state,
    );
    if (idle !== undefined) return place(idle, state);
    if (ready.some((at) => place(at, state))) return true;
    // A write without an answer can be made right before the first request that does not fit without it.
    const makeUnknown = (before: State, chain: number): boolean =>
      unknown.some((operation, at) => {
        const after = apply(before, operation).state;
        if (isUsed[at] || operation.calledMs > untilMs || after === before) return false;
        isUsed[at] = true;
        const isFound =
          ready.some((other) => !fits(other, state) && place(other, after)) ||
          (chain < CHAIN_MAX && makeUnknown(after, chain + 1));
        isUsed[at] = isFound;
        return isFound;
      });
    return makeUnknown(state, 1);
  };

  if (search(undefined, 0)) return undefined;
  const around = known.slice(Math.max(0, furthest - 3), furthest + 3);
  return visited.size > VISITS_MAX
    ? `the search took too long, from request ${furthest} of ${known.length} on`
    : `no order explains request ${furthest} of ${known.length}: ${around.map(describe).join("; ")}`;
}

const describe = ({ kind, name, seen, answer, calledMs, answeredMs }: Operation): string =>
  `${[kind, name, seen === undefined ? undefined : `if ${seen}`].filter(Boolean).join(" ")} → ${answer} (${calledMs.toFixed(1)}–${answeredMs.toFixed(1)} ms)`;

/** Resolves to an answer as `apply` gives it, to undefined where it is unknown, or to "refused": nothing was done. */
type Send = (id: bigint, request: Request) => Promise<string | undefined>;

const CLIENTS = 12;
const IDS_AT_A_TIME = 4;
/** Then other plants are next, so that every history is short. */
const REQUESTS_PER_PLANT = 150;

class Histories {
  readonly all = new Map<bigint, Operation[]>();
  requests = 0;
  unknown = 0;
  private readonly random: Random;
  private readonly send: Send;
  private readonly lastSeen = new Map<bigint, string>();
  private names = 0;

  constructor(send: Send, random: Random) {
    this.send = send;
    this.random = random;
  }

  async record(isOver: () => boolean): Promise<void> {
    const work = async (): Promise<void> => {
      while (!isOver()) {
        const round = Math.floor(this.requests / (IDS_AT_A_TIME * REQUESTS_PER_PLANT));
        const id = BigInt(round * IDS_AT_A_TIME + this.random.below(IDS_AT_A_TIME));
        await this.perform(id, this.choose(id));
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, work));
  }

  async perform(id: bigint, request: Request): Promise<void> {
    this.requests++;
    const calledMs = performance.now();
    const answer = await this.send(id, request);
    if (answer === "refused" || (answer === undefined && request.kind === "read")) return;
    if (answer === undefined) this.unknown++;
    else if (request.kind === "read" && answer !== "missing") this.lastSeen.set(id, answer);
    const history = this.all.get(id) ?? [];
    history.push({ ...request, answer, calledMs, answeredMs: performance.now() });
    this.all.set(id, history);
  }

  findFaults(): string[] {
    return [...this.all].flatMap(([id, history]) => {
      const contradiction = findContradiction(history);
      return contradiction === undefined ? [] : [`plant ${id}: ${contradiction}`];
    });
  }

  private choose(id: bigint): Request {
    const { random } = this;
    const kind = random.pick(["create", "create", "read", "read", "replace", "remove"] as const);
    if (kind === "read") return { kind };
    const name = `name ${this.names++}`;
    if (kind === "create") return { kind, name };
    const seen = random.chance(50) ? this.lastSeen.get(id) : undefined;
    return kind === "replace" ? { kind, name, seen } : { kind, seen };
  }
}

const methods = { create: "POST", read: "GET", replace: "PUT", remove: "DELETE" } as const;
const ANSWER_MS_MAX = 20_000;
const RETRY_MS = 20;

/** To a service that may be dead just now. */
const sendTo =
  (findUrl: () => string, faults: string[]): Send =>
  async (id, { kind, name, seen }) => {
    const path = kind === "create" ? "/plants" : `/plants/${id}`;
    try {
      const response = await fetch(findUrl() + path, {
        method: methods[kind],
        headers: {
          authorization: `Bearer ${TEST_TOKEN}`,
          ...(name === undefined ? {} : { "content-type": "application/json" }),
          ...(seen === undefined
            ? {}
            : { "if-match": entityTagOf({ id, name: seen, tag: undefined }) }),
        },
        ...(name === undefined ? {} : { body: `{"id":${id},"name":${JSON.stringify(name)}}` }),
        signal: AbortSignal.timeout(ANSWER_MS_MAX),
        // On a connection that was used before, the client would send a request again by itself.
        keepalive: false,
      });
      if (response.status === 200 && kind === "create")
        return isReplay(response) ? "replayed" : "created";
      if (response.status === 200 && kind === "read")
        return ((await response.json()) as { name: string }).name;
      if (response.ok) return "done";
      const reason = await readRefusal(response);
      if (reason === "store_unavailable" || reason === "shutting_down") return undefined;
      if (response.status === 503) return "refused";
      const answer = {
        plant_not_found: "missing",
        precondition_failed: "changed",
        id_taken: "taken",
      };
      if (!(reason in answer)) faults.push(`${kind} ${id} was answered ${reason}`);
      return answer[reason as keyof typeof answer];
    } catch (error) {
      await Bun.sleep(RETRY_MS);
      // Nobody listens: nothing was sent.
      return (error as { code?: unknown }).code === "ECONNREFUSED" ? "refused" : undefined;
    }
  };

interface Arena {
  readonly findUrl: () => string;
  /** Something goes wrong, and is over when this resolves; to its name. */
  readonly trouble: (random: Random) => Promise<string>;
  /** Resolves when a write that was not answered has been made, or never will be. */
  readonly settle: () => Promise<void>;
}

const TROUBLE_MS_MAX = 400;

async function fight(arena: Arena, { random }: Budget, seconds: number): Promise<Finding> {
  const faults: string[] = [];
  const troubles: Record<string, number> = {};
  const histories = new Histories(
    sendTo(arena.findUrl, faults),
    createRandom(random.below(2 ** 31)),
  );
  const endsAtMs = performance.now() + seconds * 1000;
  const isOver = (): boolean => performance.now() > endsAtMs;
  const trouble = async (): Promise<void> => {
    while (!isOver()) {
      await Bun.sleep(random.below(TROUBLE_MS_MAX));
      const kind = await arena.trouble(random);
      troubles[kind] = (troubles[kind] ?? 0) + 1;
    }
  };
  await Promise.all([histories.record(isOver), trouble()]);
  await arena.settle();
  for (const id of histories.all.keys()) await histories.perform(id, { kind: "read" });
  const { requests, unknown, all } = histories;
  return {
    figures: {
      requests,
      "requests with an unknown outcome": unknown,
      plants: all.size,
      ...troubles,
    },
    faults: [...faults, ...histories.findFaults()],
  };
}

/** Two workers on one file, killed and started again. */
async function fightOnSqlite(budget: Budget, seconds: number): Promise<Finding> {
  using folder = makeTemporaryFolder();
  const spawn = (): Promise<ServiceProcess> =>
    spawnService({
      PLANTSTORE_TOKEN: TEST_TOKEN,
      PLANTSTORE_WORKERS: "2",
      DATABASE_URL: `sqlite:${folder.path}/plants.db`,
    });
  let service = await spawn();
  try {
    const arena: Arena = {
      findUrl: () => service.started.url,
      trouble: async () => {
        service.kill("SIGKILL");
        await service.exited;
        service = await spawn();
        return "service killed";
      },
      settle: () => Promise.resolve(),
    };
    return await fight(arena, budget, seconds);
  } finally {
    await service[Symbol.asyncDispose]();
  }
}

const INSTANCES = 3;

/** Three instances on one server, whose connections and processes end at any moment, as the instances do. */
async function fightOnPostgres(budget: Budget, seconds: number): Promise<Finding> {
  await using opened = new AsyncDisposableStack();
  const server = opened.use(await startPostgres());
  const { name } = await createTestDatabase(server);
  const proxy = opened.use(await startProxy(server.port));
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/${name}`;
  const fleet = opened.use(new Fleet(server, url, environment));
  await fleet.start(INSTANCES);
  const choosing = createRandom(budget.random.below(2 ** 31));
  const arena: Arena = {
    findUrl: () => fleet.findUrl(choosing),
    trouble: async (random) => {
      const kind = random.pick([
        "backends ended",
        "backends ended",
        "connections cut",
        "instance killed",
      ]);
      if (kind === "connections cut") proxy.cut();
      else if (kind === "instance killed") await fleet.replaceAny(random);
      else
        await server.run(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name LIKE 'instance-%' AND random() < 0.5`,
        );
      return kind;
    },
    // A lost statement is not executed after the time that a statement may take, which is a second here.
    settle: async () => {
      await fleet.untilQuiet();
      await Bun.sleep(1_500);
    },
  };
  return await fight(arena, budget, seconds);
}

export const linearizability: Scenario = {
  title: "many clients on few plants, on both engines: one order explains all that they were told",
  run: async (budget) => {
    const fights = { SQLite: fightOnSqlite, PostgreSQL: fightOnPostgres };
    if (findMissingPostgres() !== undefined) Reflect.deleteProperty(fights, "PostgreSQL");
    const figures: Record<string, string | number> = {};
    const faults: string[] = [];
    for (const [engine, run] of Object.entries(fights)) {
      const found = await run(budget, budget.seconds / 2);
      for (const [name, figure] of Object.entries(found.figures))
        figures[`${engine}: ${name}`] = figure;
      faults.push(...found.faults.map((fault) => `${engine}: ${fault}`));
    }
    return { figures, faults };
  },
};

/** How a store lies: what it answers, and what it really holds afterwards. */
type Lie = (before: State, honest: ReturnType<typeof apply>, former: State) => typeof honest;

const lies: Readonly<Record<string, Lie>> = {
  "reads show what was there before": (before, { answer, state }, former) =>
    state === before && answer === (before ?? "missing")
      ? { answer: former ?? "missing", state }
      : { answer, state },
  "acknowledged writes are lost": (before, { answer }) => ({ answer, state: before }),
  "what was removed comes back": (before, { answer, state }, former) =>
    before === undefined && state === undefined ? { answer, state: former } : { answer, state },
  "what was refused is done": (_before, { answer, state }) =>
    answer === "taken" || answer === "changed" ? { answer, state: undefined } : { answer, state },
};

const LIES_PERCENT = 10;
const CHEAT_REQUESTS = 3_000;

/** Clients of a store in memory that takes its time, and sometimes lies. */
async function recordCheat(lie: Lie | undefined, random: Random): Promise<Histories> {
  const states = new Map<bigint, { state: State; former: State }>();
  const wait = (): Promise<void> => Bun.sleep(random.below(3));
  const send: Send = async (id, request) => {
    await wait();
    const { state: before, former } = states.get(id) ?? { state: undefined, former: undefined };
    const honest = apply(before, request);
    const { answer, state } =
      lie !== undefined && random.chance(LIES_PERCENT) ? lie(before, honest, former) : honest;
    states.set(id, { state, former: state === before ? former : before });
    await wait();
    return request.kind !== "read" && random.chance(5) ? undefined : answer;
  };
  const histories = new Histories(send, random);
  await histories.record(() => histories.requests >= CHEAT_REQUESTS);
  return histories;
}

export const linearizabilityCheat: Scenario = {
  title:
    "stores in memory that lie now and then: every kind of lie has to be found, and no honest store",
  run: async ({ random }) => {
    const honest = (await recordCheat(undefined, random)).findFaults();
    const figures: Record<string, number> = {};
    for (const [name, lie] of Object.entries(lies)) {
      const histories = await recordCheat(lie, random);
      figures[`${name}: of ${histories.all.size} histories found`] = histories.findFaults().length;
    }
    const missed = Object.entries(figures).filter(([, found]) => found === 0);
    return {
      figures,
      faults: [
        ...honest.map((fault) => `an honest store was called a liar: ${fault}`),
        ...missed.map(([name]) => `${name} none`),
      ],
    };
  },
};
