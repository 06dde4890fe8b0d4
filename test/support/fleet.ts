/** Several services on one database. Any of them may be killed at any moment, and is started again. */

import { type ServiceProcess, spawnService } from "./command.ts";
import type { PostgresServer } from "./postgres-server.ts";
import type { Random } from "./random.ts";
import { until } from "./until.ts";

interface Member {
  readonly service: ServiceProcess;
  /** What it calls itself on its connections. */
  readonly name: string;
}

export class Fleet implements AsyncDisposable {
  /** Those that were ended here, whose clients may lose their connections. */
  readonly ended: ServiceProcess[] = [];
  /** Resolves when the database has finished every statement of the services that were ended. */
  quiet: Promise<void> = Promise.resolve();
  private readonly server: Pick<PostgresServer, "run"> | undefined;
  private readonly env: Readonly<Record<string, string>>;
  private readonly ports: readonly number[];
  private readonly members: Member[] = [];
  private started = 0;

  /** With the server, statements of services that were ended are waited for. Free ports are used where none are given. */
  constructor(server: Fleet["server"], env: Fleet["env"], ports: Fleet["ports"] = []) {
    this.server = server;
    this.env = env;
    this.ports = ports;
  }

  get services(): readonly ServiceProcess[] {
    return this.members.map(({ service }) => service);
  }

  /** All at the same moment. */
  async start(length: number): Promise<void> {
    const first = this.members.length;
    const starting = Array.from({ length }, (_, nth) => this.spawn(first + nth));
    await Promise.allSettled(starting);
    await Promise.all(starting);
  }

  /** The URL of any instance; it may be dead just now. */
  findUrl(random: Random): string {
    return random.pick(this.members).service.started.url;
  }

  /** Resolves when another one runs in place of the one that was ended; to that one. */
  async replaceAny(random: Random, signal: NodeJS.Signals = "SIGKILL"): Promise<ServiceProcess> {
    const index = random.below(this.members.length);
    const member = this.members[index] as Member;
    this.quiet = this.bury(member, signal);
    await this.quiet;
    // A service does not start without its database. The fleet tries again, as a supervisor would.
    const spawn = (): Promise<boolean> => this.spawn(index).catch(() => false);
    await until(`the successor of ${member.name} is started`, spawn);
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
    await until(`no statement of ${name} is left`, async () => {
      // A server that is down answers when it is back.
      const rows = await server.run(query).catch(() => undefined);
      return rows?.length === 0;
    });
  }

  private async spawn(index: number): Promise<boolean> {
    const name = `instance-${++this.started}`;
    const url = this.env["DATABASE_URL"] ?? "";
    const named = `${url}${url.includes("?") ? "&" : "?"}application_name=${name}`;
    const DATABASE_URL = this.server === undefined ? url : named;
    const PORT = String(this.ports[index] ?? 0);
    // Every other one has two threads, unless the environment says otherwise.
    const PLANTSTORE_WORKERS = String(1 + (this.started % 2));
    const env = { PLANTSTORE_WORKERS, ...this.env, DATABASE_URL, PORT };
    this.members[index] = { service: await spawnService(env), name };
    return true;
  }
}
