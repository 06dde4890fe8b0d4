/**
 * The disk of the store is lost with the process, and the store restored from the folder of its backups: what was
 * acknowledged before the last append is there, and at any earlier moment the state is what the feed says.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand, type ServiceProcess, spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";
import { findFaults, Follower } from "./changes.ts";
import { asCheat, type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";

const CLIENTS = 8;
const IDS_EACH = 5;
const LOAD_MS = 3_000;
const MOMENTS = 3;
const authorization = `Bearer ${TEST_TOKEN}`;

/** What one plant was, and since when its client knows it. */
interface State {
  readonly text: string | undefined;
  /** Undefined if the answer was lost. */
  readonly knownAtMs: number | undefined;
}

const textOf = ({ name, tag }: StoredPlant): string => JSON.stringify([name, tag]);

/** Creates, replaces and removes its own plants until the service is gone. */
async function work(
  url: string,
  ids: readonly bigint[],
  random: Random,
  history: Map<bigint, State[]>,
): Promise<void> {
  for (let step = 0; ; step++) {
    const id = random.pick(ids);
    const states = history.get(id) ?? [{ text: undefined, knownAtMs: 0 }];
    history.set(id, states);
    const plant = { id, name: `step ${step}`, tag: random.pick([null, "tag"]) };
    const isThere = states.at(-1)?.text !== undefined;
    const isRemoval = isThere && random.chance(40);
    const text = isRemoval ? undefined : textOf(plant);
    const method = isRemoval ? "DELETE" : isThere ? "PUT" : "POST";
    const place = states.push({ text, knownAtMs: undefined }) - 1;
    try {
      const { status } = await fetch(`${url}/plants${isThere ? `/${id}` : ""}`, {
        method,
        headers: { authorization, "content-type": "application/json" },
        ...(isRemoval ? {} : { body: toBody(plant) }),
      });
      if (status >= 300) throw new Error(`${method} of ${id} was answered ${status}`);
      states[place] = { text, knownAtMs: Date.now() };
    } catch {
      return;
    }
  }
}

class DiskLosses {
  readonly faults: string[] = [];
  readonly figures = {
    losses: 0,
    "copies made": 0,
    "writes acknowledged": 0,
    "acknowledged and lost, within the lag": 0,
    "lag at the loss, in milliseconds, at most": 0,
    "moments compared": 0,
    "changes replayed": 0,
  };
  private readonly random: Random;
  private readonly spoil: (log: string) => void;

  constructor(random: Random, spoil: DiskLosses["spoil"] = () => undefined) {
    this.random = random;
    this.spoil = spoil;
  }

  async lose(): Promise<void> {
    const { random, figures } = this;
    using folder = makeTemporaryFolder();
    const [data, backups] = [join(folder.path, "data"), join(folder.path, "backups")];
    mkdirSync(backups);
    const env = {
      DATABASE_URL: `sqlite:${join(data, "plants.db")}`,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      PLANTSTORE_BACKUP_TO: backups,
      PLANTSTORE_BACKUP_EVERY: random.pick(["1s", "2s", "1h"]),
    };
    const history = new Map<bigint, State[]>();
    const service = await spawnService(env);
    const { loggedAtMs, seen } = await this.load(service, history, backups);
    const lostAtMs = Date.now();
    rmSync(data, { recursive: true });
    figures.losses++;
    figures["copies made"] += listCopies(backups).length;
    const lagMs = lostAtMs - loggedAtMs;
    const key = "lag at the loss, in milliseconds, at most";
    figures[key] = Math.max(figures[key], lagMs);
    for (const copy of listCopies(backups))
      this.spoil(join(backups, copy.replace(/db$/, "changes")));

    const newest = await this.restore(backups, join(folder.path, "newest"), []);
    if (newest === undefined) return;
    this.compareAcknowledged(history, newest.rows, loggedAtMs);
    const reachable = seen.filter(({ seq }) => seq <= newest.change);
    for (let moment = 0; moment < MOMENTS && reachable.length > 0; moment++) {
      const { seq } = random.pick(reachable);
      const flags = ["--at-change", String(seq)];
      const restored = await this.restore(backups, join(folder.path, `at-${moment}`), flags);
      if (restored === undefined) continue;
      figures["moments compared"]++;
      const upTo = seen.filter((change) => change.seq <= seq);
      this.faults.push(...findFaults(upTo, restored.rows).map((fault) => `at ${seq}: ${fault}`));
    }
  }

  /** Also returns the time before which everything was in the backups, as the service said last. The service is killed. */
  private async load(service: ServiceProcess, history: Map<bigint, State[]>, backups: string) {
    await using _ = service;
    const { url } = service.started;
    await until("a copy is there", () => listCopies(backups).length > 0);
    const clients = Array.from({ length: CLIENTS }, (_none, nth) =>
      work(url, idsOf(nth), this.random, history),
    );
    const follower = new Follower(() => url);
    const endsAtMs = performance.now() + LOAD_MS + this.random.below(LOAD_MS);
    let loggedAtMs = 0;
    // At least one append has to have happened under load.
    const startedAtMs = Date.now();
    while (performance.now() < endsAtMs || loggedAtMs < startedAtMs) {
      const activity = await fetch(`${url}/activity`, { headers: { authorization } });
      const { backups: state } = (await activity.json()) as { backups: { loggedAtMs: number } };
      ({ loggedAtMs } = state);
      await Bun.sleep(20);
    }
    service.kill("SIGKILL");
    await service.exited;
    await Promise.all([...clients, follower.stop()]);
    return { loggedAtMs, seen: follower.seen };
  }

  private async restore(backups: string, to: string, flags: readonly string[]) {
    const env = { DATABASE_URL: `sqlite:${to}/plants.db` };
    const done = await runCommand(["restore", "--json", ...flags, backups], env);
    if (done.exitCode !== 0) {
      this.faults.push(`restore ${flags.join(" ")}: ${done.stderr.trim()}`);
      return undefined;
    }
    const { moment, changes } = JSON.parse(done.stdout) as {
      moment: { change: number };
      changes: number;
    };
    this.figures["changes replayed"] += changes;
    return { change: moment.change, rows: readPlants(`${to}/plants.db`) };
  }

  /** A plant may be newer than what its client knew before the last append, and never older. */
  private compareAcknowledged(
    history: ReadonlyMap<bigint, readonly State[]>,
    rows: readonly StoredPlant[],
    loggedAtMs: number,
  ): void {
    const stored = new Map(rows.map((row) => [row.id, textOf(row)]));
    for (const [id, states] of history) {
      const known = states.findLastIndex(({ knownAtMs = Infinity }) => knownAtMs < loggedAtMs);
      const found = states.findLastIndex(({ text }) => text === stored.get(id));
      this.figures["writes acknowledged"] += states.length - 1;
      const lost = states.slice(found + 1).filter(({ knownAtMs }) => knownAtMs !== undefined);
      this.figures["acknowledged and lost, within the lag"] += lost.length;
      if (found < known)
        this.faults.push(
          `${id} is ${stored.get(id)}, and ${states[known]?.text} was acknowledged before the last append`,
        );
    }
  }
}

const idsOf = (nth: number): bigint[] =>
  Array.from({ length: IDS_EACH }, (_, index) => BigInt(nth * IDS_EACH + index) - 20n);

const listCopies = (folder: string): string[] =>
  readdirSync(folder).filter((name) => name.endsWith("Z.db"));

async function run(losses: DiskLosses, { seconds }: Budget): Promise<Finding> {
  const isOver = endsAfter(seconds);
  do await losses.lose();
  while (!isOver() && losses.faults.length === 0);
  return losses;
}

export const diskLost: Scenario = {
  title: "the disk is lost with the process, and the store restored from its backups",
  run: (budget) => run(new DiskLosses(budget.random), budget),
};

/** Drops the second half of the lines: each that is left is whole, and follows the one before. */
function dropLines(log: string): void {
  const lines = existsSync(log) ? (readFileSync(log, "utf8").match(/.*\n/g) ?? []) : [];
  if (lines.length > 0) writeFileSync(log, lines.slice(0, Math.floor(lines.length / 2)).join(""));
}

export const diskLostCheat = asCheat("the same, with lines dropped from the change log", (budget) =>
  run(new DiskLosses(budget.random, dropLines), budget),
);
