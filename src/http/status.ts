/** How the service is: health, figures, and the client's own token. */

import type { Principal } from "../auth/authenticate.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import { PROMETHEUS_TYPE } from "../observe/reporter.ts";
import { answer, type Exchange } from "./handle.ts";
import { parseSince } from "./query.ts";

/** Any client may ask, and a probe is a commit: the service makes at most one in this time. */
const PROBE_VALID_MS = 1_000;

export class Readiness {
  private readonly store: Pick<Store, "probe">;
  private readonly validMs: number;
  isDraining = false;
  private probedAtMs = Number.NEGATIVE_INFINITY;
  private probe: Promise<void> = Promise.resolve();
  /** By the last probe that has ended; undefined before the first. */
  private outcome: boolean | undefined;

  constructor(store: Pick<Store, "probe">, validMs = PROBE_VALID_MS) {
    this.store = store;
    this.validMs = validMs;
  }

  drain(): void {
    this.isDraining = true;
  }

  /** Resolves if a write was committed and synced within the last second; rejects with the reason. */
  async check(): Promise<void> {
    if (this.isDraining) throw new Refusal("shutting_down");
    if (performance.now() - this.probedAtMs >= this.validMs) {
      this.probedAtMs = performance.now();
      this.probe = this.store.probe();
      this.probe.then(
        () => (this.outcome = true),
        () => (this.outcome = false),
      );
    }
    await this.probe;
  }

  /** As it was when a client last asked. */
  readonly findLast = (): boolean | undefined => (this.isDraining ? false : this.outcome);
}

/** GET /livez */
export const showLive = (): Response => answer(200, '{"status":"alive"}');

/** GET /readyz */
export async function showReady({ service }: Exchange): Promise<Response> {
  await service.readiness.check();
  return answer(200, '{"status":"ready"}');
}

/** GET /activity */
export async function showActivity({ request, service }: Exchange): Promise<Response> {
  const body = await service.reports.readActivity(parseSince(request.url));
  // Unknown figures are null, so a client can tell them from missing ones.
  return answer(
    200,
    JSON.stringify(body, (_key, value: unknown) => value ?? null),
  );
}

/** GET /metrics */
export async function showMetrics({ service }: Exchange): Promise<Response> {
  const body = await service.reports.formatMetrics();
  return answer(200, body, { "content-type": PROMETHEUS_TYPE });
}

/** GET /token */
export function showToken(
  _exchange: Exchange,
  { name, prefix, scopes, expiresAtMs }: Principal,
): Response {
  const expires = expiresAtMs === undefined ? undefined : new Date(expiresAtMs).toISOString();
  return answer(200, JSON.stringify({ name, prefix, scopes, expires }));
}
