/**
 * Plants to which many clients write at once: every answer has to be explained by some order of the operations in
 * which each happens between the moment it was sent and the moment it was answered (linearizability).
 */

import { Crew, isForNow, sendOperation, type Surroundings, toAnswers, toLine } from "./clients.ts";
import {
  type Answer,
  idOf,
  isAnswer,
  isSameState,
  type Operation,
  perform,
  type State,
} from "./model.ts";
import type { StoredPlant } from "./plants.ts";
import type { Random } from "./random.ts";
import { send } from "./service.ts";

export interface Event {
  readonly operation: Operation;
  readonly sentAt: number;
  /** Undefined if none came: then it may happen at any time after it was sent, or never. */
  readonly answer?: Answer;
  readonly answeredAt?: number;
}

/** What may have happened so far. */
interface Course {
  readonly state: State;
  /** Events that have happened, and are answered later. */
  readonly done: ReadonlySet<Event>;
  /** How many events of each kind without an answer have happened. */
  readonly lost: readonly number[];
}

/** Operations without an answer that have the same effect: which of them happens makes no difference. */
interface LostKind {
  readonly operation: Operation;
  readonly sentAt: number[];
}

/** Events of one plant, which is absent at the beginning. */
export function isLinearizable(events: readonly Event[]): boolean {
  const lostKinds = groupLost(events);
  const moments = events
    .filter(({ answer }) => answer !== undefined)
    .flatMap((event) => [
      { at: event.sentAt, event, isAnswer: false },
      { at: event.answeredAt ?? Infinity, event, isAnswer: true },
    ])
    .toSorted((one, other) => one.at - other.at);
  const open = new Set<Event>();
  let courses: readonly Course[] = [
    { state: undefined, done: new Set(), lost: lostKinds.map(() => 0) },
  ];
  for (const { at, event, isAnswer: isEnd } of moments) {
    if (!isEnd) {
      open.add(event);
      continue;
    }
    const sent = lostKinds.map((kind) => kind.sentAt.filter((sentAt) => sentAt < at).length);
    courses = follow(courses, event, open, lostKinds, sent);
    open.delete(event);
    if (courses.length === 0) return false;
  }
  return true;
}

/**
 * Names that only lost operations write, and nobody was told of or asked for, explain the same answers: they count as
 * one name. Without this the search takes time exponential in the number of lost operations.
 */
const UNOBSERVED = "a name that nobody observed";

function groupLost(events: readonly Event[]): LostKind[] {
  const observed = new Set(events.flatMap(listObserved));
  const anonymous = (name: string): string => (observed.has(name) ? name : UNOBSERVED);
  const kinds = new Map<string, LostKind>();
  for (const { operation, sentAt, answer } of events) {
    if (answer !== undefined || operation.kind === "read") continue;
    const renamed = rename(operation, anonymous);
    const key = Bun.inspect(renamed);
    const kind = kinds.get(key) ?? { operation: renamed, sentAt: [] };
    kind.sentAt.push(sentAt);
    kinds.set(key, kind);
  }
  return [...kinds.values()];
}

/** The names that the answer to an event depends on; of one without an answer those that its effect depends on. */
function listObserved({ operation, answer }: Event): string[] {
  const condition = "ifMatch" in operation ? operation.ifMatch : undefined;
  const names = condition === undefined ? [] : [condition.name];
  if (answer === undefined) return names;
  if ("plant" in operation) names.push(operation.plant.name);
  if ("patch" in operation && operation.patch?.name !== undefined) names.push(operation.patch.name);
  if (operation.kind === "read" && answer.body !== undefined)
    names.push((JSON.parse(answer.body) as { name: string }).name);
  return names;
}

function rename(operation: Operation, toName: (name: string) => string): Operation {
  if ("plant" in operation) {
    const { plant } = operation;
    return { ...operation, plant: { ...plant, name: toName(plant.name) } };
  }
  if (!("patch" in operation) || operation.patch?.name === undefined) return operation;
  const patch = { ...operation.patch, name: toName(operation.patch.name) };
  return { ...operation, patch };
}

/** All courses in which the event has happened by the time of its answer. */
function follow(
  courses: readonly Course[],
  due: Event,
  open: ReadonlySet<Event>,
  lostKinds: readonly LostKind[],
  sent: readonly number[],
): Course[] {
  const queue = [...courses];
  const seen = new Map<string, Course[]>();
  const found: Course[] = [];
  // Grows while it is walked.
  for (const next of queue) {
    const course = absorb(next, open);
    const { state, done, lost } = course;
    // Courses of one key differ by lost events alone.
    const doneAt = [...done].map(({ sentAt }) => sentAt).toSorted((one, other) => one - other);
    const key = [state?.name, state?.tag, ...doneAt].join("\n");
    const alike = seen.get(key) ?? [];
    if (alike.some((other) => isBetter(other, course))) continue;
    seen.set(key, [...alike.filter((other) => !isBetter(course, other)), course]);
    if (done.has(due)) {
      found.push({ state, done: done.difference(new Set([due])), lost });
      continue;
    }
    for (const event of open) {
      if (done.has(event) || event.answer === undefined) continue;
      const outcome = perform(state, event.operation);
      if (isAnswer(event.answer, outcome.answer))
        queue.push({ state: outcome.state, done: new Set([...done, event]), lost });
    }
    for (const [nth, { operation }] of lostKinds.entries()) {
      const count = lost[nth] ?? 0;
      if (count === sent[nth]) continue;
      const outcome = perform(state, operation);
      if (!isSameState(outcome.state, state))
        queue.push({ state: outcome.state, done, lost: lost.with(nth, count + 1) });
    }
  }
  return found;
}

/**
 * An event that changes nothing, and whose answer is right at this moment, may as well happen now. The answer of a sweep
 * does not tell whether it changed this plant, so it may also happen later.
 */
function absorb({ state, done, lost }: Course, open: ReadonlySet<Event>): Course {
  const idle = [...open].filter((event) => {
    if (event.answer === undefined || done.has(event)) return false;
    if (event.operation.kind === "sweep") return false;
    const outcome = perform(state, event.operation);
    return isAnswer(event.answer, outcome.answer) && isSameState(outcome.state, state);
  });
  return { state, done: idle.length === 0 ? done : new Set([...done, ...idle]), lost };
}

/** Whatever may follow the other may follow this one: more of the lost events may still happen. */
const isBetter = (one: Course, other: Course): boolean =>
  one.lost.every((count, nth) => count <= (other.lost[nth] ?? 0));

const show = (value: unknown): string => Bun.inspect(value, { compact: true });

const describe = (id: bigint, events: readonly Event[], state: State): string =>
  [
    `${id}: no order of its operations explains their answers`,
    ...events.slice(-30).map(show),
    `stored: ${show(state)}`,
  ].join("\n    ");

/** Under each id of a window that moves on, different plants are created by several clients at about the same time. */
const VARIANTS = 3;
const WINDOW = 20;
const CREATED_BELOW = -1_000n;
/**
 * All clients change the same five plants, each change on the condition that no other was made meanwhile. After some
 * changes they go on to the next five: explaining a history takes longer than in proportion to its length.
 */
const CHANGED_BELOW = -1_000_000n;
/** Pairs of plants that are always written together. */
const TWINS_BELOW = -1_000_000_000n;
const CHANGED_AT_A_TIME = 5;
const CHANGES_PER_PLANT = 200;

const idsOf = (window: number): bigint[] =>
  Array.from(
    { length: CHANGED_AT_A_TIME },
    (_, nth) => CHANGED_BELOW - BigInt(window * CHANGED_AT_A_TIME + nth),
  );
/** A change by filter finds the plants of a window. */
const tagOf = (window: number): string => `window ${window}`;

/** The ids of a pair are even and odd. */
export const isTwin = (id: bigint): boolean => id <= TWINS_BELOW;
export const twinOf = (id: bigint): bigint => (id % 2n === 0n ? id - 1n : id + 1n);

/**
 * Plants that a change by filter left alone, because others changed them: a first attempt, whose answer the service
 * lost, may have changed them before. Undefined if it broke off.
 */
function findLeft({ status, body = "" }: Answer): Set<bigint> | undefined {
  if (status !== 200) return undefined;
  const lines = Bun.JSONL.parse(body) as { readonly id?: number; readonly complete?: boolean }[];
  if (lines.at(-1)?.complete !== true) return undefined;
  return new Set(lines.flatMap(({ id }) => (id === undefined ? [] : [BigInt(id)])));
}

/** Clients that want different things of the same plants. All their ids are negative. */
export class Contest extends Crew {
  /** What was done to each plant. */
  readonly history = new Map<bigint, Event[]>();
  operations = 0;
  readonly counts = {
    created: 0,
    replayed: 0,
    taken: 0,
    replaced: 0,
    removed: 0,
    tooLate: 0,
    twins: 0,
    swept: 0,
  };
  /** Counts what is sent and answered: all clients are in this process, so the order is exact. */
  #clock = 0;
  #serial = 0;
  #changes = 0;

  constructor(length: number, surroundings: Surroundings, random: Random) {
    super(surroundings, random);
    this.working = Promise.all(Array.from({ length }, () => this.#work()));
  }

  /** Also every plant whose history no order explains, with these rows as the end of it. */
  compare(rows: readonly StoredPlant[]): string[] {
    const stored = new Map(rows.map((row) => [row.id, row]));
    const ids = new Set([...this.history.keys(), ...stored.keys()]);
    const sentAt = this.#clock + 1;
    const unexplained = [...ids].flatMap((id) => {
      const events = this.history.get(id) ?? [];
      const operation: Operation = { kind: "read", id };
      const { answer } = perform(stored.get(id), operation);
      const end = { operation, answer, sentAt, answeredAt: sentAt + 1 };
      return isLinearizable([...events, end]) ? [] : [describe(id, events, stored.get(id))];
    });
    const halves = rows
      .filter(({ id }) => id <= TWINS_BELOW)
      .filter(({ id, name }) => stored.get(twinOf(id))?.name !== name)
      .map(({ id, name }) => `${id}: "${name}" is half of an atomic batch`);
    return [...this.faults, ...halves, ...unexplained];
  }

  async #work(): Promise<void> {
    while (!this.isOver) if (!(await this.#act())) await this.rest();
  }

  /** False if it may have happened or not. */
  #act(): Promise<boolean> {
    if (this.random.chance(50)) return this.#create();
    if (this.random.chance(20)) return this.#changeTwins();
    return this.random.chance(5) ? this.#sweep() : this.#change();
  }

  async #create(): Promise<boolean> {
    const offset = Math.floor(this.#serial++ / VARIANTS) + this.random.below(WINDOW);
    const id = CREATED_BELOW - BigInt(offset);
    const plant = { id, name: `${id} ${this.random.below(VARIANTS)}`, tag: null };
    const answer = await this.#ask({ kind: "create", plant });
    if (answer?.status === 200) this.counts[answer.isReplay === true ? "replayed" : "created"]++;
    if (answer?.status === 409) this.counts.taken++;
    return answer !== undefined;
  }

  /** The window of plants that are changed now. */
  #takeWindow(changes: number): number {
    const past = Math.floor(this.#changes / (CHANGED_AT_A_TIME * CHANGES_PER_PLANT));
    this.#changes += changes;
    return past;
  }

  async #change(): Promise<boolean> {
    const past = this.#takeWindow(1);
    const id = this.random.pick(idsOf(past));
    const tag = tagOf(past);
    const found = await this.#ask({ kind: "read", id });
    if (found === undefined) return false;
    const plant = { id, name: `version ${this.#serial++}`, tag };
    if (found.status !== 200) return (await this.#ask({ kind: "create", plant })) !== undefined;
    const { name } = JSON.parse(found.body ?? "") as { name: string };
    const ifMatch = { id, name, tag };
    const isRemoval = this.random.chance(30);
    const answer = await this.#ask(
      isRemoval
        ? { kind: this.random.pick(["remove", "discard"] as const), id, ifMatch }
        : this.random.pick<Operation>([
            { kind: "replace", plant, ifMatch },
            { kind: "upsert", plant, ifMatch },
            { kind: "patch", id, patch: { name: plant.name }, ifMatch },
          ]),
    );
    if (answer !== undefined && answer.status < 300)
      this.counts[isRemoval ? "removed" : "replaced"]++;
    else if (answer !== undefined) this.counts.tooLate++;
    return answer !== undefined;
  }

  /** All plants of the window get one name, or are removed, by a filter: each on its own. */
  async #sweep(): Promise<boolean> {
    const past = this.#takeWindow(CHANGED_AT_A_TIME);
    const tag = tagOf(past);
    const patch = this.random.chance(70) ? { name: `sweep ${this.#serial++}` } : undefined;
    const operations = idsOf(past).map((id): Operation => ({ kind: "sweep", id, tag, patch }));
    const { findUrl, isShared = false } = this.surroundings;
    const answer = await this.#askAbout(operations, () =>
      sendOperation(findUrl(), operations[0] as Operation, { keepalive: !isShared }),
    );
    if (answer !== undefined) this.counts.swept++;
    return answer !== undefined;
  }

  /** Both plants of a pair get one name, in one transaction, or both are removed. */
  async #changeTwins(): Promise<boolean> {
    const past = this.#takeWindow(1);
    const first = TWINS_BELOW - BigInt(2 * past);
    const found = await this.#ask({ kind: "read", id: first });
    if (found === undefined) return false;
    const serial = this.#serial++;
    const isRemoval = this.random.chance(20);
    const operations = [first, twinOf(first)].map((id): Operation => {
      const plant = { id, name: `twin ${serial}`, tag: null };
      if (found.status !== 200) return { kind: "create", plant };
      const { name } = JSON.parse(found.body ?? "") as { name: string };
      const ifMatch = { id, name, tag: null };
      return isRemoval ? { kind: "discard", id, ifMatch } : { kind: "upsert", plant, ifMatch };
    });
    const upsert = found.status === 200 ? "&upsert=true" : "";
    const answer = await this.#askAbout(operations, () =>
      send({ url: this.surroundings.findUrl() }, "POST", `/plants/batch?atomic=true${upsert}`, {
        body: `[${operations.map(toLine).join(",")}]`,
        keepalive: this.surroundings.isShared !== true,
      }),
    );
    if (answer !== undefined) this.counts.twins++;
    return answer !== undefined;
  }

  #ask(operation: Operation): Promise<Answer | undefined> {
    const { findUrl, isShared = false } = this.surroundings;
    return this.#askAbout([operation], () =>
      sendOperation(findUrl(), operation, { keepalive: !isShared }),
    );
  }

  /** Undefined if they may have happened or not. */
  async #askAbout(
    operations: readonly Operation[],
    request: () => Promise<Response>,
  ): Promise<Answer | undefined> {
    const sentAt = ++this.#clock;
    const added = operations.map((operation) => {
      const event: Event = { operation, sentAt };
      const events = this.history.get(idOf(operation)) ?? [];
      this.history.set(idOf(operation), events);
      events.push(event);
      return event;
    });
    const [{ kind }] = operations as [Operation];
    this.operations++;
    try {
      const answers = await toAnswers(await request());
      const [answer] = answers as [Answer];
      if (isForNow(answer)) return undefined;
      if (![200, 204, 404, 409, 412].includes(answer.status))
        this.faults.push(
          `${idOf(operations[0] as Operation)}: to ${kind} it was answered ${answer.status}`,
        );
      const left = kind === "sweep" ? findLeft(answer) : new Set<bigint>();
      if (left === undefined) return undefined;
      const answeredAt = ++this.#clock;
      for (const [index, event] of added.entries())
        // A batch that was refused as a whole has one answer: both plants were in the same state.
        if (!left.has(idOf(event.operation)))
          Object.assign(event, { answer: answers[index] ?? answer, answeredAt });
      return answer;
    } catch {
      return undefined;
    }
  }
}
