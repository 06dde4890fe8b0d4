/**
 * The disk of the store is lost with the process, and the store restored from the folder of its backups: what was
 * acknowledged before the last append is there, and at any earlier moment the state is what the feed says.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EXIT_DIFFERENT } from "../../src/cli/command.ts";
import { sendOperation } from "../support/clients.ts";
import { runCommand, spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";
import { findFaults, Follower } from "./changes.ts";
import {
  type Budget,
  endsAfter,
  type Finding,
  Findings,
  noticing,
  type Scenario,
} from "./scenario.ts";
import { ask } from "./service.ts";

const CLIENTS = 8;
const IDS_EACH = 5;
const LOAD_MS = 3_000;
const MOMENTS = 3;

/** What one plant was, and since when its client knows it. */
interface State {
  readonly text: string | undefined;
  /** Undefined if the answer was lost. */
  readonly knownAtMs: number | undefined;
}

const textOf = ({ name, tag }: StoredPlant): string => JSON.stringify([name, tag]);

/** By the id of the plant. */
type History = Map<bigint, State[]>;

/** Creates, replaces and removes its own plants until the service is gone. */
async function work(url: string, nth: number, random: Random, history: History): Promise<void> {
  for (let step = 0; ; step++) {
    const id = BigInt(nth * IDS_EACH + random.below(IDS_EACH)) - 20n;
    const states = history.get(id) ?? [{ text: undefined, knownAtMs: 0 }];
    history.set(id, states);
    const plant = { id, name: `step ${step}`, tag: random.pick([null, "tag"]) };
    const isThere = states.at(-1)?.text !== undefined;
    const isRemoval = isThere && random.chance(40);
    const text = isRemoval ? undefined : textOf(plant);
    const place = states.push({ text, knownAtMs: undefined }) - 1;
    try {
      const { ok } = await sendOperation(
        url,
        isRemoval ? { kind: "remove", id } : { kind: isThere ? "replace" : "create", plant },
      );
      if (!ok) return;
      states[place] = { text, knownAtMs: Date.now() };
    } catch {
      return;
    }
  }
}

class DiskLosses extends Findings {
  async lose(random: Random, spoil?: (log: string) => void): Promise<void> {
    using folder = makeTemporaryFolder();
    const [data, backups] = [join(folder.path, "data"), join(folder.path, "backups")];
    mkdirSync(backups);
    const history: History = new Map();
    const { loggedAtMs, seen } = await load(data, backups, history, random);
    const lostAtMs = Date.now();
    rmSync(data, { recursive: true });
    const copies = listCopies(backups);
    this.count("losses");
    this.count("copies made", copies.length);
    this.note("lag at the loss, in milliseconds, at most", lostAtMs - loggedAtMs);
    for (const name of readdirSync(backups))
      if (name.endsWith(".changes")) spoil?.(join(backups, name));

    const newest = await this.restore(backups, join(folder.path, "newest"), []);
    if (newest === undefined) return;
    this.compareAcknowledged(history, newest.rows, loggedAtMs);
    const reachable = seen.filter(({ seq }) => seq <= newest.change);
    for (let moment = 0; moment < MOMENTS && reachable.length > 0; moment++) {
      const { seq } = random.pick(reachable);
      const flags = ["--at-change", String(seq)];
      const restored = await this.restore(backups, join(folder.path, `at-${moment}`), flags);
      if (restored === undefined) continue;
      // A copy may have changes that were not appended before the kill: no moment among them can be restored.
      if (restored.change < seq && restored.isPartial) {
        this.count("moments out of reach");
        continue;
      }
      this.count("moments compared");
      const upTo = seen.filter((change) => change.seq <= seq);
      this.faults.push(...findFaults(upTo, restored.rows).map((fault) => `at ${seq}: ${fault}`));
    }
  }

  private async restore(backups: string, to: string, flags: readonly string[]) {
    const env = { DATABASE_URL: `sqlite:${to}/plants.db` };
    const done = await runCommand(["restore", "--json", ...flags, backups], env);
    // 3: the service was killed while it wrote, so the end is unknown.
    if (done.exitCode !== 0 && done.exitCode !== EXIT_DIFFERENT) {
      this.faults.push(`restore ${flags.join(" ")}: ${done.stderr.trim()}`);
      return undefined;
    }
    const { moment, changes } = JSON.parse(done.stdout) as {
      moment: { change: number };
      changes: number;
    };
    this.count("changes replayed", changes);
    const isPartial = done.exitCode === EXIT_DIFFERENT;
    return { change: moment.change, isPartial, rows: readPlants(`${to}/plants.db`) };
  }

  /** A plant may be newer than what its client knew before the last append, and never older. */
  private compareAcknowledged(history: History, rows: StoredPlant[], loggedAtMs: number): void {
    const stored = new Map(rows.map((row) => [row.id, textOf(row)]));
    for (const [id, states] of history) {
      const known = states.findLastIndex(({ knownAtMs = Infinity }) => knownAtMs < loggedAtMs);
      const found = states.findLastIndex(({ text }) => text === stored.get(id));
      this.count("writes acknowledged", states.length - 1);
      const lost = states.slice(found + 1).filter(({ knownAtMs }) => knownAtMs !== undefined);
      this.count("acknowledged and lost, within the lag", lost.length);
      if (found < known)
        this.faults.push(
          `${id} is ${stored.get(id)}, and ${states[known]?.text} was acknowledged before the last append`,
        );
    }
  }
}

/**
 * Of a service, until it is killed. Also returns the time before which everything was in the backups, as the service
 * said last.
 */
async function load(data: string, backups: string, history: History, random: Random) {
  await using service = await spawnService({
    DATABASE_URL: `sqlite:${join(data, "plants.db")}`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: backups,
    PLANTSTORE_BACKUP_EVERY: random.pick(["1s", "2s", "1h"]),
  });
  const { url } = service.started;
  await until("a copy is there", () => listCopies(backups).length > 0);
  const clients = Array.from({ length: CLIENTS }, (_, nth) => work(url, nth, random, history));
  const follower = new Follower(() => url);
  const isOver = endsAfter((LOAD_MS + random.below(LOAD_MS)) / 1_000);
  let loggedAtMs = 0;
  // At least one append has to have happened under load.
  const startedAtMs = Date.now();
  while (!isOver() || loggedAtMs < startedAtMs) {
    const { text } = await ask(`${url}/activity`);
    ({ loggedAtMs } = (JSON.parse(text) as { backups: { loggedAtMs: number } }).backups);
    await Bun.sleep(20);
  }
  service.kill("SIGKILL");
  await service.exited;
  await Promise.all([...clients, follower.stop()]);
  return { loggedAtMs, seen: follower.seen };
}

const listCopies = (folder: string): string[] =>
  readdirSync(folder).filter((name) => name.endsWith(".db.zst"));

async function run({ seconds, random }: Budget, spoil?: (log: string) => void): Promise<Finding> {
  const losses = new DiskLosses();
  const isOver = endsAfter(seconds);
  do await losses.lose(random, spoil);
  while (!isOver() && losses.faults.length === 0);
  return losses;
}

export const diskLost: Scenario = {
  title: "the disk is lost with the process, and the store restored from its backups",
  run: (budget) => run(budget),
};

/** Drops the second half of the lines: each that is left is whole, and follows the one before. */
function dropLines(log: string): void {
  const lines = existsSync(log) ? (readFileSync(log, "utf8").match(/.*\n/g) ?? []) : [];
  if (lines.length > 0) writeFileSync(log, lines.slice(0, Math.floor(lines.length / 2)).join(""));
}

export const diskLostCheat: Scenario = {
  title: "the same, with lines dropped from the change log",
  run: noticing((budget) => run(budget, dropLines)),
};
