/** How much room the store takes: asked for seldom, because the answer may have to come from a server. */

type MeasureBytes = () => Promise<number | undefined>;

const VALID_MS = 10_000;
const WATCHED_MS = 60_000;

export class StoreSize {
  private readonly measureBytes: MeasureBytes;
  private readonly now: () => number;
  private watchedUntilMs = Number.NEGATIVE_INFINITY;
  private measuredAtMs = Number.NEGATIVE_INFINITY;
  private measuring: Promise<void> | undefined;
  private lastBytes: number | undefined;

  constructor(measureBytes: MeasureBytes, now = () => performance.now()) {
    this.measureBytes = measureBytes;
    this.now = now;
  }

  /** As it was last found; undefined where nobody looks, or nobody could tell. */
  get bytes(): number | undefined {
    return this.isWatched ? this.lastBytes : undefined;
  }

  /** Somebody looks, and may go on doing so for the next minute. Resolves when there is something to see. */
  async watch(): Promise<void> {
    this.watchedUntilMs = this.now() + WATCHED_MS;
    await this.refresh();
  }

  /** Where nobody looks, nobody is asked. */
  async refreshIfWatched(): Promise<void> {
    if (this.isWatched) await this.refresh();
  }

  private get isWatched(): boolean {
    return this.now() < this.watchedUntilMs;
  }

  private refresh(): Promise<void> {
    if (this.measuring === undefined && this.now() - this.measuredAtMs < VALID_MS)
      return Promise.resolve();
    this.measuring ??= this.measure().finally(() => {
      this.measuring = undefined;
    });
    return this.measuring;
  }

  private async measure(): Promise<void> {
    this.lastBytes = await this.measureBytes();
    this.measuredAtMs = this.now();
  }
}
