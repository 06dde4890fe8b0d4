/** Clients that create one plant after the other, as fast as they are answered, and never wait when refused. */

import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { Ledger } from "../support/model.ts";
import { toBody } from "../support/plants.ts";
import {
  connectRaw,
  formatRequest,
  type RawConnection,
  readBody,
  type WireAnswer,
} from "../support/wire.ts";

/** What a while of load was like. */
interface Spell {
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
  readonly ledger = new Ledger();
  readonly #url: string;
  #lastId = 0;
  #spell = { acceptedMs: [] as number[], refusedMs: [] as number[] };

  constructor(url: string) {
    this.#url = url;
  }

  /** Adds clients that begin at once, each on a connection of its own. The result ends them, after their last answers. */
  async start(count: number): Promise<() => Promise<void>> {
    const TOGETHER = 200;
    const running: Promise<void>[] = [];
    const group = { isOver: false };
    const run = async (connection: RawConnection): Promise<void> => {
      const nth = this.refusals.push(0) - 1;
      while (!group.isOver && (await this.#create(connection, nth)));
      connection.abort();
    };
    for (let started = 0; started < count; started += TOGETHER) {
      const length = Math.min(TOGETHER, count - started);
      const opened = await Promise.all(Array.from({ length }, () => connectRaw(this.#url)));
      running.push(...opened.map(run));
    }
    return async () => {
      group.isOver = true;
      await Promise.all(running);
    };
  }

  async measure(seconds: number): Promise<Spell> {
    const spell = (this.#spell = { acceptedMs: [], refusedMs: [] });
    const startedAtMs = performance.now();
    await Bun.sleep(seconds * 1000);
    // What comes after it is not of it.
    this.#spell = { acceptedMs: [], refusedMs: [] };
    return { ...spell, seconds: (performance.now() - startedAtMs) / 1000 };
  }

  /** False where the connection has ended. */
  async #create(connection: RawConnection, nth: number): Promise<boolean> {
    const id = ++this.#lastId;
    const tag = id % 3 === 0 ? null : `tag ${id % 7}`;
    const plant = { id: BigInt(id), name: `plant ${id} é`, tag };
    const settle = this.ledger.begin({ kind: "create", plant });
    const isBehind = this.isBehindHang;
    const sentAtMs = performance.now();
    const answer = await connection
      .ask(formatRequest("POST", "/plants", toBody(plant)))
      .catch((error: Error) => void this.faults.push(error.message));
    if (answer === undefined) {
      if (!this.isServiceEnding) this.faults.push(`${id}: the connection was closed`);
      return false;
    }
    const tookMs = performance.now() - sentAtMs;
    this.answerMsMax = Math.max(this.answerMsMax, tookMs);
    if (answer.status === 200) {
      this.acknowledged++;
      this.#spell.acceptedMs.push(tookMs);
      const isReplay = answer.headers.get("idempotent-replayed") === "true";
      settle({ status: 200, body: readBody(answer), isReplay });
      return true;
    }
    this.#spell.refusedMs.push(tookMs);
    this.refusals[nth] = (this.refusals[nth] ?? 0) + 1;
    const reason = findRefusal(answer);
    if (!isDeliberate(reason) && !(this.isServiceEnding && answer.status === 503))
      this.faults.push(`${id}: ${answer.status} ${answer.body}`);
    const isStoreAsked = reason !== "overloaded" && reason !== "store_busy";
    if (!isStoreAsked || (isBehind && this.isBehindHang)) settle("refused");
    // A service that stops refuses at once.
    if (this.isServiceEnding) await Bun.sleep(ENDING_MS);
    return true;
  }
}

/** For each refusal of a service that stops. */
const ENDING_MS = 25;

const names = Object.keys(catalogue) as ErrorName[];

/** What the catalogue calls it; undefined for anything else. A 503 also says when to come again. */
export function findRefusal(answer: WireAnswer): ErrorName | undefined {
  const { status, headers } = answer;
  if (status === 503 && !/^\d+$/.test(headers.get("retry-after") ?? "")) return undefined;
  try {
    const { error, message, ...more } = JSON.parse(readBody(answer)) as Record<string, unknown>;
    if (typeof message !== "string" || message === "" || Object.keys(more).length > 0)
      return undefined;
    const name = names.find((one) => catalogue[one].code === error);
    return name !== undefined && catalogue[name].status === status ? name : undefined;
  } catch {
    return undefined;
  }
}

/** Transient refusals of a running service. */
export const isDeliberate = (reason: ErrorName | undefined): boolean =>
  ["overloaded", "store_busy", "store_unavailable", "store_down"].includes(reason ?? "");

/** Accepted requests a second. */
export const goodputOf = ({ acceptedMs, seconds }: Spell): number => acceptedMs.length / seconds;

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
