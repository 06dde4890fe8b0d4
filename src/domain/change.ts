/** The journal: one entry per create, replacement and removal. */

import type { Order } from "./page.ts";
import { toJsonId } from "./json.ts";
import type { Plant } from "./plant.ts";
import { findTimeMs } from "./time.ts";

export const changeTypes = ["created", "replaced", "removed"] as const;
export type ChangeType = (typeof changeTypes)[number];

/** A list of one or more distinct types; undefined for anything else. */
export function findChangeTypes(value: unknown): readonly ChangeType[] | undefined {
  const types = Array.isArray(value) ? (value as readonly ChangeType[]) : [];
  const isSound = types.every((type) => changeTypes.includes(type));
  return isSound && types.length > 0 && new Set(types).size === types.length ? types : undefined;
}

/**
 * The number of a change is at least its time in microseconds, up to this one, in the year 2112. With a clock that is
 * further ahead, numbers are consecutive: as many again are left up to 2^53, so each stays an exact double.
 */
export const TIME_NUMBER_MAX = 2 ** 52;

/** The number of a change, or 0 for the start of the journal. */
export function findChangeNumber(text: string): number | undefined {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(number) ? number : undefined;
}

/** The number of a change, or a time. */
export interface Moment {
  readonly unit: "seq" | "atMs";
  readonly value: number;
}

/** `from` and `to` are inclusive. */
export interface Period {
  readonly from?: Moment | undefined;
  readonly to?: Moment | undefined;
}

export const momentRule = {
  expected: "the number of a change, or a time with its zone, as in 2026-11-15T10:00:00Z",
  /** A string is a time. */
  find: (input: unknown): Moment | undefined => {
    const unit = typeof input === "number" ? "seq" : "atMs";
    const value = typeof input === "string" ? findTimeMs(input) : input;
    return Number.isSafeInteger(value) && (unit === "atMs" || (value as number) > 0)
      ? { unit, value: value as number }
      : undefined;
  },
};

export const isBackwards = ({ from, to }: Period): boolean =>
  from !== undefined && from.unit === to?.unit && from.value > to.value;

export const BACKWARDS = "from: expected a moment that is not after to";

/** Every change at or after this moment has this number or a larger one. */
export const firstNumberOf = ({ unit, value }: Moment): number =>
  unit === "seq" ? value : Math.min(value * 1000, TIME_NUMBER_MAX);

const isWithin = (
  { from, to }: Period,
  change: Readonly<Record<Moment["unit"], number>>,
): boolean =>
  (from === undefined || change[from.unit] >= from.value) &&
  (to === undefined || change[to.unit] <= to.value);

interface Part {
  /** Its name in a `Writer`. */
  readonly writer: string;
  /** For readers of changes, with its words in `plantstore changes`; undefined if it is for the service alone. */
  readonly shown:
    Readonly<{ meaning: string; example?: string; say: (value: string) => string }> | undefined;
}

/**
 * What a change says about its writer, as text without a newline. The order is that of a block, so append only: older
 * versions ignore what follows. `Writer`, `Change`, blocks, the API, the client's type, the command and the table in
 * docs/changes.md are derived from this.
 */
const parts = {
  by: {
    writer: "token",
    shown: {
      meaning: "The name of the token. Absent if a command changed the store directly.",
      example: "office",
      say: (name) => `by ${name}`,
    },
  },
  batch: {
    writer: "batch",
    shown: {
      meaning: "The client's name for a group of writes, such as an import.",
      say: (name) => `in ${JSON.stringify(name)}`,
    },
  },
  /** The span of the request, by `nameSpan`, if it is sampled. */
  trace: { writer: "trace", shown: undefined },
} as const satisfies Record<string, Part>;

type PartName = keyof typeof parts;
type WriterName = (typeof parts)[PartName]["writer"];
const partNames = Object.keys(parts) as PartName[];
const writerNames = partNames.map((name): WriterName => parts[name].writer);
const packedNames = writerNames.toReversed();

export const shownParts = Object.entries<Part>(parts).flatMap(([name, { shown }]) =>
  shown === undefined ? [] : [{ ...shown, name: name as PartName }],
);

export type PartsOfWriter = Readonly<Record<WriterName, string | undefined>>;
type PartsOfChange = Readonly<Record<PartName, string | undefined>>;

/** Who writes, for the journal. A command that writes to the store directly has no token. */
export interface Writer extends Partial<PartsOfWriter> {
  readonly lease?: Lease | undefined;
  /** The tags that it is confined to; undefined for the whole store. */
  readonly within?: readonly string[] | undefined;
}

/**
 * For work of many commits. A service may stand still between any two lines while another ends the job or revokes the
 * token, so each commit checks both, and stores nothing if one of them is over.
 */
interface Lease {
  /** The run of the job that the batch names; undefined outside of a job. */
  readonly run?: string | undefined;
  /** The hash of the token. One that is not in the store is not checked. */
  readonly token?: string | undefined;
}

export interface Change extends Partial<PartsOfChange> {
  /** Grows in commit order, with gaps. */
  readonly seq: number;
  readonly atMs: number;
  readonly type: ChangeType;
  readonly id: bigint;
  /** The state after the change; undefined if the plant was removed. */
  readonly plant: Plant | undefined;
  /** The state before the change; undefined if the plant was created. */
  readonly before: Plant | undefined;
}

export const folds = ["batch", "run"] as const;

/** In the unit of numbers, microseconds. */
const PAUSE_MAX = 10_000_000;

/** What a person adds by hand is no part of the run that a program with the same token made before. */
export const isPause = (seq: number, other: number): boolean => Math.abs(seq - other) > PAUSE_MAX;

export const countGroups = ["by", "batch"] as const;
export type CountGroup = (typeof countGroups)[number];

/** What changes are counted by. */
export interface Grouping {
  readonly group: readonly CountGroup[];
  /** Also by time, in intervals of this length since 1970. */
  readonly everyMs: number | undefined;
}

/** For a restore, which writes the block again. */
export const writerOf = (change: Change): PartsOfWriter =>
  Object.fromEntries(partNames.map((name, at) => [writerNames[at], change[name]])) as PartsOfWriter;

/** All parts as one text; undefined without any. */
export function packWriter(writer: Writer = {}): string | undefined {
  let packed: string | undefined;
  for (const name of packedNames)
    packed = packed === undefined ? writer[name] : `${writer[name] ?? ""}\n${packed}`;
  return packed;
}

/** A block of an earlier version may have fewer. */
export function unpackWriter(packed: unknown): PartsOfChange {
  const values = typeof packed === "string" ? packed.split("\n") : [];
  const named = partNames.map((name, at) => [name, values[at] || undefined]);
  return Object.fromEntries(named) as PartsOfChange;
}

/** What readers of changes see. */
const showWriter = (change: Change): Partial<PartsOfChange> =>
  Object.fromEntries(shownParts.map(({ name }) => [name, change[name]]));

/** The same in words. */
export const sayWriter = (change: { readonly [Name in PartName]?: unknown }): string[] =>
  shownParts.flatMap(({ name, say }) => {
    const value = change[name];
    return typeof value === "string" ? [say(value)] : [];
  });

export interface ChangeQuery extends Period {
  /** The tags that the reader is confined to; undefined for the whole store. */
  readonly within?: readonly string[] | undefined;
  readonly id?: bigint | undefined;
  readonly types?: readonly ChangeType[] | undefined;
  /** The name of a token. */
  readonly by?: string | undefined;
  readonly batch?: string | undefined;
  /** By default the oldest change is first. */
  readonly order?: Order | undefined;
  /**
   * Lists a run of changes by one token in one batch as its first change, with the counts of the run. `run`: also a run
   * of creates by one token without a batch and without a pause.
   */
  readonly fold?: (typeof folds)[number] | undefined;
  /** Counts the changes instead of listing them, in at most `limit` groups. */
  readonly count?: Grouping | undefined;
  /** The cursor: the number of the last change seen. 0 starts at the oldest change kept, or at the newest. */
  readonly after: number;
  /** 0 returns no changes: only the newest number. It still validates the cursor. */
  readonly limit: number;
}

export interface ListedChange extends Pick<Change, "seq" | "atMs" | "type" | "trace"> {
  /** The id is in exact digits. */
  readonly json: string;
}

/** The changes of one group. */
export interface ChangeCount extends Folded {
  /** The start of its interval. */
  readonly startMs: number | undefined;
  readonly by: string | undefined;
  readonly batch: string | undefined;
  /** The number and the time of its first change, and of its last. */
  first: number;
  firstMs: number;
  last: number;
  lastMs: number;
}

export interface ChangePage {
  /** With `count`. */
  readonly counts?: readonly ChangeCount[] | undefined;
  readonly changes: readonly ListedChange[];
  /** The cursor of the next page: every change up to it was examined. */
  readonly last: number;
  readonly hasMore: boolean;
  readonly newest: number;
}

/** Whether a page may examine many more changes than it lists. */
export const isFiltered = (query: ChangeQuery): boolean => {
  const { within, id, types, by, batch, fold, count, from, to } = query;
  return [within, id, types, by, batch, fold, count, from, to].some(
    (wanted) => wanted !== undefined,
  );
};

export const isWanted = (query: ChangeQuery, change: Change): boolean => {
  const { id, types, by, batch } = query;
  return (
    isWithin(query, change) &&
    (id === undefined || id === change.id) &&
    (types === undefined || types.includes(change.type)) &&
    (by === undefined || by === change.by) &&
    (batch === undefined || batch === change.batch)
  );
};

/** The rule for the name of a batch. */
export const batchRule = {
  expected: "1 to 100 characters without control characters",
  find: (value: unknown): string | undefined =>
    typeof value === "string" && /^\P{Cc}{1,100}$/u.test(value) && value.isWellFormed()
      ? value
      : undefined,
};

const NAME_CHARACTERS_MAX = 60;

/** A batch that starts now: what people call it, such as the file of an import, and the time. */
export function nameBatch(name: string): string {
  const shown = name
    .replaceAll(/\p{Cc}/gu, "?")
    .slice(0, NAME_CHARACTERS_MAX)
    .toWellFormed();
  return `${shown} ${new Date().toISOString()}`;
}

/** The name without the time. */
export const nameOfBatch = (batch: string): string =>
  batch.replace(/ \d{4}-\d\d-\d\dT[\d:.]+Z$/, "");

/** The number of changes of each type in a run. */
export type Folded = Record<ChangeType, number>;

/** `foldedTo` is the number of the last change of the run. */
export function listChange(change: Change, folded?: Folded, foldedTo?: number): ListedChange {
  const { seq, atMs, type, trace } = change;
  const time = formatTimeOf(atMs);
  const [plant, before] = [toContent(change.plant), toContent(change.before)];
  // One JSON.stringify call is faster than several.
  const json = JSON.stringify({
    seq,
    time,
    type,
    id: toJsonId(change.id),
    ...showWriter(change),
    plant,
    before,
    folded,
    foldedTo: folded && foldedTo,
  });
  return { seq, atMs, type, json, ...(trace !== undefined && { trace }) };
}

const toContent = (plant: Plant | undefined) => plant && { name: plant.name, tag: plant.tag };

let last = { atMs: Number.NaN, time: "" };

/** Changes of a block have one time. */
function formatTimeOf(atMs: number): string {
  if (atMs !== last.atMs) last = { atMs, time: new Date(atMs).toISOString() };
  return last.time;
}
