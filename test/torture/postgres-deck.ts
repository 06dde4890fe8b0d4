/** Kinds of mishaps, dealt like cards: each comes before any comes again, in an order that the seed decides. */

import type { Random } from "../support/random.ts";

interface Dealt<Kind> {
  readonly kind: Kind;
  /** Whether every kind has come, with this one. */
  readonly haveAllCome: boolean;
}

export function* deal<Kind>(kinds: readonly Kind[], random: Random): Generator<Dealt<Kind>, never> {
  for (let decks = 1; ; decks++) {
    const left = [...kinds];
    while (left.length > 0) {
      const [kind] = left.splice(random.below(left.length), 1);
      yield { kind: kind as Kind, haveAllCome: decks > 1 || left.length === 0 };
    }
  }
}
