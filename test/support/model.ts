/**
 * What the store must hold, worked out from what its clients were told.
 *
 * `perform` specifies one plant: what each operation answers and leaves behind. A `Ledger` applies it to plants that
 * one client at a time writes to, through answers that never came. history.ts applies it to plants that many clients
 * write to at once.
 */

import { isSamePlant, type StoredPlant, toBody } from "./plants.ts";

/** Undefined if there is no plant. */
export type State = StoredPlant | undefined;

export type Operation =
  | { readonly kind: "create"; readonly plant: StoredPlant }
  | { readonly kind: "read"; readonly id: bigint }
  | { readonly kind: "replace"; readonly plant: StoredPlant; readonly ifMatch?: StoredPlant }
  | { readonly kind: "remove"; readonly id: bigint; readonly ifMatch?: StoredPlant }
  | {
      readonly kind: "patch";
      readonly id: bigint;
      readonly patch: { readonly name?: string; readonly tag?: string | null };
      readonly ifMatch?: StoredPlant;
    }
  /** Lines of a batch with upsert: the second removes a plant, or finds none. */
  | { readonly kind: "upsert"; readonly plant: StoredPlant; readonly ifMatch?: StoredPlant }
  | { readonly kind: "discard"; readonly id: bigint; readonly ifMatch?: StoredPlant }
  /** What a change by filter does to one plant. Without a patch it is removed. */
  | {
      readonly kind: "sweep";
      readonly id: bigint;
      readonly tag: string;
      readonly patch: { readonly name: string } | undefined;
    };

export interface Answer {
  readonly status: number;
  /** The text of the body. Not compared where either side has none, as of refusals. */
  readonly body?: string;
  readonly isReplay?: boolean;
}

export const idOf = (operation: Operation): bigint =>
  "id" in operation ? operation.id : operation.plant.id;

/** What a create and a replacement answer: the plant without its id. */
export const toContent = ({ name, tag }: StoredPlant): string =>
  JSON.stringify({ name, tag: tag ?? undefined });

interface Outcome {
  readonly state: State;
  readonly answer: Answer;
}

export function perform(state: State, operation: Operation): Outcome {
  if (operation.kind === "create") {
    const { plant } = operation;
    if (state !== undefined && !isSamePlant(state, plant))
      return { state, answer: { status: 409 } };
    const isReplay = state !== undefined;
    return { state: plant, answer: { status: 200, body: toContent(plant), isReplay } };
  }
  const done = (after: State, isReplay: boolean): Outcome => ({
    state: after,
    answer: { status: 200, isReplay },
  });
  if (operation.kind === "upsert") {
    const { plant, ifMatch } = operation;
    if (state !== undefined && isSamePlant(state, plant)) return done(state, true);
    const isOther = ifMatch !== undefined && !(state !== undefined && isSamePlant(state, ifMatch));
    return isOther ? { state, answer: { status: 412 } } : done(plant, false);
  }
  if (operation.kind === "sweep") {
    const { tag, patch } = operation;
    if (state?.tag !== tag) return { state, answer: { status: 200 } };
    return { state: patch && { ...state, ...patch }, answer: { status: 200 } };
  }
  if (operation.kind === "discard" && state === undefined) return done(state, true);
  if (state === undefined) return { state, answer: { status: 404 } };
  if (operation.kind === "read") return { state, answer: { status: 200, body: toBody(state) } };
  const { ifMatch } = operation;
  if (ifMatch !== undefined && !isSamePlant(state, ifMatch))
    return { state, answer: { status: 412 } };
  if (operation.kind === "discard") return done(undefined, false);
  if (operation.kind === "patch") {
    const after = { ...state, ...operation.patch };
    return { state: after, answer: { status: 200, body: toContent(after) } };
  }
  return operation.kind === "remove"
    ? { state: undefined, answer: { status: 204 } }
    : { state: operation.plant, answer: { status: 200, body: toContent(operation.plant) } };
}

export const isAnswer = (given: Answer, due: Answer): boolean =>
  given.status === due.status &&
  isSameIfKnown(given.body, due.body) &&
  isSameIfKnown(given.isReplay, due.isReplay);

const isSameIfKnown = <Value>(one: Value | undefined, other: Value | undefined): boolean =>
  one === undefined || other === undefined || one === other;

export class Ledger {
  /** Answers that no possible state explains. */
  readonly faults: string[] = [];
  /** Everything that each plant may be: one state, unless an answer is missing. Others must not be stored. */
  readonly #states = new Map<bigint, readonly State[]>();

  get size(): number {
    return this.#states.size;
  }

  /**
   * Call it before the operation is sent: from then on it may have happened. Call the result with the answer, or with
   * "refused" if the service promised that nothing was stored, or not at all if no answer came.
   */
  begin(operation: Operation): (answer: Answer | "refused") => void {
    const id = idOf(operation);
    const states = this.#states.get(id) ?? [undefined];
    const outcomes = states.map((state) => perform(state, operation));
    this.#set(id, [...states, ...outcomes.map(({ state }) => state)]);
    return (answer) => {
      if (answer === "refused") return this.#set(id, states);
      const possible = outcomes.filter((outcome) => isAnswer(answer, outcome.answer));
      const after = possible.map(({ state }) => state);
      if (after.length > 0) return this.#set(id, after);
      this.faults.push(
        `${id}: ${show(operation)} was answered ${show(answer)} with one of ${show(states)} stored`,
      );
    };
  }

  /** The plant if it is certain, else undefined. */
  find(id: bigint): State {
    const states = this.#states.get(id) ?? [];
    return states.length === 1 ? states[0] : undefined;
  }

  /** Every plant whose state is known. */
  listCertain(): StoredPlant[] {
    const known = this.#states.values().filter((states) => states.length === 1);
    return known.flatMap((states) => states.filter((state) => state !== undefined)).toArray();
  }

  /** All differences between these rows and what the clients were told. */
  compare(rows: Iterable<StoredPlant>): string[] {
    const faults = [...this.faults];
    const stored = new Map<bigint, StoredPlant>();
    for (const row of rows) {
      stored.set(row.id, row);
      if (!this.#states.has(row.id))
        faults.push(`${row.id}: stored, but never acknowledged: ${show(row)}`);
    }
    for (const [id, states] of this.#states) {
      const row = stored.get(id);
      if (states.some((state) => isSameState(state, row))) continue;
      if (row === undefined) faults.push(`${id}: lost after it was acknowledged`);
      else if (states.every((state) => state === undefined))
        faults.push(`${id}: stored although it was removed or refused`);
      else faults.push(`${id}: not as it was acknowledged: ${show(row)}, none of ${show(states)}`);
    }
    return faults;
  }

  #set(id: bigint, states: readonly State[]): void {
    const different = states.filter(
      (state, index) => states.findIndex((other) => isSameState(other, state)) === index,
    );
    this.#states.set(id, different);
  }
}

export const isSameState = (one: State, other: State): boolean =>
  one === undefined || other === undefined ? one === other : isSamePlant(one, other);

const show = (value: unknown): string => {
  const text = Bun.inspect(value, { compact: true });
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
};
