/** Clients that create one plant after the other, as fast as they are answered, and never wait when refused. */

import { catalogue } from "../../src/domain/errors.ts";
import type { Ledger } from "../support/model.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import {
  connectRaw,
  formatRequest,
  type RawConnection,
  readBody,
  type WireAnswer,
} from "../support/wire.ts";

/** New plants, with ids that ascend from here. */
export function* makePlantsFrom(firstId: number): Generator<StoredPlant, never> {
  for (let id = firstId; ; id++)
    yield { id: BigInt(id), name: `plant ${id} é`, tag: id % 3 === 0 ? null : `tag ${id % 7}` };
}

/** What a while of load was like. */
export interface Spell {
  readonly seconds: number;
  readonly acceptedMs: number[];
  readonly refusedMs: number[];
}

export class Creators {
  /** Whatever was answered but 200 and a proper 503. */
  readonly faults: string[] = [];
  acknowledged = 0;
  answerMsMax = 0;
  /** Of each client. */
  readonly refusals: number[] = [];
  /** What is sent and refused while this is so is in no commit: one that hangs had begun before. */
  isBehindHang = false;
  /** From now on an answer may fail to come. */
  isServiceEnding = false;
  readonly #url: string;
  readonly #ledger: Ledger;
  readonly #plants: Iterator<StoredPlant>;
  readonly #connections: RawConnection[] = [];
  #running: Promise<void>[] = [];
  #isOver = false;
  #acceptedMs: number[] = [];
  #refusedMs: number[] = [];

  constructor(url: string, ledger: Ledger, plants: Iterator<StoredPlant>) {
    this.#url = url;
    this.#ledger = ledger;
    this.#plants = plants;
  }

  /** Adds clients that begin at once, each on a connection of its own. */
  async start(count: number): Promise<void> {
    const TOGETHER = 200;
    for (let started = 0; started < count; started += TOGETHER) {
      const length = Math.min(TOGETHER, count - started);
      const opened = await Promise.all(Array.from({ length }, () => connectRaw(this.#url)));
      this.#connections.push(...opened);
      this.#running.push(
        ...opened.map((connection) => this.#run(connection, this.refusals.push(0) - 1)),
      );
    }
  }

  async measure(seconds: number): Promise<Spell> {
    [this.#acceptedMs, this.#refusedMs] = [[], []];
    const startedAtMs = performance.now();
    await Bun.sleep(seconds * 1000);
    const spell = { acceptedMs: this.#acceptedMs, refusedMs: this.#refusedMs };
    // What comes after it is not of it.
    [this.#acceptedMs, this.#refusedMs] = [[], []];
    return { ...spell, seconds: (performance.now() - startedAtMs) / 1000 };
  }

  /** Resolves when every client has its last answer, and its connection is closed. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#running);
    for (const connection of this.#connections) connection.abort();
  }

  async #run(connection: RawConnection, nth: number): Promise<void> {
    while (!this.#isOver) {
      const plant = this.#plants.next().value as StoredPlant;
      const settle = this.#ledger.begin({ kind: "create", plant });
      const isBehind = this.isBehindHang;
      const sentAtMs = performance.now();
      const answer = await connection
        .ask(formatRequest("POST", "/plants", toBody(plant)))
        .catch((error: Error) => void this.faults.push(error.message));
      if (answer === undefined) {
        if (!this.isServiceEnding) this.faults.push(`${plant.id}: the connection was closed`);
        return;
      }
      const tookMs = performance.now() - sentAtMs;
      this.answerMsMax = Math.max(this.answerMsMax, tookMs);
      if (answer.status === 200) {
        this.acknowledged++;
        this.#acceptedMs.push(tookMs);
        const isReplay = answer.headers.get("idempotent-replayed") === "true";
        settle({ status: 200, body: readBody(answer), isReplay });
        continue;
      }
      this.#refusedMs.push(tookMs);
      this.refusals[nth] = (this.refusals[nth] ?? 0) + 1;
      const reason = findDeliberateRefusal(answer);
      if (reason === undefined && !(this.isServiceEnding && answer.status === 503))
        this.faults.push(`${plant.id}: ${answer.status} ${answer.body}`);
      const isStoreAsked = reason === undefined || reason === "store_unavailable";
      if (!isStoreAsked || (isBehind && this.isBehindHang)) settle("refused");
      // A service that stops refuses at once.
      if (this.isServiceEnding) await Bun.sleep(ENDING_MS);
    }
  }
}

/** For each refusal of a service that stops. */
const ENDING_MS = 25;

const deliberate = (["overloaded", "store_busy", "store_unavailable"] as const).map(
  (reason) => [reason, catalogue[reason]] as const,
);

/** What the catalogue calls a 503 that says when to come again; undefined for anything else. */
export function findDeliberateRefusal(
  answer: WireAnswer,
): (typeof deliberate)[number][0] | undefined {
  if (answer.status !== 503 || !/^\d+$/.test(answer.headers.get("retry-after") ?? ""))
    return undefined;
  try {
    const { error, message } = JSON.parse(readBody(answer)) as Record<string, unknown>;
    if (typeof message !== "string") return undefined;
    return deliberate.find(([, { code }]) => code === error)?.[0];
  } catch {
    return undefined;
  }
}

/** Accepted requests a second. */
export const goodputOf = ({ acceptedMs, seconds }: Spell): number => acceptedMs.length / seconds;

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
