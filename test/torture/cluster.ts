/**
 * Two services behind HAProxy, on PostgreSQL under Patroni, from the files of ops/cluster. Machines and processes fail
 * one after the other. What was acknowledged is there, in one order, in every feed and at every webhook.
 */

import { startCallers } from "../support/callers.ts";
import { Cluster, findMissingCluster, installCluster, type Machine } from "../support/cluster.ts";
import { Fleet } from "../support/fleet.ts";
import type { StoredPlant } from "../support/plants.ts";
import { fork } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { findFaults, findNewest, Follower, Receiver, untilCaughtUp } from "./changes.ts";
import { FLOW_MS_MAX, Load } from "./mixed-load.ts";
import { BATCH_LENGTH_MAX, findUnsound } from "./postgres-scene.ts";
import {
  type Budget,
  deal,
  endsAfter,
  type Finding,
  Findings,
  noticing,
  type Scenario,
  within,
} from "./scenario.ts";
import { ask } from "./service.ts";
import { compareAnswers } from "./shimmed-disk.ts";

const CLIENTS = 6;
const CONTENDERS = 4;
const CALLERS = 2;
const WEBHOOKS = 2;
const WRITES_BETWEEN = 200;
/** Refused writes are not sent again at once, or the history of an outage takes long to explain. */
const RETRY_MS = 250;
/** Longer than the leader's lease, so that it has to be renewed without etcd. */
const WITHOUT_ETCD_MS = 25_000;
/** Jitter can shorten the retries of @plantstore/client to half of their 26 seconds. */
const RIDDEN_MS_MAX = 12_000;
/** Those of callers are beyond all others. */
const CALLERS_FROM = 1_000_000_000_000n;

type Scene = Awaited<ReturnType<typeof openScene>>;

async function openScene({ random, isShort = false, tell }: Budget) {
  await using opened = new AsyncDisposableStack();
  const cluster = opened.use(await Cluster.open());
  tell(`a cluster of ${cluster.nodes.length} nodes runs`);
  const { env, ports } = cluster.services;
  // The receivers are on this machine.
  const settings = { ...env, PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WEBHOOKS_PRIVATE: "true" };
  const fleet = opened.use(new Fleet(cluster, settings, ports));
  await fleet.start(ports.length);
  const isFound = async (): Promise<boolean> => (await ask(`${cluster.url}/readyz`)).status === 200;
  await until("HAProxy has found the services", isFound);
  const receivers = await Promise.all(
    Array.from({ length: WEBHOOKS }, async (_, nth) => {
      const receiver = opened.use(new Receiver(fork(random), false));
      await receiver.subscribe(cluster.url, `webhook-${nth}`);
      return receiver;
    }),
  );
  const followers = ports.map(
    (_, nth) => new Follower(() => fleet.services[nth]?.started.url ?? ""),
  );
  for (const follower of followers) opened.defer(() => follower.stop());
  const surroundings = {
    findUrl: () => cluster.url,
    untilQuiet: async () => {
      await fleet.quiet;
      await Bun.sleep(RETRY_MS);
    },
    batchLengthMax: BATCH_LENGTH_MAX,
    isShared: true,
    mayRefuse: [
      "overloaded",
      "store_busy",
      "store_unavailable",
      "store_down",
      "shutting_down",
      502,
      504,
    ],
  } as const;
  const load = opened.use(new Load(CLIENTS, CONTENDERS, surroundings, random));
  const callers = opened.use(startCallers(cluster.url, CALLERS, CALLERS_FROM));
  const scene = opened.move();
  return {
    cluster,
    fleet,
    load,
    callers,
    followers,
    receivers,
    random,
    isShort,
    found: new Findings(),
    [Symbol.asyncDispose]: (): Promise<void> => scene.disposeAsync(),
  };
}

/** Resolves when the load flows, through whichever node and service. */
async function flow({ load, found }: Scene, what: string): Promise<void> {
  found.faults.push(...(await load.flow(WRITES_BETWEEN)).map((fault) => `${what}: ${fault}`));
}

/** A node with its member of etcd, as on one machine. */
const machinesOf = ({ etcd }: Cluster, node: Machine): Machine[] => [
  node,
  ...etcd.filter(({ name }) => name === node.name),
];

/** They are switched off, and on again when the load flows without them. */
async function flowWithout(
  machines: readonly Machine[],
  scene: Scene,
  kind: string,
  offMs = 0,
): Promise<void> {
  await Promise.all(machines.map((machine) => machine.kill()));
  await Bun.sleep(offMs);
  await flow(scene, kind);
  for (const machine of machines) machine.start();
}

async function switchOver(cluster: Cluster): Promise<void> {
  const leader = await cluster.getNode("leader");
  await cluster.patronictl("switchover", "plants", "--leader", leader.name, "--force");
}

async function restart(cluster: Cluster, { name }: Machine): Promise<void> {
  await cluster.patronictl("restart", "plants", name, "--force");
  await cluster.untilWhole(`after the restart of ${name}`);
}

/** Each ends when everything has been started again. */
const mishaps: Readonly<Record<string, (scene: Scene, kind: string) => Promise<void>>> = {
  "leader killed": async (scene, kind) =>
    flowWithout(machinesOf(scene.cluster, await scene.cluster.getNode("leader")), scene, kind),

  "leader silent, and back": async (scene, kind) => {
    const leader = await scene.cluster.getNode("leader");
    const machines = machinesOf(scene.cluster, leader);
    await using late = leader.connect();
    await late.unsafe("CREATE TABLE IF NOT EXISTS late (at timestamptz)");
    await Promise.all(machines.map((machine) => machine.pause()));
    // The kernel takes it, and the old leader executes it when it is back.
    const writing = late.unsafe("INSERT INTO late VALUES (now())").catch(() => "refused");
    await flow(scene, kind);
    for (const machine of machines) machine.resume();
    if ((await within(FLOW_MS_MAX, writing)) !== "refused")
      scene.found.faults.push(`${kind}: the old leader acknowledged a write, or did not refuse it`);
  },

  "synchronous standby killed": async (scene, kind) =>
    flowWithout(
      machinesOf(scene.cluster, await scene.cluster.getNode("sync_standby")),
      scene,
      kind,
    ),

  // What is refused meanwhile has been committed by the leader, and shows once another standby has it.
  "synchronous standby silent, and back": async (scene, kind) => {
    const machines = machinesOf(scene.cluster, await scene.cluster.getNode("sync_standby"));
    await Promise.all(machines.map((machine) => machine.pause()));
    await flow(scene, kind);
    for (const machine of machines) machine.resume();
  },

  "switch-over": ({ cluster }) => switchOver(cluster),

  /** The order of docs/scaling.md, for a minor version of PostgreSQL. */
  "rolling restart": async ({ cluster }) => {
    const leader = await cluster.getNode("leader");
    for (const replica of await cluster.listReplicas()) await restart(cluster, replica);
    await switchOver(cluster);
    await cluster.untilWhole("after the switch-over");
    await restart(cluster, leader);
  },

  "etcd killed": (scene, kind) =>
    flowWithout(scene.cluster.etcd, scene, kind, scene.isShort ? 0 : WITHOUT_ETCD_MS),

  "service killed": async ({ fleet, random }) => void (await fleet.replaceAny(random)),

  // HAProxy notices it within the delay that ops/cluster/plantstore.env sets, unless the machine is very busy.
  "service restarted": async ({ fleet, load: { clients }, random, isShort, found }, kind) => {
    const { faults } = found;
    const before = clients.unsettled;
    const { exited } = await fleet.replaceAny(random, "SIGTERM");
    if ((await exited) !== 0) faults.push(`a service exited with ${await exited}`);
    const failed = clients.unsettled - before;
    if (failed > 0 && !isShort) faults.push(`${kind}: ${failed} writes were refused or lost`);
  },
};

/** Resolves when all is well again; to a line about the outage. */
async function suffer(scene: Scene, kind: string): Promise<string> {
  const { cluster, fleet, callers, found } = scene;
  const { clients } = scene.load;
  const refusedBefore = clients.unsettled;
  const course = { isOver: false, ms: 0 };
  const measuring = (async () => {
    while (!course.isOver) {
      const ms = await within(FLOW_MS_MAX, clients.untilAcknowledged(1));
      course.ms = Math.max(course.ms, ms ?? FLOW_MS_MAX);
    }
  })();
  await mishaps[kind]?.(scene, kind);
  await cluster.untilWhole(`after “${kind}”`);
  await until(`${kind}: the services are ready`, async () => {
    const asked = fleet.services.map(({ started }) => ask(`${started.url}/readyz`));
    return (await Promise.all(asked)).every(({ status }) => status === 200);
  });
  await flow(scene, kind);
  course.isOver = true;
  await measuring;
  const { ms } = course;
  const errors = callers.takeErrors();
  if (ms < RIDDEN_MS_MAX) found.faults.push(...errors.map((error) => `${kind}: ${error}`));
  const refused = clients.unsettled - refusedBefore;
  found.count(`${kind}: times`);
  found.note(`${kind}: no write acknowledged, seconds at most`, ms / 1000);
  found.note(`${kind}: refused at most`, refused);
  return `${kind}: no write acknowledged for ${(ms / 1000).toFixed(1)} s, ${refused} refused`;
}

const readRows = ({ cluster }: Scene): Promise<StoredPlant[]> =>
  cluster.run<StoredPlant>("SELECT id, name, tag FROM plants ORDER BY id", "plants");

const compareRows = ({ load }: Scene, rows: readonly StoredPlant[]): string[] =>
  load.compare(rows.filter(({ id }) => id < CALLERS_FROM));

/** After the load: everything in which the store, the services, the feeds and the webhooks differ from the answers. */
async function examine(scene: Scene): Promise<string[]> {
  const { fleet, load, callers, followers, receivers } = scene;
  await Promise.all([load, callers].map((those) => those[Symbol.asyncDispose]()));
  const rows = await readRows(scene);
  const urls = fleet.services.map(({ started: { url } }) => url);
  const shown = await Promise.all(urls.map((url) => compareAnswers(url, rows)));
  const newest = Number(await findNewest(urls[0] ?? ""));
  const readers = [...followers, ...receivers];
  const late = await Promise.all(readers.map((reader) => untilCaughtUp(reader, newest)));
  return [
    ...compareRows(scene, rows),
    ...shown.flat(),
    ...late.flat(),
    ...readers.flatMap(({ seen }) => findFaults(seen, rows)),
    ...receivers.flatMap(({ faults }) => faults),
    ...(await Promise.all(fleet.services.map(findUnsound))).flat(),
  ];
}

export const cluster: Scenario = {
  title: "a cluster under Patroni loses leaders, replicas, etcd and services, and no plant",
  missing: findMissingCluster,
  install: installCluster,
  run: async (budget) => {
    await using scene = await openScene(budget);
    await flow(scene, "at the beginning");
    for (const kind of deal(Object.keys(mishaps), budget, endsAfter(budget.seconds)))
      budget.tell(await suffer(scene, kind));
    const faults = [...scene.found.faults, ...(await examine(scene))];
    const { found, callers, followers, receivers } = scene;
    const { clients, contest } = scene.load;
    return {
      figures: {
        ...found.figures,
        "writes acknowledged": clients.acknowledged,
        "writes refused for now, or cut off": clients.unsettled,
        "longest answer (ms)": Math.round(clients.answerMsMax),
        "calls of @plantstore/client": callers.calls,
        "operations of the contest": contest.operations,
        "changes in each feed": followers[0]?.seen.length ?? 0,
        "events at each webhook": receivers[0]?.seen.length ?? 0,
      },
      faults,
    };
  },
};

/** Few: a replica that lacks more than a megabyte of WAL does not become the leader. */
const DELAYED_WRITES = 100;

async function loseWrites(budget: Budget): Promise<Finding> {
  await using scene = await openScene(budget);
  const { cluster: its, load } = scene;
  await flow(scene, "at the beginning");
  const modes = ["-s", "synchronous_mode=false", "-s", "synchronous_mode_strict=false"];
  await its.patronictl("edit-config", "plants", "--force", ...modes);
  await until("the leader waits for no replica", async () => {
    const [row] = await its.run("SHOW synchronous_standby_names");
    return row?.["synchronous_standby_names"] === "";
  });
  const replicas = await its.listReplicas();
  await Promise.all(replicas.map((replica) => replica.pauseReceiver()));
  await load.clients.untilAcknowledged(DELAYED_WRITES);
  const leader = await its.getNode("leader");
  await leader.kill();
  await load[Symbol.asyncDispose]();
  for (const replica of replicas) replica.killReceiver();
  await until("a replica is the leader", async () => {
    const now = await its.getNode("leader").catch(() => leader);
    return now !== leader && (await now.run("SHOW transaction_read_only").then(isOff, () => false));
  });
  return { figures: {}, faults: compareRows(scene, await readRows(scene)) };
}

const isOff = ([row]: readonly Record<string, unknown>[]): boolean =>
  row?.["transaction_read_only"] === "off";

export const clusterCheat: Scenario = {
  title: "in asynchronous mode a delayed replica becomes the leader: the losses are found",
  missing: findMissingCluster,
  install: installCluster,
  run: noticing(loseWrites, /lost after it was acknowledged/),
};
