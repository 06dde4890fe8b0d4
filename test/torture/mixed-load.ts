/** All that clients do at once, to a service that comes and goes: what the plants have to be is known throughout. */

import { Clients } from "../support/clients.ts";
import { Contest } from "../support/history.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";

const CLIENTS = 16;
const CONTENDERS = 4;
const BATCH_LENGTH_MAX = 20;
const SEARCH_EVERY_MS = 30;
/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:1";

export class MixedLoad implements AsyncDisposable {
  readonly clients: Clients;
  private readonly contest: Contest;
  private readonly searching: Promise<void>;
  private readonly searchFaults: string[] = [];
  private url = NOWHERE;
  private resumption = Promise.withResolvers<void>();
  private isOver = false;

  constructor(random: Random, nameLengthMax: number) {
    const surroundings = {
      findUrl: () => this.url,
      untilQuiet: () => this.resumption.promise,
      batchLengthMax: BATCH_LENGTH_MAX,
      nameLengthMax,
    };
    this.clients = new Clients(CLIENTS, surroundings, random);
    this.contest = new Contest(CONTENDERS, surroundings, random);
    this.searching = this.search();
  }

  /** Goes on against this service. */
  resume(url: string): void {
    this.url = url;
    this.resumption.resolve();
  }

  /** To be called when the service is gone: what was cut off is not tried again until there is another. */
  pause(): void {
    // Clients that wait since the last time wait on.
    if (this.url === NOWHERE) return;
    this.url = NOWHERE;
    this.resumption = Promise.withResolvers();
  }

  /** Everything in which these rows differ from what was acknowledged, and all that was answered wrongly. */
  compare(rows: readonly StoredPlant[]): string[] {
    return [...this.searchFaults, ...compareBoth(this.clients, this.contest, rows)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isOver = true;
    this.resumption.resolve();
    await Promise.all([this.clients.stop(), this.contest.stop()]);
    await this.searching;
  }

  /** A search has a connection of its own, which is in the way when the service closes the file. */
  private async search(): Promise<void> {
    for (; !this.isOver; await Bun.sleep(SEARCH_EVERY_MS)) {
      if (this.url === NOWHERE) continue;
      try {
        const response = await fetch(`${this.url}/plants?name=7&limit=1`, {
          headers: { authorization: `Bearer ${TEST_TOKEN}` },
        });
        await response.bytes();
        if (response.status !== 200 && response.status !== 503)
          this.searchFaults.push(`a search was answered ${response.status}`);
      } catch {
        // The service is gone.
      }
    }
  }
}

/** The ids of a contest are negative, and those of other clients are not. */
export const compareBoth = (
  clients: Clients,
  contest: Contest,
  rows: readonly StoredPlant[],
): string[] => [
  ...clients.compare(rows.filter(({ id }) => id >= 0n)),
  ...contest.compare(rows.filter(({ id }) => id < 0n)),
];
