/** Several services on one database. Any of them may be killed at any moment, and is started again. */

import { type ServiceProcess, spawnService } from "./command.ts";
import type { PostgresServer } from "./postgres-server.ts";
import type { Random } from "./random.ts";
import { until } from "./until.ts";

/** A service does not start without its database. The fleet tries again, as a supervisor would. */
const REPLACE_MS_MAX = 60_000;
const RETRY_MS = 20;

interface Member {
  readonly service: ServiceProcess;
  /** What it calls itself on its connections. */
  readonly name: string;
}

export class Fleet implements AsyncDisposable {
  /** Those that were ended here, whose clients may lose their connections. */
  readonly ended: ServiceProcess[] = [];
  private readonly server: Pick<PostgresServer, "run"> | undefined;
  private readonly env: Readonly<Record<string, string>>;
  private readonly ports: readonly number[];
  private readonly members: Member[] = [];
  private quiet: Promise<void> = Promise.resolve();
  private started = 0;

  /** With the server, statements of services that were ended are waited for. Free ports are used where none are given. */
  constructor(
    server: Fleet["server"],
    databaseUrl: string,
    env: Fleet["env"] = {},
    ports: Fleet["ports"] = [],
  ) {
    this.server = server;
    this.env = { ...env, DATABASE_URL: databaseUrl };
    this.ports = ports;
  }

  get services(): readonly ServiceProcess[] {
    return this.members.map(({ service }) => service);
  }

  /** All at the same moment. */
  async start(length: number): Promise<readonly ServiceProcess[]> {
    const first = this.members.length;
    const results = await Promise.allSettled(
      Array.from({ length }, (_, nth) => this.spawn(first + nth)),
    );
    for (const result of results)
      if (result.status === "fulfilled") this.members.push(result.value);
    for (const result of results) if (result.status === "rejected") throw result.reason;
    return this.services;
  }

  /** For an engine where only one can make the store. */
  async startOneByOne(length: number): Promise<void> {
    for (let nth = 0; nth < length; nth++) await this.start(1);
  }

  /** Of any; it may be dead just now. */
  findUrl(random: Random): string {
    return random.pick(this.members).service.started.url;
  }

  /** Resolves when the database has finished every statement of the services that were ended. */
  untilQuiet(): Promise<void> {
    return this.quiet;
  }

  /** Resolves when another one runs in place of the one that was ended; to that one. */
  async replaceAny(random: Random, signal: NodeJS.Signals = "SIGKILL"): Promise<ServiceProcess> {
    const index = random.below(this.members.length);
    const member = this.members[index] as Member;
    const burial = this.bury(member, signal);
    this.quiet = burial;
    await burial;
    this.members[index] = await this.spawnAtLast(index);
    return member.service;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.members.map(({ service }) => service[Symbol.asyncDispose]()));
  }

  /** A backend finishes its statement even if its client is gone. */
  private async bury({ service, name }: Member, signal: NodeJS.Signals): Promise<void> {
    this.ended.push(service);
    service.kill(signal);
    await service.exited;
    const { server } = this;
    if (server === undefined) return;
    const query = `SELECT FROM pg_stat_activity WHERE application_name = '${name}'`;
    // A server that is down answers when it is back.
    const isBusy = (): Promise<boolean> =>
      server.run(query).then(
        (rows) => rows.length > 0,
        () => true,
      );
    await until(`no statement of ${name} is left`, async () => !(await isBusy()));
  }

  private async spawnAtLast(index: number): Promise<Member> {
    const startedAtMs = performance.now();
    for (;;) {
      try {
        return await this.spawn(index);
      } catch (error) {
        if (performance.now() - startedAtMs > REPLACE_MS_MAX) throw error;
      }
      await Bun.sleep(RETRY_MS);
    }
  }

  private async spawn(index: number): Promise<Member> {
    const name = `instance-${++this.started}`;
    const url = this.env["DATABASE_URL"] ?? "";
    const named = `${url}${url.includes("?") ? "&" : "?"}application_name=${name}`;
    const DATABASE_URL = this.server === undefined ? url : named;
    const PORT = String(this.ports[index] ?? 0);
    // Every other one has two threads, unless the environment says otherwise.
    const PLANTSTORE_WORKERS = String(1 + (this.started % 2));
    const env = { PLANTSTORE_WORKERS, ...this.env, DATABASE_URL, PORT };
    return { service: await spawnService(env), name };
  }
}
