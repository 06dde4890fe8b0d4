/** Clients that create one plant after the other, as fast as they are answered, and never wait when refused. */

import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { Ledger } from "../support/model.ts";
import { toBody } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { until } from "../support/until.ts";
import {
  connectRaw,
  formatRequest,
  type RawConnection,
  readBody,
  type WireAnswer,
} from "../support/wire.ts";
import { endsAfter } from "./scenario.ts";
import { startTorturedService } from "./service.ts";

const NAME_LENGTH_MAX = 100;

/** What a while of load was like. */
interface Spell {
  readonly acceptedMs: number[];
  readonly refusedMs: number[];
  /** Those of them that the queue or the memory had no room for. */
  overloaded: number;
}

const newSpell = (): Spell => ({ acceptedMs: [], refusedMs: [], overloaded: 0 });

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
  readonly #random: Random;
  #lastId = 0;
  #spell = newSpell();

  /** The plants that are sent depend on `random` alone. */
  constructor(url: string, random: Random) {
    this.#url = url;
    this.#random = random;
  }

  /** Adds clients that begin at once, each on a connection of its own. The result ends them, after their last answers. */
  async start(count: number, nameLengthMax = NAME_LENGTH_MAX): Promise<() => Promise<void>> {
    const TOGETHER = 200;
    const running: Promise<void>[] = [];
    const group = { isOver: false };
    const run = async (connection: RawConnection): Promise<void> => {
      const nth = this.refusals.push(0) - 1;
      while (!group.isOver && (await this.#create(connection, nth, nameLengthMax)));
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

  /** For this time and, on a slow machine, until this many answers have come. */
  async measure(seconds: number, answers: number): Promise<Spell> {
    const spell = (this.#spell = newSpell());
    const isOver = endsAfter(seconds);
    const count = (): number => spell.acceptedMs.length + spell.refusedMs.length;
    await until(`${answers} answers`, () => isOver() && count() >= answers);
    // What comes after it is not of it.
    this.#spell = newSpell();
    return spell;
  }

  /** False where the connection has ended. */
  async #create(connection: RawConnection, nth: number, nameLengthMax: number): Promise<boolean> {
    const id = ++this.#lastId;
    const tag = id % 3 === 0 ? null : `tag ${id % 7}`;
    const name = `plant ${id} ${"é".repeat(this.#random.below(nameLengthMax))}`;
    const plant = { id: BigInt(id), name, tag };
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
    if (reason === "overloaded") this.#spell.overloaded++;
    if (!isDeliberate(reason) && !(this.isServiceEnding && answer.status === 503))
      this.faults.push(`${id}: ${answer.status} ${answer.body}`);
    const isStoreAsked = reason !== "overloaded" && reason !== "store_busy";
    if (!isStoreAsked || (isBehind && this.isBehindHang)) settle("refused");
    // A service that stops refuses at once.
    if (this.isServiceEnding) await Bun.sleep(ENDING_MS);
    return true;
  }
}

/** How long the machine and this process make anyone wait: the only client of a service without any trouble. */
export async function startControl(random: Random) {
  await using opened = new AsyncDisposableStack();
  const service = opened.use(await startTorturedService());
  const creators = new Creators(service.url, random);
  opened.defer(await creators.start(1));
  const control = opened.move();
  return {
    /** So far. */
    findMsMax: () => creators.answerMsMax,
    [Symbol.asyncDispose]: () => control.disposeAsync(),
  };
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

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
