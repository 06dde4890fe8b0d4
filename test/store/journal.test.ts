/** Blocks of the journal and the pages that are cut from them, without an engine. */

import { expect, test } from "bun:test";
import { type Change, type ChangeQuery, writerOf } from "../../src/domain/change.ts";
import type { Plant } from "../../src/domain/plant.ts";
import {
  type BlockRow,
  createChangePage,
  JournalBlock,
  parseEntries,
} from "../../src/store/journal.ts";
import { reasonOf } from "../support/expect.ts";

const plant = (id: bigint, name = "n", tag?: string): Plant => ({ id, name, tag });
const all: ChangeQuery = { after: 0, limit: 5, id: undefined, types: undefined };

/** A block of creates, numbered from `first`. */
function block(first: number, ...ids: number[]): BlockRow {
  const entries = new JournalBlock();
  for (const id of ids) entries.add(BigInt(id), undefined, plant(BigInt(id)));
  const last = BigInt(first + ids.length - 1);
  return { first: BigInt(first), last, at_ms: 1n, entries: entries.text };
}

/** Before it, changes were made that the journal does not have. */
const breakAt = (last: number): BlockRow => block(last + 1);

test("a run of creates ends at a pause, forwards and back", () => {
  const startUs = Date.UTC(2026, 10, 19) * 1000;
  const blocks = [
    block(startUs, 1, 2, 3),
    block(startUs + 9_000_000, 4),
    block(startUs + 20_000_000, 5),
    block(startUs + 29_000_000, 6, 7),
  ];
  for (const [order, expected] of [
    ["asc", [4, 3]],
    ["desc", [3, 4]],
  ] as const) {
    const page = createChangePage({ ...all, order, fold: "run" }, startUs + 30_000_000);
    for (const row of order === "asc" ? blocks : blocks.toReversed()) page.add(row);
    const lengths = page
      .finish(true)
      .changes.map(
        ({ json }) => (JSON.parse(json) as { folded: { created: number } }).folded.created,
      );
    expect(lengths).toEqual([...expected]);
  }
});

test("a block has all entries as one text", () => {
  const entries = new JournalBlock();
  const [fern, moss] = [plant(1n, "fern", "x"), plant(2n ** 53n, "moss")];
  entries.add(fern.id, { token: "till" }, fern);
  entries.add(moss.id, { token: "till" }, moss, plant(moss.id, "tree", ""));
  entries.add(fern.id, undefined, undefined, fern);
  entries.add(-1n, { token: "office" }, plant(-1n));
  expect([entries.count, entries.isFull]).toEqual([4, false]);
  expect(entries.text).toBe(
    '["c","till",1,"fern","x","r","","9007199254740992","moss",null,"tree","","d",null,1,"fern","x","c","office",-1,"n",null]',
  );
});

test("a block has every part of its writer, whichever are known", () => {
  const parts = Object.keys(writerOf({} as Change));
  expect(parts.length).toBeGreaterThan(2);
  for (let known = 0; known < 2 ** parts.length; known++) {
    const writer = Object.fromEntries(
      parts.map((part, at) => [part, (known >> at) % 2 === 1 ? `any ${part}` : undefined]),
    );
    const entries = new JournalBlock();
    entries.add(1n, writer, plant(1n));
    expect(parseEntries(entries.text).map(writerOf)).toEqual([writer as never]);
  }
});

test("a block of version 1.0 has the name of a token alone", () => {
  const [change] = parseEntries('["c","till",1,"n",null,"c","",2,"n",null]');
  expect(change).toMatchObject({ by: "till", batch: undefined, trace: undefined });
});

test("a block is full with 1 MiB of text", () => {
  const entries = new JournalBlock();
  entries.add(1n, undefined, plant(1n, "x".repeat(1_048_570), "12345"));
  expect(entries.isFull).toBe(false);
  entries.add(2n, undefined, undefined, plant(2n, "x"));
  expect(entries.isFull).toBe(true);
});

test("a block shows those of its entries that took effect, numbered without gaps", () => {
  const page = createChangePage(all, 11);
  page.add({ ...block(10, 1, 2, -3), last: 11n, kept: "[1,-3]" });
  const { changes } = page.finish();
  expect(changes.map(({ seq, json }) => `${seq} ${/"id":-?\d+/.exec(json)?.[0]}`)).toEqual([
    '10 "id":1',
    '11 "id":-3',
  ]);
});

const rows = [block(10, 1, 2), block(12, 3)];

test.each<[string, Partial<ChangeQuery>, BlockRow[], seqs: number[], rest: object]>([
  ["the oldest", {}, rows, [10, 11, 12], { last: 12, hasMore: false, newest: 12 }],
  ["a change inside a block", { after: 10 }, rows, [11, 12], { last: 12 }],
  ["the place before a block", { after: 9 }, rows, [10, 11, 12], { last: 12 }],
  ["the limit", { limit: 2 }, rows, [10, 11], { last: 11, hasMore: true, newest: 12 }],
  ["the last break", {}, [block(5, 1), breakAt(8), block(9, 2)], [9], { last: 9 }],
  ["an old break", { after: 10 }, [breakAt(10), block(11, 1)], [11], { last: 11 }],
  ["a plant", { id: 3n }, rows, [12], { last: 12 }],
  ["none that is wanted", { id: 9n }, [{ ...block(10, 1), entries: null }], [], { last: 10 }],
  ["no change at all", { after: 10, limit: 0 }, rows, [], { last: 10, hasMore: true }],
  ["nothing", {}, [], [], { last: 0, hasMore: true, newest: 12 }],
  ["blocks since", {}, [...rows, block(13, 4)], [10, 11, 12, 13], { last: 13, newest: 13 }],
])("a page of %s", (_name, asked, given, seqs, rest) => {
  const page = createChangePage({ ...all, ...asked }, 12, 1e9);
  for (const row of given) if (!page.add(row)) break;
  const { changes, ...ends } = page.finish();
  expect(changes.map(({ seq }) => seq)).toEqual(seqs);
  expect(ends).toMatchObject(rest);
  expect(page.last).toBe(ends.last);
});

test.each<[string, number, BlockRow[], string]>([
  ["a gap", 8, rows, "changes_gone"],
  ["a break", 9, [block(10, 1), breakAt(12)], "changes_gone"],
  ["no block", 7, [], "changes_gone"],
  ["no block yet", 2 ** 53 - 1, [], "changes_gone"],
])("a page behind which there is %s is refused", (_name, after, given, reason) => {
  const read = (): unknown => {
    const page = createChangePage({ ...all, after }, 12);
    for (const row of given) page.add(row);
    return page.finish();
  };
  expect(reasonOf(read)).toBe(reason as never);
});

test("a page with limit 0 tells by its first block whether the journal continues", () => {
  const page = createChangePage({ ...all, after: 11, limit: 0 }, 12);
  expect([page.add(rows[0] as BlockRow), page.add(rows[1] as BlockRow)]).toEqual([true, false]);
  expect(createChangePage({ ...all, limit: 1 }, 12).add(rows[0] as BlockRow)).toBe(false);
});

test("a page ends after 512 KiB of text, but not with the block of its cursor", () => {
  const add = (length: number, after = 0): boolean => {
    const text = `["c",null,1,"${"x".repeat(length - '["c",null,1,"",null]'.length)}",null]`;
    return createChangePage({ ...all, after }, 12).add({ ...block(10, 1), entries: text });
  };
  expect([add(524_287), add(524_288), add(524_288, 10)]).toEqual([true, false, true]);
});

test("a page with a filter ends when its time is over, but not before its 256th block", () => {
  const lengthOf = (query: Partial<ChangeQuery> = {}): number => {
    const page = createChangePage({ ...all, limit: 1_000, ...query }, 1_000, -1);
    let length = 1;
    while (length < 500 && page.add(block(length, 1))) length++;
    return length;
  };
  expect(lengthOf()).toBe(500);
  expect([lengthOf({ id: 7n }), lengthOf({ types: ["removed"] })]).toEqual([256, 256]);
});

test("a page that reads back ends at the start of its period", () => {
  const query = { ...all, order: "desc", from: { unit: "seq", value: 12 } } as const;
  const page = createChangePage(query, 12, 1e9);
  expect(rows.toReversed().map((row) => page.add(row))).toEqual([true, false]);
  const { changes, hasMore } = page.finish();
  expect([changes.map(({ seq }) => seq), hasMore]).toEqual([[12], false]);
});

test("fold=run has one entry for consecutive creates of one token, with the end of the run", () => {
  const entries = new JournalBlock();
  const [till, office] = [{ token: "till" }, { token: "office" }];
  for (const id of [1n, 2n]) entries.add(id, till, plant(id));
  entries.add(3n, office, plant(3n));
  entries.add(4n, { ...office, batch: "b" }, plant(4n));
  for (const id of [5n, 6n]) entries.add(id, office, plant(id));
  entries.add(5n, office, undefined, plant(5n));
  const row = { first: 10n, last: 16n, at_ms: 1n, entries: entries.text };
  const page = createChangePage({ ...all, limit: 9, order: "desc", fold: "run" }, 16, 1e9);
  page.add(row);
  type Shown = { readonly seq: number; readonly folded?: object; readonly foldedTo?: number };
  const shown = page.finish(true).changes.map(({ json }) => JSON.parse(json) as Shown);
  const created = (count: number) => ({ created: count, replaced: 0, removed: 0 });
  expect(shown.map(({ seq, folded, foldedTo }) => [seq, foldedTo, folded])).toEqual([
    [16, undefined, undefined],
    [15, 14, created(2)],
    [13, 13, created(1)],
    [12, 12, created(1)],
    [11, 10, created(2)],
  ]);
});
