/** What this browser wrote lately, in any tab: so a person is not taken for someone else. Several may use one token. */

import type { Change } from "../../client/client.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { etagOf } from "../api/etag.ts";
import { identity } from "./session.ts";
import { keep, recall } from "./storage.ts";

const KEY = "writes";
const WRITES_MAX = 100;

const tab = Math.random().toString(36).slice(2);

/** The tab, the token's name and what was written. */
type Write = readonly [tab: string, by: string | undefined, what: string];

const listWrites = (): readonly Write[] => (recall("localStorage", KEY) ?? []) as Write[];

function note(what: string): void {
  const write: Write = [tab, identity.peek()?.name, what];
  keep("localStorage", KEY, [...listWrites(), write].slice(-WRITES_MAX));
}

/** Undefined is a plant that is gone. */
const describe = (id: bigint, plant: Plant | undefined): string =>
  `${id} ${plant === undefined ? "removed" : etagOf(plant)}`;

export const noteWrite = (id: bigint, plant: Plant | undefined): void => note(describe(id, plant));

/** A bulk action or an import, which may write more plants than are kept here. */
export const noteBatch = (batch: string): void => note(batch);

export interface Writer {
  readonly kind: "named" | "someone" | "you" | "otherTab";
  /** The name, if it is known. */
  readonly who: string;
}

export const someoneElse: Writer = { kind: "someone", who: "" };

/** Who left the plant as it is now, which the last change may tell. */
export function findWriter(
  id: bigint,
  now: Plant | undefined,
  change: Pick<Change, "by" | "batch"> | undefined,
): Writer {
  const name = identity.value?.name;
  if (change?.by !== undefined && change.by !== name) return { kind: "named", who: change.by };
  const own = listWrites().findLast(
    ([, by, what]) => by === name && (what === describe(id, now) || what === change?.batch),
  );
  if (own === undefined) return someoneElse;
  return { kind: own[0] === tab ? "you" : "otherTab", who: "" };
}
