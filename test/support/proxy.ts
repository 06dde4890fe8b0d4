/** A proxy in front of a PostgreSQL server that cuts, freezes and holds back at a chosen moment; and a service behind it. */

import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { StoredPlant } from "./plants.ts";
import { HOSTNAME } from "./postgres-files.ts";
import { createTestDatabase, type PostgresServer, sharedPostgres } from "./postgres-server.ts";
import { send, type Sent, startService } from "./service.ts";

type Direction = "requests" | "answers";

/** One proxied connection. */
type Link = ReturnType<typeof join>;

/** A connection on which one direction is held back: a whole statement, or the whole answer to it. */
interface Caught extends Pick<Link, "cut" | "cutClient" | "served"> {
  readonly bytes: () => number;
  /** Delivers what was held back, even where the client is gone meanwhile, and continues. */
  readonly release: () => void;
}

/** In plain text only: a statement cannot be seen in TLS. */
export async function startProxy(targetPort: number) {
  const links = new Set<Link>();
  const traps = new Set<(link: Link, statements: readonly string[]) => void>();
  let isFrozen = false;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (proxy.isRefusing) return void client.on("error", () => undefined).resetAndDestroy();
    const target = connect({ port: targetPort, host: HOSTNAME, allowHalfOpen: true });
    const link = join(client, target, {
      delayMs: () => proxy.delayMs,
      onStatements: (texts) => traps.forEach((spring) => spring(link, texts)),
      onEnd: () => links.delete(link),
    });
    links.add(link);
    if (isFrozen) for (const flow of link.flows) flow.hold();
  });
  await new Promise<void>((resolve) => server.listen(0, HOSTNAME, resolve));
  const trap = (direction: Direction, text: string): Promise<Caught> =>
    new Promise((resolve) => {
      const spring = ({ cut, cutClient, served, ...flows }: Link, texts: readonly string[]) => {
        if (!texts.some((statement) => statement.includes(text))) return;
        traps.delete(spring);
        const { hold, untilWhole, heldBytes, release } = flows[direction];
        hold();
        void untilWhole(direction === "requests" ? SYNC : READY).then(() =>
          resolve({ bytes: heldBytes, release, cut, cutClient, served }),
        );
      };
      traps.add(spring);
    });
  const proxy = {
    port: (server.address() as AddressInfo).port,
    /** Whether new connections are turned away. */
    isRefusing: false,
    /** For everything, in both directions. */
    delayMs: 0,
    /** Those through which something can still come. */
    connections: () => links.size,
    /** Cuts all connections at once, like a machine on the way that is switched off and on. */
    cut: () => links.forEach((link) => link.cut()),
    /** From now on nothing comes and nothing is closed, in neither direction; or everything that was held back. */
    freeze: (isSo: boolean): void => {
      isFrozen = isSo;
      for (const flow of [...links].flatMap(({ flows }) => flows))
        if (isSo) flow.hold();
        else flow.release();
    },
    /** The next connection by which a statement with this text in it comes: it does not get through. */
    holdStatement: (text: string) => trap("requests", text),
    /** The next connection by which such a statement comes: it is done, and the answer to it is not heard. */
    holdAnswer: (text: string) => trap("answers", text),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      proxy.isRefusing = true;
      proxy.cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}

/** Sync: "S" and the length of nothing. The server commits nothing before it comes. */
const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

/** ReadyForQuery: "Z", a length of five, and "I", because no transaction is open. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

interface LinkOptions {
  readonly delayMs: () => number;
  readonly onStatements: (texts: readonly string[]) => void;
  readonly onEnd: () => void;
}

function join(client: Socket, server: Socket, { delayMs, onStatements, onEnd }: LinkOptions) {
  const readStatements = createStatementReader();
  // Where something is held back, one side does not yet know that it is over.
  const onOver = (): void => {
    if (requests.isOver() && answers.isOver()) onEnd();
  };
  client.on("data", (bytes: Buffer) => onStatements(readStatements(bytes)));
  const requests = startFlow(client, server, delayMs, onOver);
  const answers = startFlow(server, client, delayMs, onOver);
  return {
    requests,
    answers,
    flows: [requests, answers],
    /** The end of this connection. What was held back is lost. */
    cut: (): void => {
      onEnd();
      client.resetAndDestroy();
      server.resetAndDestroy();
    },
    /** The client loses its connection, and the server does not: what was held back can still be delivered. */
    cutClient: () => client.resetAndDestroy(),
    /** Resolves when the server has done what came by this connection, and has closed it. */
    served: new Promise<void>((resolve) => server.once("close", () => resolve())),
  };
}

/** One direction of a connection. */
function startFlow(source: Socket, target: Socket, delayMs: () => number, onOver: () => void) {
  /** Undefined where everything passes. */
  let held: Buffer[] | undefined;
  let hasEnded = false;
  let waiting: (() => void)[] = [];
  const pass = (bytes: Buffer): void => {
    if (held === undefined) target.write(bytes);
    else held.push(bytes);
    for (const wake of waiting.splice(0)) wake();
  };
  const end = (): void => {
    hasEnded = true;
    if (held !== undefined) return;
    target.end();
    onOver();
  };
  source.on("data", (bytes: Buffer) => {
    if (delayMs() === 0) pass(bytes);
    else setTimeout(pass, delayMs(), bytes);
  });
  // A socket that breaks also closes.
  source
    .on("error", () => undefined)
    .on("end", end)
    .on("close", end);
  const readHeld = (): Buffer => Buffer.concat(held ?? []);
  return {
    isOver: () => hasEnded && held === undefined,
    hold: () => void (held ??= []),
    heldBytes: () => readHeld().length,
    untilWhole: async (ending: Buffer): Promise<void> => {
      while (!readHeld().subarray(-ending.length).equals(ending))
        await new Promise<void>((resolve) => waiting.push(resolve));
    },
    release: (): void => {
      const late = readHeld();
      held = undefined;
      target.write(late);
      if (hasEnded) end();
    },
  };
}

/** The texts of the statements that a connection's bytes execute. A message's first bytes come together. */
function createStatementReader(): (bytes: Buffer) => string[] {
  /** By their names; the one without a name is sent each time. */
  const prepared = new Map<string, string>();
  /** Bytes of the last message that are still to come. */
  let rest = 0;
  return (bytes) => {
    const executed: string[] = [];
    let at = rest;
    // The first message of a connection has a length where the others have their type.
    while (at + 5 <= bytes.length && bytes[at] !== 0) {
      const end = at + 1 + bytes.readInt32BE(at + 1);
      const [one = "", other = ""] = bytes.toString("latin1", at + 5, end).split("\0", 2);
      const type = String.fromCharCode(bytes[at] as number);
      if (type === "P") prepared.set(one, other);
      if (type === "B") executed.push(prepared.get(other) ?? "");
      if (type === "Q") executed.push(one);
      at = end;
    }
    rest = Math.max(0, bytes[at] === 0 ? 0 : at - bytes.length);
    return executed;
  };
}

export type DisturbedService = Awaited<ReturnType<typeof startDisturbed>>;

/** On a server of the test's own, or on the shared one. */
export async function startDisturbed(
  given: {
    server?: PostgresServer;
    settings?: Readonly<Record<string, string>>;
    /** Parameters of the URL. */
    parameters?: string;
  } = {},
) {
  await using started = new AsyncDisposableStack();
  const postgres = given.server ?? (await sharedPostgres());
  const { name, run } = started.use(await createTestDatabase(postgres));
  const proxy = started.use(await startProxy(postgres.port));
  const service = started.use(
    await startService({
      DATABASE_URL: `postgres://postgres@127.0.0.1:${proxy.port}/${name}?sslmode=disable${given.parameters ?? ""}`,
      ...given.settings,
    }),
  );
  const stack = started.move();
  return {
    service,
    proxy,
    database: name,
    send: (method: string, path: string, sent?: Sent) => send(service, method, path, sent),
    /** By a way that is not disturbed. */
    run,
    readPlants: () => run<StoredPlant>("SELECT id, name, tag FROM plants ORDER BY id"),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
