/** Servers under load as candidates of a table, with the proof that their stores hold what they acknowledged. */

import { type Load, load } from "./load.ts";
import type { Absent, Candidate } from "./measure.ts";
import { type Peer, peers, type RunningPeer } from "./servers/peers.ts";
import type { Role } from "./report/results.ts";
import type { Server } from "./servers/server.ts";
import { CONNECTIONS } from "./settings.ts";
import { countRows } from "./stores.ts";
import { Tally } from "./tally.ts";

interface Loaded {
  readonly name: string;
  readonly role: Role;
  readonly note?: string;
  readonly server: Server;
  readonly load: Load;
  /** Where the rows can be counted. */
  readonly countRows?: () => Promise<number> | number;
}

/** The server stays; its store grows from round to round. */
export function candidate({ server, load: about, countRows: count, ...its }: Loaded): Candidate {
  const tally = new Tally(about.connections ?? CONNECTIONS);
  return {
    ...its,
    durability: server.durability,
    measure: async (seconds) => {
      if (count !== undefined && !tally.hasBegun) tally.begin(await count());
      const sample = await load(server, about, seconds);
      tally.add(sample.created ?? 0);
      return sample;
    },
    verify: async () => {
      if (count !== undefined) tally.verify(await count());
    },
  };
}

export interface PeerServer {
  readonly peer: Peer;
  /** Or why there is none. */
  readonly running: RunningPeer | string;
  /** How many plants it has been given. */
  readonly stored: number;
}

/** All peers, on an empty store or each on as many plants as it can take. They go with the stack. */
export async function startPeers(
  stack: AsyncDisposableStack,
  { isFilled = false } = {},
): Promise<PeerServer[]> {
  const started: PeerServer[] = [];
  for (const peer of peers) {
    const stored = isFilled ? peer.stored : 0;
    try {
      const running = await peer.start(stored);
      stack.defer(running.server.stop);
      started.push({ peer, running, stored });
    } catch (error) {
      started.push({ peer, running: (error as Error).message, stored });
    }
  }
  return started;
}

export function peerCandidate(
  { peer, running, stored }: PeerServer,
  about: Load,
): Candidate | Absent {
  const { name, note } = peer;
  if (typeof running === "string") return { name, role: "peer", notMeasured: running };
  const its = { name, role: "peer", ...(note === undefined ? {} : { note }) } as const;
  if (peer.isFreshEachRound)
    return {
      ...its,
      durability: running.server.durability,
      measure: async (seconds) => {
        const { server } = await peer.start(stored);
        try {
          return await load(server, { ...about, stored }, seconds);
        } finally {
          await server.stop();
        }
      },
    };
  const { server, path } = running;
  const loaded = candidate({
    ...its,
    server,
    load: { ...about, stored },
    ...(path === undefined ? {} : { countRows: () => countRows(path) }),
  });
  return { ...loaded, measure: (seconds) => loaded.measure(seconds * peer.patience) };
}

/** A server, or why there is none: it may not be installed here. */
export async function startOptional(
  stack: AsyncDisposableStack,
  start: () => Promise<Server>,
): Promise<Server | string> {
  try {
    const server = await start();
    stack.defer(server.stop);
    return server;
  } catch (error) {
    return (error as Error).message;
  }
}

export const limitCandidate = (
  name: string,
  server: Server | string,
  about: Load,
): Candidate | Absent =>
  typeof server === "string"
    ? { name, role: "limit", notMeasured: server }
    : candidate({ name, role: "limit", server, load: { isStored: false, ...about } });
