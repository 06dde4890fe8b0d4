/**
 * The question before an action. What it is about is captured when it is asked; neither the question nor its answer
 * reads the page again. It ends when the page shows something else, or when it is answered.
 */

import { batch, effect, type ReadonlySignal, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";

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
    if (this.#ending.signal.aborted) return;
    const isFirst = this.found.peek() === undefined;
    batch(() => {
      this.failure.value = undefined;
      this.found.value = found;
      this.#looking.onFound?.(found, isFirst);
    });
  }

  /** What others did. */
  hear(changes: readonly Change[]): void {
    const left = changes.length > 0 ? this.#looking.after(this.#about, changes) : undefined;
    if (left === undefined) return;
    this.#about = left;
    void this.look();
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
