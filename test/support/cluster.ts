/**
 * The cluster of ops/cluster on this machine: etcd, Patroni with PostgreSQL, and HAProxy, each from the files that an
 * operator copies. Only addresses become ports of the loopback, and folders become temporary ones.
 */

import { $, SQL } from "bun";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { canInstall, installPackages } from "./packages.ts";
import { findFreePort, giveToServer, HOSTNAME, spawnOptions } from "./postgres-files.ts";
import {
  endProcesses,
  guardFolder,
  listTree,
  removeServerFolder,
  signal,
  stopProcesses,
} from "./processes.ts";
import { until } from "./until.ts";

const OPS = join(import.meta.dir, "../../ops/cluster");
const MACHINES = ["db1", "db2", "db3"] as const;
/** Debian's own: the tester's may have programs that another user cannot run. */
const PATH = "/usr/bin:/usr/sbin:/bin:/usr/lib/postgresql/15/bin";
const SUPERUSER = { username: "postgres", password: "change-me-postgres" };

/** A program of each package that the files of ops/cluster need. */
const programs: Readonly<Record<string, string>> = {
  "etcd-server": "etcd",
  haproxy: "haproxy",
  patroni: "patroni",
  "postgresql-15": "pg_basebackup",
};

const listMissing = (): string[] =>
  Object.keys(programs).filter((name) => Bun.which(programs[name] ?? "", { PATH }) === null);

export function findMissingCluster(): string | undefined {
  const missing = listMissing();
  return missing.length === 0 ? undefined : `run apt-get install ${missing.join(" ")} (Debian 12)`;
}

export function installCluster(): void {
  if (canInstall()) installPackages(...listMissing());
}

/** An address of ops/cluster, such as db1:5432; a machine itself listens on 0.0.0.0. */
const ADDRESS = /\b(db\d|app\d|0\.0\.0\.0):(\d+)/g;

/** Which port of the loopback each address of ops/cluster has. */
class Places {
  readonly #ports = new Map<string, number>();

  portOf(address: string): number {
    const known = this.#ports.get(address);
    if (known !== undefined) return known;
    const taken = new Set(this.#ports.values());
    let port = findFreePort();
    while (taken.has(port)) port = findFreePort();
    this.#ports.set(address, port);
    return port;
  }

  /** A file of ops/cluster as it is for this machine, whose folder stands for those under /var/lib. */
  read(file: string, machine: string, folder: string): string {
    return readFileSync(join(OPS, file), "utf8")
      .split("\n")
      .map((line) => (/db1.*db2/.test(line) ? line : line.replaceAll("db1", machine)))
      .join("\n")
      .replaceAll(ADDRESS, (address, name: string, port: string) => {
        const itself = name === "0.0.0.0" ? `${machine}:${port}` : address;
        return `${HOSTNAME}:${this.portOf(itself)}`;
      })
      .replaceAll("/var/lib", folder);
  }
}

/** The lines of a file as systemd's EnvironmentFile reads them. */
const parseEnvironment = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split("\n")
      .filter((line) => /^[A-Z]/.test(line))
      .map((line) => line.split(/=(.*)/s) as [string, string]),
  );

/**
 * Patroni starts PostgreSQL as an orphan. This parent adopts it and reaps it at once, so that Patroni sees it end; the
 * first process of a container may take seconds, or not do it at all.
 */
const PARENT = `
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1) # PR_SET_CHILD_SUBREAPER
os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
try:
    while True: os.wait()
except ChildProcessError: pass`;

/** A process with all that it starts, as on a machine of its own. It is the user that PostgreSQL runs as. */
export class Machine {
  readonly name: string;
  readonly #command: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #logPath: string;
  #child: Bun.Subprocess | undefined;

  constructor(
    name: string,
    command: readonly string[],
    folder: string,
    env: Readonly<Record<string, string>> = {},
  ) {
    this.name = name;
    this.#command = command;
    this.#env = { ...spawnOptions.env, PATH, HOME: folder, ...env };
    this.#logPath = join(folder, `${command[0]}.log`);
  }

  start(): void {
    const log = openSync(this.#logPath, "a");
    this.#child = Bun.spawn(["/usr/bin/python3", "-c", PARENT, ...this.#command], {
      ...spawnOptions,
      env: this.#env,
      stdin: "ignore",
      stdout: log,
      stderr: log,
    });
    closeSync(log);
    this.#child.unref();
  }

  /** All at once, as when the machine is switched off. Resolves when nothing of it is left. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.ref();
    await this.pause();
    for (const pid of this.listPids()) if (pid !== child.pid) signal(pid, "SIGKILL");
    // It has reaped all others then.
    signal(child.pid, "SIGCONT");
    await child.exited;
    this.#child = undefined;
  }

  /** Connections stay, new ones are accepted by the kernel, and nothing answers. */
  async pause(): Promise<void> {
    // Parents are stopped first. What they had just started is stopped in the next round.
    let count = 0;
    for (let pids = this.listPids(); pids.length > count; pids = this.listPids()) {
      await stopProcesses(...pids);
      count = pids.length;
    }
  }

  resume(): void {
    for (const pid of this.listPids().toReversed()) signal(pid, "SIGCONT");
  }

  log(): string {
    return existsSync(this.#logPath) ? readFileSync(this.#logPath, "utf8") : "";
  }

  /** Parents first. All, or those with this in their commands. */
  protected listPids(part = ""): number[] {
    const tree = this.#child === undefined ? [] : listTree(this.#child.pid);
    return tree.filter(({ command }) => command.includes(part)).map(({ pid }) => pid);
  }
}

/** A machine with PostgreSQL under Patroni. */
export class Node extends Machine {
  readonly port: number;
  readonly restUrl: string;

  constructor(name: string, folder: string, places: Places) {
    super(name, ["patroni", join(folder, "patroni.yml")], folder);
    this.port = places.portOf(`${name}:5432`);
    this.restUrl = `http://${HOSTNAME}:${places.portOf(`${name}:8008`)}`;
  }

  /** It receives nothing more, and does not know it. */
  async pauseReceiver(): Promise<void> {
    await stopProcesses(...this.listPids("walreceiver"));
  }

  /** What was sent to it since the pause is lost. The server restarts, and looks for the leader. */
  killReceiver(): void {
    for (const pid of this.listPids("walreceiver")) signal(pid, "SIGKILL");
  }

  /** One connection past Patroni and the services. */
  connect(database = "postgres"): SQL {
    const server = { adapter: "postgres", hostname: HOSTNAME, port: this.port } as const;
    return new SQL({ ...server, ...SUPERUSER, database, tls: false, max: 1, bigint: true });
  }

  async run<Row = Record<string, unknown>>(text: string, database?: string): Promise<Row[]> {
    await using db = this.connect(database);
    return [...((await db.unsafe(text)) as Row[])];
  }
}

/** What Patroni says of a node. */
interface Member {
  readonly name: string;
  readonly role: string;
  readonly state: string;
  readonly timeline?: number;
}

export class Cluster implements AsyncDisposable {
  readonly nodes: readonly Node[];
  readonly etcd: readonly Machine[];
  readonly #folder = makeTemporaryFolder().path;
  readonly #places = new Places();
  readonly #haproxy: Machine;

  private constructor() {
    guardFolder(this.#folder);
    const places = this.#places;
    const folderOf = (name: string): string => join(this.#folder, name);
    this.nodes = MACHINES.map((name) => {
      const place = folderOf(name);
      // As the package postgresql-common does.
      mkdirSync(join(place, "postgresql"), { recursive: true });
      writeFileSync(join(place, "patroni.yml"), places.read("patroni.yml", name, place));
      return new Node(name, place, places);
    });
    this.etcd = MACHINES.map((name) => {
      const text = places.read("etcd.env", name, folderOf(name));
      const { ETCD_DATA_DIR: data = "", ...env } = parseEnvironment(text);
      // The guard finds it by its folder.
      return new Machine(name, ["etcd", "--data-dir", data], folderOf(name), env);
    });
    const place = folderOf("lb");
    const file = join(place, "haproxy.cfg");
    mkdirSync(place);
    writeFileSync(file, places.read("haproxy.cfg", "lb", place));
    this.#haproxy = new Machine("lb", ["haproxy", "-db", "-f", file], place);
    giveToServer(this.#folder);
  }

  /** Resolves when it has a leader, a synchronous standby, one more replica, and an empty database. */
  static async open(): Promise<Cluster> {
    const cluster = new Cluster();
    try {
      await cluster.#start();
      return cluster;
    } catch (error) {
      const logs = [...cluster.nodes, ...cluster.etcd].map((one) => one.log().slice(-2_000));
      await cluster[Symbol.asyncDispose]();
      throw new Error(`the cluster did not start:\n${logs.join("\n")}`, { cause: error });
    }
  }

  /** HAProxy's. */
  get url(): string {
    return `http://${HOSTNAME}:${this.#places.portOf("lb:8080")}`;
  }

  /** What ops/cluster/plantstore.env says, for app1 and app2. */
  get services(): { readonly env: Readonly<Record<string, string>>; readonly ports: number[] } {
    const env = parseEnvironment(this.#places.read("plantstore.env", "app1", ""));
    const ports = ["app1:8080", "app2:8080"].map((name) => this.#places.portOf(name));
    return { env: { ...env, HOST: HOSTNAME }, ports };
  }

  /** By any node that answers. */
  async listMembers(): Promise<readonly Member[]> {
    const asked = this.nodes.map(async ({ restUrl }) => {
      const response = await fetch(`${restUrl}/cluster`, { signal: AbortSignal.timeout(2_000) });
      return ((await response.json()) as { members: Member[] }).members;
    });
    return Promise.any(asked).catch(() => []);
  }

  /** The leader, or the standby that every commit waits for. Rejects if Patroni knows of none. */
  async getNode(wanted: "leader" | "sync_standby"): Promise<Node> {
    const members = await this.listMembers();
    const member = members.find(({ role }) => role === wanted);
    const node = this.nodes.find(({ name }) => name === member?.name);
    if (node === undefined) throw new Error(`the cluster has no ${wanted}`);
    return node;
  }

  async listReplicas(): Promise<Node[]> {
    const leader = await this.getNode("leader");
    return this.nodes.filter((node) => node !== leader);
  }

  /** On the leader. */
  async run<Row = Record<string, unknown>>(text: string, database?: string): Promise<Row[]> {
    const leader = await this.getNode("leader");
    return leader.run<Row>(text, database);
  }

  async #isWhole(): Promise<boolean> {
    const members = await this.listMembers();
    const leader = members.find(({ role }) => role === "leader");
    return (
      leader?.state === "running" &&
      members.length === MACHINES.length &&
      members.every(({ state }) => /^(running|streaming)$/.test(state)) &&
      members.every(({ timeline }) => timeline === leader.timeline) &&
      members.some(({ role }) => role === "sync_standby")
    );
  }

  /**
   * Resolves when every node is well, and the leader has ended a turn of its loop since. In that turn it may replace the
   * synchronous standby; if it dies meanwhile, Patroni elects no other.
   */
  async untilWhole(what: string): Promise<void> {
    let watched: { readonly leader: Node; readonly from: number } | undefined;
    await until(`${what}: the cluster is whole`, async () => {
      if (!(await this.#isWhole())) {
        watched = undefined;
        return false;
      }
      const leader = await this.getNode("leader");
      if (watched?.leader !== leader) watched = { leader, from: leader.log().length };
      return leader.log().slice(watched.from).includes("the leader with the lock");
    });
  }

  /** As an operator runs it, on any node. */
  async patronictl(...args: readonly string[]): Promise<void> {
    const file = join(this.#folder, MACHINES[0], "patroni.yml");
    const env = { ...spawnOptions.env, PATH, HOME: this.#folder };
    const command = $`/usr/bin/patronictl -c ${file} ${args}`.env(env).quiet().nothrow();
    const { exitCode, stdout, stderr } = await command;
    if (exitCode !== 0)
      throw new Error(`patronictl ${args.join(" ")}: ${[stdout, stderr].join("\n")}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    endProcesses(this.#folder);
    removeServerFolder(this.#folder);
  }

  async #start(): Promise<void> {
    for (const machine of [...this.etcd, this.#haproxy]) machine.start();
    const health = `http://${HOSTNAME}:${this.#places.portOf("db1:2379")}/health`;
    await until("etcd has a leader", async () => {
      const response = await fetch(health).catch(() => undefined);
      return response?.ok === true;
    });
    const [first, ...others] = this.nodes;
    first?.start();
    const isLeading = ({ role, state }: Member): boolean =>
      role === "leader" && state === "running";
    const hasLeader = async (): Promise<boolean> => (await this.listMembers()).some(isLeading);
    await until("the first node is the leader", hasLeader);
    for (const node of others) node.start();
    await this.untilWhole("at the start");
    const statements = this.#places.read("database.sql", "db1", "").match(/^CREATE .*$/gm) ?? [];
    for (const statement of statements) await this.run(statement);
  }
}
