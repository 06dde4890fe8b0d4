/** Profiles our service in one more round, with the runtime's CPU and heap profiler. */

import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Load, load } from "./load.ts";
import { ask, servePlants } from "./servers.ts";
import { ROUND_SECONDS } from "./settings.ts";
import { makePath } from "./stores.ts";

interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly url: string; readonly functionName: string };
    readonly children?: readonly number[];
  }[];
  /** The node of each sample, and the microseconds since the last one. */
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Matched against a function's file. A built-in function has no file: its name is appended to its caller's file. */
const parts: readonly (readonly [place: RegExp, name: string])[] = [
  [/^bun:sqlite|\/sqlite\/[\w-]+\.ts (get|run|all|next)\b/, "SQLite and its sync"],
  [/^(bun|internal):sql/, "the client of PostgreSQL"],
  [/\/src\/(http|auth|observe)\//, "requests and answers"],
  [/\/src\/(domain|format)\//, "parsing and formatting plants"],
  [/\/src\/store\//, "the queue, the journal and rows"],
  [/^/, "the runtime outside our code (network and HTTP)"],
];

/** The shares of a profile in words, without the first `startMs`. */
function describeProfile({ nodes, samples, timeDeltas }: Profile, startMs: number): string {
  const places = new Map<number, string>();
  // Callers come before callees.
  for (const { id, callFrame, children = [] } of nodes) {
    const place = callFrame.url || `${places.get(id) ?? ""} ${callFrame.functionName}`;
    for (const each of [id, ...children]) places.set(each, place);
  }
  let us = 0;
  const isLoaded = samples.map((_, index) => (us += timeDeltas[index] ?? 0) > startMs * 1000);
  const found = samples
    .filter((_, index) => isLoaded[index])
    .map((id) => parts.find(([place]) => place.test(places.get(id) ?? ""))?.[1]);
  const shares = parts
    .map(([, name]) => [name, found.filter((one) => one === name).length / found.length] as const)
    .filter(([, share]) => share >= 0.01)
    .toSorted(([, one], [, other]) => other - one);
  return shares.map(([name, share]) => `${name} ${(share * 100).toFixed(0)} %`).join(", ");
}

interface Heap {
  readonly snapshot: { readonly meta: { readonly node_fields: readonly string[] } };
  readonly nodes: readonly number[];
}

/** The fields of all nodes are in one flat array. */
function countAliveMb({ snapshot, nodes }: Heap): number {
  const { node_fields: fields } = snapshot.meta;
  const sizes = nodes.filter((_, index) => fields[index % fields.length] === "self_size");
  return sizes.reduce((sum, bytes) => sum + bytes, 0) / 2 ** 20;
}

/** Starts our service with the profiler, and describes its round. */
export async function profile(
  databaseUrl: string,
  use: Load,
  options?: Parameters<typeof servePlants>[1],
): Promise<string> {
  const folder = makePath("profile");
  mkdirSync(folder);
  const main = join(import.meta.dir, "../src/main.ts");
  const into = `-prof-dir=${folder}`;
  const flags = ["--cpu-prof", `--cpu${into}`, "--heap-prof", `--heap${into}`];
  const program = [process.execPath, ...flags, main];
  const server = await servePlants(databaseUrl, options, program);
  const runRound = async () => {
    await using stack = new AsyncDisposableStack();
    stack.defer(server.stop);
    await load(server, use, ROUND_SECONDS);
    const metrics = await (await ask(`${server.url}/metrics`)).text();
    return { metrics, fileMb: server.rssMb("RssFile") };
  };
  const { metrics, fileMb } = await runRound();
  const count = (upToSeconds: string): number =>
    Number(metrics.match(`commit_seconds_bucket{le="${upToSeconds}"} (\\d+)`)?.[1]);
  const commits = count("\\+Inf");
  const late = 100 - (count("0.004") / commits) * 100;
  // A single commit is the create of the start-up check.
  const more = commits === 1 ? "" : ` Commits that took more than 4 ms: ${late.toFixed(1)} %.`;
  const paths = readdirSync(folder).toSorted();
  const [cpu, heap] = await Promise.all(paths.map((path) => Bun.file(join(folder, path)).json()));
  const memory = `Of the memory, ${fileMb.toFixed(0)} MB are file-backed, mostly the runtime's executable, and ${countAliveMb(heap as Heap).toFixed(0)} MB are live heap.`;
  return `${describeProfile(cpu as Profile, server.startMs)}.${more} ${memory}`;
}
