/** All that clients do at once, to a service that comes and goes: what the plants have to be is known throughout. */

import { Clients, type Surroundings } from "../support/clients.ts";
import { Contest } from "../support/history.ts";
import type { StoredPlant } from "../support/plants.ts";
import { fork, type Random } from "../support/random.ts";
import { within } from "./scenario.ts";
import { ask } from "./service.ts";

/** For the load to flow again after any mishap. Far more than an election takes: only against a hang. */
export const FLOW_MS_MAX = 180_000;

/** Clients with plants of their own, and some that contend for others. */
export class Load implements AsyncDisposable {
  readonly clients: Clients;
  readonly contest: Contest;

  constructor(clients: number, contenders: number, surroundings: Surroundings, random: Random) {
    this.clients = new Clients(clients, surroundings, fork(random));
    this.contest = new Contest(contenders, surroundings, fork(random));
  }

  /** Waits for this many more acknowledged writes. Resolves to the faults: none, or a timeout. */
  async flow(writes: number): Promise<string[]> {
    const ms = await within(FLOW_MS_MAX, this.clients.untilAcknowledged(writes));
    return ms === undefined ? [`the load does not flow ${FLOW_MS_MAX} ms after that`] : [];
  }

  /** Everything in which these rows differ from what was acknowledged, and all that was answered wrongly. */
  compare(rows: readonly StoredPlant[]): string[] {
    // The ids of a contest are negative, and those of other clients are not.
    return [
      ...this.clients.compare(rows.filter(({ id }) => id >= 0n)),
      ...this.contest.compare(rows.filter(({ id }) => id < 0n)),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.clients.stop(), this.contest.stop()]);
  }
}

const CLIENTS = 16;
const CONTENDERS = 4;
const BATCH_LENGTH_MAX = 20;
const SEARCH_EVERY_MS = 30;
/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:1";

export type MixedLoad = ReturnType<typeof startMixedLoad>;

export function startMixedLoad(random: Random, nameLengthMax: number) {
  let url = NOWHERE;
  let resumption = Promise.withResolvers<void>();
  let isOver = false;
  const faults: string[] = [];
  const surroundings = {
    findUrl: () => url,
    untilQuiet: () => resumption.promise,
    batchLengthMax: BATCH_LENGTH_MAX,
    nameLengthMax,
  };
  const load = new Load(CLIENTS, CONTENDERS, surroundings, random);
  /** A search has a connection of its own, which is in the way when the service closes the file. */
  const search = async (): Promise<void> => {
    for (;;) {
      await Bun.sleep(SEARCH_EVERY_MS);
      if (isOver) return;
      if (url === NOWHERE) continue;
      const { status } = await ask(`${url}/plants?name=7&limit=1`);
      if (![0, 200, 503].includes(status)) faults.push(`a search was answered ${status}`);
    }
  };
  const searching = search();
  return {
    clients: load.clients,
    /** Sends to this service from now on. */
    resume(to: string): void {
      url = to;
      resumption.resolve();
    },
    /** To be called when the service is gone: what was cut off is not tried again until there is another. */
    pause(): void {
      // Clients that wait since the last time wait on.
      if (url === NOWHERE) return;
      url = NOWHERE;
      resumption = Promise.withResolvers();
    },
    compare: (rows: readonly StoredPlant[]): string[] => [...faults, ...load.compare(rows)],
    async [Symbol.asyncDispose](): Promise<void> {
      isOver = true;
      resumption.resolve();
      await load[Symbol.asyncDispose]();
      await searching;
    },
  };
}
