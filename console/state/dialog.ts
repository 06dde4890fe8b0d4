/**
 * What is open above the page: one dialog. A question before an action captures what it is about when it is asked;
 * neither the question nor its answer reads the page again. It ends when the page shows something else, or when it is
 * answered.
 */

import { batch, effect, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { arrived } from "./feed.ts";
import { route } from "./route.ts";
import { token } from "./session.ts";

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

interface Opened {
  readonly dialog: unknown;
  readonly about: object;
  readonly ends: () => unknown;
}

/** One dialog is open at a time. */
const opened = signal<Opened | undefined>(undefined);

function shut(): void {
  const { about } = opened.peek() ?? {};
  opened.value = undefined;
  if (about instanceof Question) about.end();
}

/** What a dialog of a page is about. */
export const ofPage = () => [route.value, token.value];

/** A question, a form, the camera. Opening it closes the one before. */
export class Modal<About extends object> {
  readonly #ends: () => unknown;

  /** It closes with any change of what `ends` reads. */
  constructor(ends: () => unknown = ofPage) {
    this.#ends = ends;
  }

  /** Undefined while it is closed. */
  get value(): About | undefined {
    const { dialog, about } = opened.value ?? {};
    return dialog === this ? (about as About) : undefined;
  }

  open(about: About): void {
    shut();
    opened.value = { dialog: this, about, ends: this.#ends };
  }

  /** If it is named, only while it is about this: a late answer closes no other. */
  close(about?: About): void {
    const now = opened.peek();
    if (now?.dialog === this && (about === undefined || about === now.about)) shut();
  }
}

export function startDialogs(): void {
  let before: Opened | undefined;
  effect(() => {
    const now = opened.value;
    now?.ends();
    if (now !== undefined && now === before) untracked(shut);
    before = now;
  });
  effect(() => {
    const changes = arrived.value;
    const { about } = opened.peek() ?? {};
    if (about instanceof Question) untracked(() => about.hear(changes));
  });
}
