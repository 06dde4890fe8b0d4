/**
 * Reverts changes: every plant that they touched returns to its state before them, if it is still in the state that
 * they left. Each plant is one conditional write, so a revert can be retried.
 *
 * Memory is bounded: each pass over the journal collects the plants with the smallest ids and leaves the others to a
 * later pass.
 */

import {
  type BulkOptions,
  contentOf,
  countBlock,
  type Left,
  refuseChanged,
  SAMPLE_LENGTH,
  stillIs,
  writeBlock,
} from "./bulk.ts";
import {
  BACKWARDS,
  batchRule,
  type Change,
  type ChangeType,
  changeTypes,
  findChangeTypes,
  firstNumberOf,
  isBackwards,
  type ListedChange,
  type Moment,
  momentRule,
  type Period,
  type Writer,
} from "./change.ts";
import type { Rehearsal } from "./decide.ts";
import { Refusal, toRefusal } from "./errors.ts";
import { parseMembers, type Rule } from "./members.ts";
import { INT64_MAX, INT64_MIN } from "./json.ts";
import { type Content, isSameState, lengthOf, type Plant } from "./plant.ts";
import type { StoreView } from "./store.ts";
import type { Done, PlantWrite } from "./write.ts";

/** Selects the changes that match every given member. */
export interface RevertRequest extends Period {
  readonly types?: readonly ChangeType[];
  /** The name of a token. */
  readonly by?: string;
  readonly batch?: string;
  readonly dryRun?: boolean;
}

const moment: Rule<Moment> = { optional: true, ...momentRule };

export const revertRules = {
  from: moment,
  to: moment,
  by: {
    optional: true,
    expected: "the name of a token",
    find: (input: unknown) => (typeof input === "string" && input !== "" ? input : undefined),
  },
  batch: { optional: true, ...batchRule },
  types: {
    optional: true,
    expected: `a list of ${changeTypes.join(", ")}`,
    find: findChangeTypes,
  },
  dryRun: {
    optional: true,
    expected: "true or false",
    find: (input: unknown) => (typeof input === "boolean" ? input : undefined),
  },
};

/** Throws a Refusal that names every fault. */
export function parseRevert(input: unknown): RevertRequest {
  const request = parseMembers<RevertRequest>(input, revertRules);
  const { from, to, by, batch, types } = request;
  if ([from, to, by, batch, types].every((part) => part === undefined))
    throw new Refusal(
      "invalid_body",
      "body: expected at least one of from, to, by, batch and types",
    );
  if (isBackwards(request)) throw new Refusal("invalid_body", BACKWARDS);
  return request;
}

export type Range = Awaited<ReturnType<typeof openRange>>;

/**
 * Adds the cursor to start from, and a fixed end: the writes of the revert itself are not part of the range. A start
 * before the first change is the first change. Throws a Refusal if the journal no longer has the start.
 */
export async function openRange(store: StoreView, request: RevertRequest, signal?: AbortSignal) {
  const { from, to } = request;
  const { newest, first } = await findFirst(store, signal);
  if (from === undefined) {
    const isEarlier = first !== undefined && to !== undefined && first[to.unit] > to.value;
    if (isEarlier && (await store.findChangeBefore(1)) === undefined)
      throw new Refusal("changes_gone", `The oldest change in the journal is ${first.seq}.`);
    return { ...request, after: first === undefined ? newest : first.seq - 1, newest };
  }
  const isNumber = from.unit === "seq";
  const seq = firstNumberOf(from);
  // Changes made while the clock was ahead have times in the future.
  if (seq > (isNumber ? newest : Math.max(newest, Date.now() * 1000)))
    throw new Refusal("invalid_body", `from: is in the future; the newest change is ${newest}`);
  // A clock that was ahead gave numbers beyond the time. Then an older change at the start of the journal tells that it
  // has everything since.
  const isSince = !isNumber && first !== undefined && first.atMs < from.value;
  const before = await store.findChangeBefore(seq);
  // A cursor of 0 would start at the oldest change kept.
  const after = (before ?? (isSince ? first.seq : seq) - 1) || -1;
  await store.readChanges({ after, limit: 0 });
  return { ...request, after, newest };
}

/** The oldest change that the caller sees. A page may have examined only changes of other plants. */
async function findFirst(store: StoreView, signal: AbortSignal | undefined) {
  for (let after = 0; ;) {
    signal?.throwIfAborted();
    const { changes, last, hasMore, newest } = await store.readChanges({ after, limit: 1 });
    if (changes.length > 0 || !hasMore) return { newest, first: changes[0] };
    after = last;
  }
}

/** A plant that changes in the range touched. */
interface Touched {
  readonly id: bigint;
  /** The number of its first change in the range. */
  readonly seq: number;
  readonly before: Plant | undefined;
  /** Its state after its last change in the range. */
  readonly after: Plant | undefined;
  /** Whether a change outside the range lies between two inside it. */
  readonly isMixed: boolean;
}

export interface RevertOptions extends BulkOptions {
  /** The limits of a pass: plants, and the characters of their texts. */
  readonly revertPlantsMax: number;
  readonly revertCharactersMax: number;
}

/** Collects the plants of one pass over the range. Earlier passes handled the ids up to `handled`. */
function createPass({ revertPlantsMax, revertCharactersMax }: RevertOptions, handled: bigint) {
  const found = new Map<bigint, Touched>();
  let characters = 0;
  /** Larger ids are dropped for the rest of the pass: a plant added again would have the wrong `before`. */
  let idMax = INT64_MAX;
  let dropped = Number.POSITIVE_INFINITY;

  const list = (): Touched[] =>
    [...found.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1));

  /** Keeps half of the limit: otherwise every further plant would sort again. One plant alone always fits. */
  const shrink = (): void => {
    const sorted = list();
    characters = 0;
    let length = 0;
    do characters += sizeOf(sorted[length++] as Touched);
    while (length < revertPlantsMax / 2 && characters < revertCharactersMax / 2);
    idMax = (sorted[length - 1] as Touched).id;
    for (const { id, seq } of sorted.slice(length)) {
      found.delete(id);
      dropped = Math.min(dropped, seq);
    }
  };

  return {
    /** Sorted by id. */
    list,

    get size(): readonly [plants: number, characters: number] {
      return [found.size, characters];
    },

    /** The smallest number of a dropped change: the next pass starts there. */
    get dropped(): number {
      return dropped;
    },

    add({ seq, json }: ListedChange): void {
      const { id, plant, before } = parseChange(json);
      if (id > idMax) dropped = Math.min(dropped, seq);
      if (id <= handled || id > idMax) return;
      const known = found.get(id);
      const isMixed = known !== undefined && (known.isMixed || !isSameState(known.after, before));
      const touched = { seq, before, ...known, id, after: plant, isMixed };
      found.set(id, touched);
      characters += sizeOf(touched) - (known === undefined ? 0 : sizeOf(known));
      if (found.size > revertPlantsMax || characters > revertCharactersMax) shrink();
    },
  };
}

const sizeOf = ({ before, after }: Touched): number => lengthOf(before) + lengthOf(after);

/** Parses what `listChange` writes: the first id is that of the plant. */
function parseChange(json: string): Pick<Change, "id" | "plant" | "before"> {
  const id = BigInt(/"id":(-?\d+)/.exec(json)?.[1] as string);
  const { plant, before } = JSON.parse(json) as Pick<Change, "plant" | "before">;
  return { id, plant: plant && { ...plant, id }, before: before && { ...before, id } };
}

/** Plants in flight in the store: enough to share commits. */
const BLOCK_LENGTH = 256;

/**
 * Yields blocks, sorted by id. A pass reads the range to its end before its first plant, and yields an empty block per
 * page until then.
 */
export async function* readTouched(store: StoreView, range: Range, options: RevertOptions) {
  let handled = INT64_MIN - 1n;
  for (let { after } = range; after < Number.POSITIVE_INFINITY;) {
    const pass = createPass(options, handled);
    for await (const changes of readRange(store, { ...range, after }, options)) {
      for (const change of changes) pass.add(change);
      if (range.dryRun === true && pass.dropped < Number.POSITIVE_INFINITY)
        throw new Refusal("range_too_large");
      await options.retry(async () => options.reserve?.(...pass.size));
      yield [];
    }
    const plants = pass.list();
    for (let at = 0; at < plants.length; at += BLOCK_LENGTH)
      yield plants.slice(at, at + BLOCK_LENGTH);
    handled = plants.at(-1)?.id ?? handled;
    after = pass.dropped - 1;
  }
}

const PAGE_LENGTH = 1_000;

async function* readRange(
  store: StoreView,
  { from, to, by, batch, types, newest, after: start }: Range,
  { signal, retry }: RevertOptions,
): AsyncGenerator<ListedChange[]> {
  const last = Math.min(newest, to?.unit === "seq" ? to.value : newest);
  for (let after = start; after < last;) {
    signal.throwIfAborted();
    const query = { from, to, by, batch, types, after, limit: PAGE_LENGTH };
    const page = await retry(() => store.readChanges(query));
    yield page.changes.filter((change) => change.seq <= last);
    if (!page.hasMore) return;
    after = page.last;
  }
}

/** `changedSince` were left alone. `unchanged` were already in the state from before. */
export const startCounts = () => ({
  plants: 0,
  reverted: 0,
  unchanged: 0,
  changedSince: 0,
  refused: 0,
});

const judge = ({ before, after, isMixed }: Touched, now: Plant | undefined) => {
  if (isSameState(now, before)) return "unchanged";
  return isMixed || !isSameState(now, after) ? "changedSince" : "revertible";
};

/** Returns the plants that were not reverted, and why. */
export async function revertBlock(
  store: StoreView,
  block: readonly Touched[],
  writer: Writer,
  counts: ReturnType<typeof startCounts>,
  options: Pick<RevertOptions, "retry">,
): Promise<Left[]> {
  const plain = block.filter(({ isMixed }) => !isMixed);
  const written = (await writeBlock(store, plain.map(toWrite), writer, options)).values();
  const outcomes = await Promise.all(
    block.map(async (touched) => {
      if (!touched.isMixed) return written.next().value as Done | Refusal;
      const now = await options.retry(() => store.findPlant(touched.id)).catch(toRefusal);
      if (now instanceof Refusal) return now;
      return judge(touched, now) === "unchanged" ? "replayed" : refuseChanged();
    }),
  );
  const ids = block.map(({ id }) => id);
  return countBlock(counts, ids, outcomes, () => "reverted");
}

/** The write that returns a plant to its state before, if it is in the state after. */
function toWrite({ id, before, after }: Touched): PlantWrite {
  if (after === undefined)
    return before === undefined
      ? { kind: "remove", id, condition: NEVER, isLenient: true }
      : { kind: "create", id, plant: before };
  const condition = stillIs(after);
  return before === undefined
    ? { kind: "remove", id, condition, isLenient: true }
    : { kind: "upsert", id, plant: before, condition };
}

/** No plant has an empty entity tag. For a plant that the changes created and removed: there must be none. */
const NEVER = { match: ['""'] };

/** The ids of plants that would be created, but plants have them that the caller does not see. */
async function findTaken(
  store: StoreView,
  block: readonly Touched[],
  found: readonly (Plant | undefined)[],
  { retry }: Pick<RevertOptions, "retry">,
): Promise<ReadonlySet<bigint>> {
  const missing = block.filter((_, index) => found[index] === undefined);
  const creates = missing.map(toWrite).filter(({ kind }) => kind === "create");
  if (creates.length === 0) return new Set();
  const rehearsed = await retry(() => store.rehearse(creates));
  const taken = creates.filter((_, index) => {
    const { outcome } = rehearsed[index] as Rehearsal;
    return outcome instanceof Refusal && outcome.reason === "id_taken";
  });
  return new Set(taken.map(({ id }) => id));
}

/** Read-only. The sample has the current state of a plant, and the state that it would get. */
export async function previewRange(store: StoreView, range: Range, options: RevertOptions) {
  const counts = { plants: 0, revertible: 0, unchanged: 0, changedSince: 0 };
  const sample: { id: bigint; now: Content | undefined; before: Content | undefined }[] = [];
  const skipped: { id: bigint; now: Content | undefined }[] = [];
  for await (const block of readTouched(store, range, options)) {
    options.signal.throwIfAborted();
    const found = await Promise.all(
      block.map(({ id }) => options.retry(() => store.findPlant(id))),
    );
    const taken = await findTaken(store, block, found, options);
    for (const [index, touched] of block.entries()) {
      const { id, before } = touched;
      const fate = taken.has(id) ? "changedSince" : judge(touched, found[index]);
      counts.plants++;
      counts[fate]++;
      const stored = found[index];
      const now = stored && contentOf(stored);
      if (fate === "revertible" && sample.length < SAMPLE_LENGTH)
        sample.push({ id, now, before: before && contentOf(before) });
      if (fate === "changedSince" && skipped.length < SAMPLE_LENGTH) skipped.push({ id, now });
    }
  }
  return { ...counts, sample, skipped };
}
