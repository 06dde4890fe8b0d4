/** All that clients do at once, to a service that comes and goes: what the plants have to be is known throughout. */

import { compareGardens, Gardeners } from "../support/gardener.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";

const GARDENERS = 16;
const BATCH_LENGTH_MAX = 20;
const SEARCH_EVERY_MS = 30;
/** Nobody listens there. */
const NOWHERE = "http://127.0.0.1:1";

interface Options {
  readonly nameLengthMax: number;
}

export class MixedLoad implements AsyncDisposable {
  private readonly gardeners: Gardeners;
  private readonly searching: Promise<void>;
  private readonly searchFaults: string[] = [];
  private url = NOWHERE;
  private resumption = Promise.withResolvers<void>();
  private isOver = false;

  constructor(random: Random, { nameLengthMax }: Options) {
    const surroundings = {
      findUrl: () => this.url,
      untilQuiet: () => this.resumption.promise,
      batchLengthMax: BATCH_LENGTH_MAX,
      nameLengthMax,
    };
    this.gardeners = new Gardeners(GARDENERS, surroundings, random);
    this.searching = this.search();
  }

  get acknowledged(): number {
    return this.gardeners.all.reduce((sum, { acknowledged }) => sum + acknowledged, 0);
  }

  get unsettled(): number {
    return this.gardeners.unsettled;
  }

  get answerMsMax(): number {
    return this.gardeners.answerMsMax;
  }

  get plants(): number {
    return this.gardeners.all.reduce((sum, { expected }) => sum + expected.size, 0);
  }

  /** Resolves when so many writes that are sent from now on have been acknowledged. */
  untilAcknowledged(count: number): Promise<void> {
    return this.gardeners.untilAcknowledged(count);
  }

  /** Goes on against this service. */
  resume(url: string): void {
    this.url = url;
    this.resumption.resolve();
  }

  /** To be called when the service is gone: what was cut off is not tried again until there is another. */
  pause(): void {
    // Whoever waits since the last time waits on.
    if (this.url === NOWHERE) return;
    this.url = NOWHERE;
    this.resumption = Promise.withResolvers();
  }

  /** Everything in which these rows differ from what was acknowledged, and all that was answered wrongly. */
  compare(rows: readonly StoredPlant[]): string[] {
    return [...this.searchFaults, ...compareGardens(this.gardeners.all, rows)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isOver = true;
    this.resumption.resolve();
    await this.gardeners.stop();
    await this.searching;
  }

  /** A search reads the file by a connection of its own, which is in the way of whoever closes it. */
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
