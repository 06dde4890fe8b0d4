/** What happened to the plants: one entry of the journal for every create, replacement and removal. */

import { formatPlant, type Plant } from "./plant.ts";

export const changeTypes = ["created", "replaced", "removed"] as const;
export type ChangeType = (typeof changeTypes)[number];

/** The types in a list of one or more, each once; undefined for anything else. */
export function findChangeTypes(value: unknown): readonly ChangeType[] | undefined {
  const types = Array.isArray(value) ? (value as readonly ChangeType[]) : [];
  const isSound = types.every((type) => changeTypes.includes(type));
  return isSound && types.length > 0 && new Set(types).size === types.length ? types : undefined;
}

/** The number of a change, or 0. */
export function findChangeNumber(text: string): number | undefined {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(number) ? number : undefined;
}

export interface Change {
  /** Numbers grow in the order of the commits. They have gaps. */
  readonly seq: number;
  readonly atMs: number;
  readonly type: ChangeType;
  readonly id: bigint;
  /** The name of the token; undefined for a command that wrote to the store itself. */
  readonly by: string | undefined;
  /** The plant since this change; undefined if it was removed. */
  readonly plant: Plant | undefined;
  /** The plant until this change; undefined if it was created. */
  readonly before: Plant | undefined;
}

export interface ChangeQuery {
  readonly id?: bigint | undefined;
  readonly types?: readonly ChangeType[] | undefined;
  /** The number of the last change seen; 0 to begin with the oldest one that is kept. */
  readonly after: number;
  /** 0 reads no change: only the newest number, and whether the cursor is in the journal. */
  readonly limit: number;
}

export interface ListedChange extends Pick<Change, "seq" | "atMs" | "type"> {
  /** With the id as exact digits. */
  readonly json: string;
}

export interface ChangePage {
  readonly changes: readonly ListedChange[];
  /** Everything up to this number was looked at: the `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
  readonly newest: number;
}

export const isWanted = (
  { id, types }: Pick<ChangeQuery, "id" | "types">,
  change: Change,
): boolean =>
  (id === undefined || id === change.id) && (types === undefined || types.includes(change.type));

export function listChange({ seq, atMs, type, id, by, plant, before }: Change): ListedChange {
  let text = `{"seq":${seq},"time":"${formatTime(atMs)}","type":"${type}","id":${id}`;
  if (by !== undefined) text += `,"by":${JSON.stringify(by)}`;
  if (plant !== undefined) text += `,"plant":${formatPlant(plant)}`;
  if (before !== undefined) text += `,"before":${formatPlant(before)}`;
  return { seq, atMs, type, json: `${text}}` };
}

let formattedMs = 0;
let formatted = "";

/** Changes of one commit have one time. */
function formatTime(atMs: number): string {
  if (atMs !== formattedMs) [formattedMs, formatted] = [atMs, new Date(atMs).toISOString()];
  return formatted;
}
