/** The service, for tests with the types of a page: those of the service itself do not go with them. */

import { beginSession } from "../../console/state/session.ts";
import type { Plant } from "../../src/domain/plant.ts";

type Write = (...given: readonly unknown[]) => Promise<unknown>;

/** What these tests need of a service. */
interface Services {
  readonly TEST_TOKEN: string;
  readonly grantToken: (
    service: object,
    scopes?: readonly string[],
    more?: { readonly tags: readonly string[] },
  ) => Promise<string>;
  readonly startShared: () => Promise<{
    readonly url: string;
    readonly findPlant: (id: bigint) => Promise<{ readonly tag: string | null } | undefined>;
    readonly store: {
      writePlants: Write;
      readonly createPlants: (plants: readonly Plant[]) => Promise<unknown>;
      readonly countPlants: (filter: object) => Promise<{ readonly count: number }>;
      readonly listJobs: () => Promise<
        readonly { readonly name: string; readonly state: string }[]
      >;
    };
  }>;
}
const path = "../support/service.ts";
export const { grantToken, TEST_TOKEN, startShared } = (await import(path)) as Services;

/** A person signs in on the page. */
export const signIn = (name = "Anna", token = TEST_TOKEN): void =>
  beginSession({ token, identity: { name, scopes: ["plants:read", "plants:write"] } }, false);
