/** Several services on one database, any of which may be killed at any moment and is started again. */

import { type ServiceProcess, spawnService } from "./child.ts";
import type { PostgresServer } from "./postgres-server.ts";
import type { Random } from "./random.ts";

interface Member {
  readonly service: ServiceProcess;
  /** What it calls itself on its connections. */
  readonly name: string;
}

export class Fleet implements AsyncDisposable {
  private readonly server: PostgresServer;
  private readonly env: Readonly<Record<string, string>>;
  private readonly members: Member[] = [];
  private quiet: Promise<void> = Promise.resolve();
  private started = 0;

  constructor(server: PostgresServer, databaseUrl: string, env: Fleet["env"] = {}) {
    this.server = server;
    this.env = { ...env, DATABASE_URL: databaseUrl };
  }

  /** All at the same moment. */
  async start(length: number): Promise<readonly ServiceProcess[]> {
    const results = await Promise.allSettled(Array.from({ length }, () => this.spawn()));
    for (const result of results)
      if (result.status === "fulfilled") this.members.push(result.value);
    for (const result of results) if (result.status === "rejected") throw result.reason;
    return this.members.map(({ service }) => service);
  }

  /** Of any; it may be dead just now. */
  findUrl(random: Random): string {
    return random.pick(this.members).service.started.url;
  }

  /** Resolves when nothing is under way any more that a killed service has told the database to do. */
  untilQuiet(): Promise<void> {
    return this.quiet;
  }

  /** Resolves when another one runs in place of the one that was killed. */
  async replaceAny(random: Random): Promise<void> {
    const index = random.below(this.members.length);
    const burial = this.bury(this.members[index] as Member);
    this.quiet = burial;
    await burial;
    this.members[index] = await this.spawn();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.members.map(({ service }) => service[Symbol.asyncDispose]()));
  }

  /** A backend finishes what it was told to do, whether anybody waits for it or not. */
  private async bury({ service, name }: Member): Promise<void> {
    service.kill("SIGKILL");
    await service.exited;
    const query = `SELECT FROM pg_stat_activity WHERE application_name = '${name}'`;
    while ((await this.server.run(query)).length > 0) await Bun.sleep(5);
  }

  private async spawn(): Promise<Member> {
    const name = `instance-${++this.started}`;
    const url = `${this.env["DATABASE_URL"]}?application_name=${name}`;
    return { service: await spawnService({ ...this.env, DATABASE_URL: url }), name };
  }
}
