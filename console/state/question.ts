/**
 * What an action is about, and the question before it. Both are captured when the action is asked for; neither the
 * question nor its answer reads the page again. A question ends when the page shows something else.
 */

import { batch, effect, type ReadonlySignal, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { createFilter } from "../../src/domain/filter.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import type { ListFilter } from "../api/plants.ts";

/** Either these plants, or all that match the filter except these. */
export interface Selection {
  readonly isAll: boolean;
  readonly ids: ReadonlySet<bigint>;
  /** The plant that was selected last, by id because indexes shift. */
  readonly last?: bigint;
}

/** What an action is about. */
export interface Subject {
  /** Each of these, as it was shown. */
  readonly plants: readonly Plant[];
  /** All that match, beside these. */
  readonly matching?: Matching | undefined;
}

/** Ids are texts, because it is kept in the storage of the tab. */
export interface Matching {
  readonly filter: ListFilter;
  readonly except: readonly string[];
  /** The number of these that were in the list. */
  readonly excepted: number;
}

interface Shown {
  readonly filter: ListFilter;
  readonly plants: readonly Plant[];
  /** The plant that is listed for its id alone: the filter does not find it. */
  readonly onlyById: Plant | undefined;
}

/** For files and entity tags, which have no time. */
export const withoutTime = ({ id, name, tag }: Plant): Plant => ({ id, name, tag });

export function capture({ isAll, ids }: Selection, { filter, plants, onlyById }: Shown): Subject {
  const picked = plants.filter(({ id }) => ids.has(id)).map(withoutTime);
  if (!isAll) return { plants: picked };
  const isExcepted = onlyById === undefined || ids.has(onlyById.id);
  return {
    plants: isExcepted ? [] : [withoutTime(onlyById)],
    matching: { filter, except: Array.from(ids, String), excepted: picked.length },
  };
}

/**
 * What is left of it after these changes: a plant that someone has changed is not the one that was asked about.
 * Undefined if the changes do not concern it.
 */
export function keepUnchanged(subject: Subject, changes: readonly Change[]): Subject | undefined {
  const { plants, matching } = subject;
  const latest = new Map(changes.map((change) => [change.id, change.plant]));
  const isLeft = (plant: Plant): boolean => {
    const now = latest.get(plant.id);
    return !latest.has(plant.id) || (now !== undefined && isSame({ ...now, id: plant.id }, plant));
  };
  const left = plants.filter(isLeft);
  const accepts = createFilter(matching?.filter ?? {});
  const isFound = ({ id, plant, before }: Change): boolean =>
    matching?.except.includes(String(id)) === false &&
    [plant, before].some((content) => content !== undefined && accepts({ ...content, id }));
  if (left.length === plants.length && !changes.some(isFound)) return undefined;
  return { ...subject, plants: left };
}

interface Looking<About, Found> {
  /** What the service says about it now. A value in place of a promise needs no service. */
  readonly look: (about: About, ended: AbortSignal) => Promise<Found> | Found;
  /** What is left of it after these changes; undefined if they do not concern it. */
  readonly after: (about: About, changes: readonly Change[]) => About | undefined;
  /** Nothing is rendered before it has decided. */
  readonly onFound?: (found: Found, isFirst: boolean) => void;
  readonly onFailure?: (error: unknown) => void;
}

export class Question<About, Found> {
  #about: About;
  /** Undefined until the service has answered. */
  readonly found = signal<Found | undefined>(undefined);
  readonly failure = signal<unknown>(undefined);
  readonly #looking: Looking<About, Found>;
  readonly #ending = new AbortController();
  #isLooking = false;
  #isStale = false;
  #isAnswered = false;

  constructor(about: About, looking: Looking<About, Found>) {
    this.#about = about;
    this.#looking = looking;
  }

  get about(): About {
    return this.#about;
  }

  /** One look at a time. What changes meanwhile needs another. */
  async look(): Promise<void> {
    this.#isStale = this.#isLooking;
    if (this.#isLooking || this.#ending.signal.aborted) return;
    this.#isLooking = true;
    try {
      const found = this.#looking.look(this.#about, this.#ending.signal);
      this.#note(found instanceof Promise ? await found : found);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      this.failure.value = error;
      this.#looking.onFailure?.(error);
    } finally {
      this.#isLooking = false;
    }
    if (this.#isStale) void this.look();
  }

  #note(found: Found): void {
    if (this.#ending.signal.aborted || this.#isAnswered) return;
    const isFirst = this.found.peek() === undefined;
    batch(() => {
      this.failure.value = undefined;
      this.found.value = found;
      this.#looking.onFound?.(found, isFirst);
    });
  }

  /** What others did. */
  hear(changes: readonly Change[]): void {
    if (this.#isAnswered) return;
    const left = changes.length > 0 ? this.#looking.after(this.#about, changes) : undefined;
    if (left === undefined) return;
    this.#about = left;
    void this.look();
  }

  /** What was found stays as it is while the answer is carried out. */
  async answer(act: (about: About) => Promise<void>): Promise<void> {
    this.#isAnswered = true;
    try {
      await act(this.#about);
    } catch (error) {
      this.#isAnswered = false;
      void this.look();
      throw error;
    }
  }

  end(): void {
    this.#ending.abort();
  }
}

/** At most one question is open. It ends with any change of what `place` reads. */
export class OpenQuestion<Asked extends object> {
  readonly #asked = signal<Asked | undefined>(undefined);

  constructor(place: () => unknown, news?: ReadonlySignal<readonly Change[]>) {
    effect(() => {
      place();
      untracked(() => this.end());
    });
    effect(() => {
      const changes = news?.value ?? [];
      const asked = this.#asked.peek();
      if (asked instanceof Question) untracked(() => asked.hear(changes));
    });
  }

  get value(): Asked | undefined {
    return this.#asked.value;
  }

  ask(asked: Asked): void {
    this.end();
    this.#asked.value = asked;
  }

  /** Another question stays, if one is named. */
  end(asked: Asked | undefined = this.#asked.peek()): void {
    if (asked !== this.#asked.peek()) return;
    if (asked instanceof Question) asked.end();
    this.#asked.value = undefined;
  }
}
