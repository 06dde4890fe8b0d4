/** A store that another thread owns: asked from here, done there, with every guarantee that it gives there. */

import type { Reads, Store, StoreDescription } from "../domain/store.ts";
import type { Caller } from "./calls.ts";

const forwarded = [
  "createPlant",
  "findPlant",
  "listPlants",
  "listTags",
  "countPlants",
  "replacePlant",
  "removePlant",
  "probe",
  "measureBytes",
  "findToken",
  "listTokens",
  "createToken",
  "createFirstToken",
  "revokeToken",
  "adoptTokens",
  "touchTokens",
] as const satisfies readonly (keyof Store)[];

type Forwarded = Pick<Store, (typeof forwarded)[number]>;

/** What the owner does when it is called. */
export const methodsOf = (store: Store): Forwarded =>
  Object.fromEntries(
    forwarded.map((name) => [name, store[name].bind(store)]),
  ) as unknown as Forwarded;

/** `reads` are those that this thread can do by itself. */
export function linkStore(
  caller: Caller,
  description: StoreDescription,
  reads: Partial<Reads>,
): Store {
  const calls = Object.fromEntries(
    forwarded.map((name) => [name, (...parameters: unknown[]) => caller.call(name, parameters)]),
  ) as unknown as Forwarded;
  return {
    ...calls,
    ...reads,
    createPlant: (plant) => caller.createPlant(plant),
    description,
    get writesWaiting() {
      return caller.callsWaiting;
    },
    // Its owner closes it.
    close: () => Promise.resolve(),
  };
}
