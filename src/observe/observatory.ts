/** What the service says of itself, whoever of its threads is asked. */

import packageJson from "../../package.json";
import { Activity, type Sample } from "./activity.ts";
import { Metrics } from "./metrics.ts";
import { formatMetrics } from "./prometheus.ts";
import { StoreSize } from "./store-size.ts";

/** What the answers to GET /activity and GET /metrics are made of. */
export interface Observations {
  /** What happened after that time, a sample every two seconds, oldest first. */
  readonly listSamples: (sinceMs: number) => Promise<readonly Sample[]>;
  /** All counters, as Prometheus reads them. */
  readonly formatMetrics: () => Promise<string>;
}

interface ObservedStore {
  readonly description: { readonly engine: string };
  readonly writesWaiting: number;
  readonly measureBytes: () => Promise<number | undefined>;
}

export class Observatory implements Observations {
  private readonly blocks: readonly Metrics[];
  private readonly store: ObservedStore;
  private readonly size: StoreSize;
  private readonly activity: Activity;

  /** A block for each thread that counts. */
  constructor(blocks: readonly Metrics[], store: ObservedStore) {
    this.blocks = blocks;
    this.store = store;
    this.size = new StoreSize(() => store.measureBytes());
    this.activity = new Activity({
      total: () => Metrics.addUp(this.blocks),
      size: this.size,
      countWaiting: () => store.writesWaiting,
    });
  }

  start(): void {
    this.activity.start();
  }

  stop(): void {
    this.activity.stop();
  }

  readonly listSamples = async (sinceMs: number): Promise<readonly Sample[]> => {
    // For the next sample: this answer does not wait for a server.
    void this.size.watch();
    return this.activity.since(sinceMs);
  };

  readonly formatMetrics = async (): Promise<string> => {
    await this.size.watch();
    return formatMetrics({
      totals: Metrics.addUp(this.blocks),
      waiting: this.store.writesWaiting,
      storeBytes: this.size.bytes,
      version: packageJson.version,
      engine: this.store.description.engine,
    });
  };
}
