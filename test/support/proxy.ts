/** A proxy in front of a PostgreSQL server that cuts, freezes and holds back at a chosen moment; and a service behind it. */

import { connect, createServer, type Server, type Socket } from "node:net";
import type { StoredPlant } from "./plants.ts";
import { HOSTNAME } from "./postgres-files.ts";
import { createTestDatabase, type PostgresServer, sharedPostgres } from "./postgres-server.ts";
import { send, type Sent, startService, type TestService } from "./service.ts";

type Direction = "requests" | "answers";

/** A connection on which one direction is held back, from the moment that it was caught. */
interface Caught {
  /** Resolves when what is held back is all of it: a statement, or the whole answer to it. */
  readonly whole: Promise<void>;
  readonly bytes: () => number;
  /** Delivers what was held back, even where the client is gone meanwhile, and goes on. */
  readonly release: () => void;
  /** The client loses its connection, and the server does not: what was held back can still be delivered. */
  readonly cutClient: () => void;
  /** Resolves when the server has done what came by this connection, and has closed it. */
  readonly served: Promise<void>;
  /** The end of this connection. What was held back is lost. */
  readonly cut: () => void;
}

interface Trap {
  readonly direction: Direction;
  readonly statement: string;
  readonly spring: (caught: Caught) => void;
}

/** In plain text only: a statement cannot be seen in TLS. */
export async function startProxy(targetPort: number): Promise<Proxy> {
  const proxy = new Proxy(targetPort);
  await proxy.listen();
  return proxy;
}

export class Proxy implements AsyncDisposable {
  readonly #targetPort: number;
  readonly #server: Server;
  readonly #links = new Set<Link>();
  readonly #traps = new Set<Trap>();
  #isRefusing = false;
  #isFrozen = false;
  #delayMs = 0;

  constructor(targetPort: number) {
    this.#targetPort = targetPort;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) =>
      this.#accept(client),
    );
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  listen(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(0, HOSTNAME, resolve));
  }

  /** Those through which something can still come. */
  connections(): number {
    return this.#links.size;
  }

  /** Of all connections at once, as by a machine on the way that was switched off and on. */
  cut(): void {
    for (const link of this.#links) link.cut();
  }

  /** Whether new connections are turned away. */
  refuse(isRefusing: boolean): void {
    this.#isRefusing = isRefusing;
  }

  /** From now on nothing comes and nothing is closed, in neither direction; or everything that was held back. */
  freeze(isFrozen: boolean): void {
    this.#isFrozen = isFrozen;
    for (const link of this.#links)
      for (const direction of ["requests", "answers"] as const)
        if (isFrozen) link.hold(direction);
        else link.release(direction);
  }

  /** For everything, in both directions. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** The next connection by which a statement with this text in it comes: it does not get through. */
  holdStatement(text: string): Promise<Caught> {
    return this.#trap("requests", text);
  }

  /** The next connection by which such a statement comes: it is done, and the answer to it is not heard. */
  holdAnswer(text: string): Promise<Caught> {
    return this.#trap("answers", text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isRefusing = true;
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #trap(direction: Direction, statement: string): Promise<Caught> {
    const { promise, resolve } = Promise.withResolvers<Caught>();
    this.#traps.add({ direction, statement, spring: resolve });
    return promise;
  }

  #accept(client: Socket): void {
    if (this.#isRefusing) {
      client.on("error", () => undefined);
      client.resetAndDestroy();
      return;
    }
    const server = connect({ port: this.#targetPort, host: HOSTNAME, allowHalfOpen: true });
    const link = new Link(client, server, {
      delayMs: () => this.#delayMs,
      onRequest: (bytes) => this.#look(link, bytes),
      onEnd: () => this.#links.delete(link),
    });
    this.#links.add(link);
    if (this.#isFrozen)
      for (const direction of ["requests", "answers"] as const) link.hold(direction);
  }

  #look(link: Link, bytes: Buffer): void {
    const statements = link.readStatements(bytes);
    for (const trap of this.#traps) {
      if (!statements.some((text) => text.includes(trap.statement))) continue;
      this.#traps.delete(trap);
      link.hold(trap.direction);
      trap.spring({
        whole: link.whole(trap.direction),
        bytes: () => link.heldBytes(trap.direction),
        release: () => link.release(trap.direction),
        cutClient: () => link.cutClient(),
        served: link.served,
        cut: () => link.cut(),
      });
    }
  }
}

interface LinkOptions {
  readonly delayMs: () => number;
  readonly onRequest: (bytes: Buffer) => void;
  readonly onEnd: () => void;
}

/** What is held back of one direction; undefined where it passes. */
type Held = Record<Direction, Buffer[] | undefined>;

class Link {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #options: LinkOptions;
  readonly #held: Held = { requests: undefined, answers: undefined };
  readonly #ended = new Set<Direction>();
  readonly #waiting: (() => void)[] = [];
  /** By their names; the one without a name is sent each time. */
  readonly #prepared = new Map<string, string>();
  /** Bytes of the last message that are still to come. */
  #rest = 0;
  readonly served: Promise<void>;

  constructor(client: Socket, server: Socket, options: LinkOptions) {
    this.#client = client;
    this.#server = server;
    this.#options = options;
    this.served = new Promise((resolve) => server.once("close", () => resolve()));
    this.#join("requests", client);
    this.#join("answers", server);
  }

  /** The texts of the statements that these bytes execute. A message's first bytes come together. */
  readStatements(bytes: Buffer): string[] {
    const executed: string[] = [];
    let at = this.#rest;
    // The first message of a connection has a length where the others have their type.
    while (at + 5 <= bytes.length && bytes[at] !== 0) {
      const end = at + 1 + bytes.readInt32BE(at + 1);
      const [one = "", other = ""] = bytes.toString("latin1", at + 5, end).split("\0", 2);
      const type = String.fromCharCode(bytes[at] as number);
      if (type === "P") this.#prepared.set(one, other);
      if (type === "B") executed.push(this.#prepared.get(other) ?? "");
      if (type === "Q") executed.push(one);
      at = end;
    }
    this.#rest = Math.max(0, bytes[at] === 0 ? 0 : at - bytes.length);
    return executed;
  }

  hold(direction: Direction): void {
    this.#held[direction] ??= [];
  }

  heldBytes(direction: Direction): number {
    return Buffer.concat(this.#held[direction] ?? []).length;
  }

  async whole(direction: Direction): Promise<void> {
    const isWhole = direction === "requests" ? endsInSync : endsInReady;
    while (!isWhole(Buffer.concat(this.#held[direction] ?? [])))
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  release(direction: Direction): void {
    const held = this.#held[direction] ?? [];
    this.#held[direction] = undefined;
    for (const bytes of held) this.#targetOf(direction).write(bytes);
    if (this.#ended.has(direction)) this.#targetOf(direction).end();
    this.#endWhereOver();
  }

  cutClient(): void {
    this.#client.resetAndDestroy();
  }

  cut(): void {
    this.#options.onEnd();
    this.#client.resetAndDestroy();
    this.#server.resetAndDestroy();
  }

  #targetOf(direction: Direction): Socket {
    return direction === "requests" ? this.#server : this.#client;
  }

  #join(direction: Direction, source: Socket): void {
    source.on("data", (bytes: Buffer) => {
      if (direction === "requests") this.#options.onRequest(bytes);
      const delayMs = this.#options.delayMs();
      if (delayMs === 0) this.#pass(direction, bytes);
      else setTimeout(() => this.#pass(direction, bytes), delayMs);
    });
    // A socket that breaks also closes.
    source.on("error", () => undefined);
    source.on("close", () => {
      this.#ended.add(direction);
      if (this.#held[direction] === undefined) this.#targetOf(direction).end();
      this.#endWhereOver();
    });
    source.on("end", () => {
      this.#ended.add(direction);
      if (this.#held[direction] === undefined) this.#targetOf(direction).end();
    });
  }

  /** Where something is held back, one side does not yet know that it is over. */
  #endWhereOver(): void {
    const { requests, answers } = this.#held;
    const isHeld = requests !== undefined || answers !== undefined;
    if (this.#ended.size === 2 && !isHeld) this.#options.onEnd();
  }

  #pass(direction: Direction, bytes: Buffer): void {
    const held = this.#held[direction];
    if (held === undefined) this.#targetOf(direction).write(bytes);
    else held.push(bytes);
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** Sync: "S" and the length of nothing. The server commits nothing before it comes. */
const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);
const endsInSync = (bytes: Buffer): boolean => bytes.subarray(-SYNC.length).equals(SYNC);

/** ReadyForQuery: "Z", a length of five, and "I", because no transaction is open. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);
const endsInReady = (bytes: Buffer): boolean => bytes.subarray(-READY.length).equals(READY);

export interface DisturbedService extends AsyncDisposable {
  readonly service: TestService;
  readonly proxy: Proxy;
  readonly database: string;
  readonly send: (method: string, path: string, sent?: Sent) => Promise<Response>;
  /** By a way that is not disturbed. */
  readonly run: (statement: string) => Promise<Record<string, unknown>[]>;
  readonly readPlants: () => Promise<StoredPlant[]>;
  readonly countConnections: () => Promise<number>;
  /** Resolves when the service has closed all its connections to the server. */
  readonly stop: () => Promise<void>;
}

export interface DisturbedOptions {
  /** Else the one that the tests share. */
  readonly server?: PostgresServer;
  readonly settings?: Readonly<Record<string, string>>;
}

export async function startDisturbed({
  server,
  settings,
}: DisturbedOptions = {}): Promise<DisturbedService> {
  await using started = new AsyncDisposableStack();
  const postgres = server ?? (await sharedPostgres());
  const { name, run } = started.use(await createTestDatabase(postgres));
  const proxy = started.use(await startProxy(postgres.port));
  const service = await startService({
    DATABASE_URL: `postgres://postgres@127.0.0.1:${proxy.port}/${name}?sslmode=disable`,
    ...settings,
  });
  let stopping: PromiseLike<void> | undefined;
  const stop = async (): Promise<void> => {
    await (stopping ??= service[Symbol.asyncDispose]());
  };
  started.defer(stop);
  const stack = started.move();
  return {
    service,
    proxy,
    database: name,
    send: (method, path, sent) => send(service, method, path, sent),
    run,
    readPlants: () => run<StoredPlant>("SELECT id, name, tag FROM plants ORDER BY id"),
    countConnections: async () => {
      const [row] = await run(
        "SELECT count(*) AS count FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'plantstore'",
      );
      return Number(row?.["count"]);
    },
    stop,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
