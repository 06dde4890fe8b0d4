/** Waiting until something has happened so many times. Only what began after the waiting did is counted. */

export class Countdowns {
  private readonly waiting = new Set<{
    left: number;
    readonly sinceMs: number;
    readonly resolve: () => void;
  }>();

  until(left: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.waiting.add({ left, sinceMs: performance.now(), resolve });
    return promise;
  }

  count(atMs: number): void {
    for (const waiter of this.waiting) {
      if (atMs < waiter.sinceMs) continue;
      waiter.left--;
      if (waiter.left > 0) continue;
      this.waiting.delete(waiter);
      waiter.resolve();
    }
  }
}
