/** Is it alive, and can it do its work? Open to all, and showing no data. */

import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import type { Answer, Service } from "./service.ts";

/** Anyone may ask, and each probe is a commit: however many ask, at most one is made in this time. */
const PROBE_VALID_MS = 1_000;

export class Readiness {
  private readonly store: Pick<Store, "probe">;
  private readonly validMs: number;
  private draining = false;
  private probedAtMs = Number.NEGATIVE_INFINITY;
  private probe: Promise<void> = Promise.resolve();

  constructor(store: Pick<Store, "probe">, validMs = PROBE_VALID_MS) {
    this.store = store;
    this.validMs = validMs;
  }

  get isDraining(): boolean {
    return this.draining;
  }

  drain(): void {
    this.draining = true;
  }

  /** Resolves where a write has been committed and synced within the last second; rejects with the reason. */
  async check(): Promise<void> {
    if (this.draining) throw new Refusal("shutting_down");
    if (performance.now() - this.probedAtMs >= this.validMs) {
      this.probedAtMs = performance.now();
      this.probe = this.store.probe();
    }
    await this.probe;
  }
}

/** GET /livez */
export function answerLive(): Answer {
  return { status: 200, body: '{"status":"alive"}' };
}

/** GET /readyz */
export async function answerReady(_request: Request, service: Service): Promise<Answer> {
  await service.readiness.check();
  return { status: 200, body: '{"status":"ready"}' };
}
