/**
 * Confinement: a caller for a part of the store sees and changes only the plants that have one of its tags. Decided here,
 * for every caller and every engine: handlers, tools and commands do not know of it.
 */

import type { Change, Writer } from "./change.ts";
import { Refusal } from "./errors.ts";
import { contentRule } from "./faults.ts";
import { isAmong } from "./filter.ts";
import { TAG_PREFIX_CHARACTERS, takeTags } from "./page.ts";
import type { Plant } from "./plant.ts";
import type { StoreView, WholeStore } from "./store.ts";
import { type Confined, covers, type TokenRecord } from "./token.ts";

const TAGS_MAX = 32;
const tagRule = contentRule("tag");

/** The tags of a token. Each is kept once, in the order of their bytes. */
export const tagsRule = {
  optional: true,
  expected: `1 to ${TAGS_MAX} tags, each ${tagRule.expected(null)}`,
  find: (value: unknown): readonly string[] | undefined => {
    if (!Array.isArray(value) || value.length === 0) return undefined;
    const tags = [...new Set(value)].toSorted((one, other) => compareBytes(one, other));
    return tags.length <= TAGS_MAX && tags.every((tag) => tagRule.find(tag) !== undefined)
      ? tags
      : undefined;
  },
};

const compareBytes = (one: unknown, other: unknown): number =>
  Buffer.compare(Buffer.from(String(one)), Buffer.from(String(other)));

/** What a caller with these tags sees of a change; undefined if neither state of the plant is within them. */
export function narrowChange(change: Change, tags: readonly string[]): Change | undefined {
  const [plant, before] = [change.plant, change.before].map((state) => hide(state, tags));
  if (plant === undefined && before === undefined) return undefined;
  // Others may have moved the plant in or out.
  const type = before === undefined ? "created" : plant === undefined ? "removed" : "replaced";
  return { ...change, type, plant, before };
}

const hide = (plant: Plant | undefined, tags: readonly string[]): Plant | undefined =>
  plant !== undefined && isAmong(tags, plant.tag) ? plant : undefined;

const TOKENS_READ = 1_000;

/** The store for callers with these tags. */
export function confine(store: WholeStore, tags: readonly string[]): StoreView {
  const sign = (writer: Writer | undefined): Writer => ({ ...writer, within: tags });
  const isShown = (record: Confined): boolean => covers(tags, record);

  return {
    createPlant: (plant, writer) => store.createPlant(plant, sign(writer)),
    createPlants: (plants, writer) => store.createPlants(plants, sign(writer)),
    replacePlant: (plant, condition, writer) => store.replacePlant(plant, condition, sign(writer)),
    removePlant: (id, condition, writer) => store.removePlant(id, condition, sign(writer)),
    patchPlant: (id, patch, condition, writer) =>
      store.patchPlant(id, patch, condition, sign(writer)),
    writePlants: (writes, writer) => store.writePlants(writes, sign(writer)),
    writeAtomic: (writes, writer, refusal) => store.writeAtomic(writes, sign(writer), refusal),
    rehearse: (writes, writer, earlier) => store.rehearse(writes, sign(writer), earlier),

    findPlant: async (id) => hide(await store.findPlant(id), tags),
    readPlants: (query, form, signal) => store.readPlants({ ...query, within: tags }, form, signal),
    countPlants: (query, msMax) => store.countPlants({ ...query, within: tags }, msMax),
    listTags: async ({ prefix, after, limit }) => {
      const wanted = tags.filter(
        (tag) => tag.startsWith(prefix) && (after === undefined || compareBytes(tag, after) > 0),
      );
      const first = { order: "asc", after: undefined, limit: 1 } as const;
      const found = await Promise.all(wanted.map((tag) => store.listPlants({ ...first, tag })));
      const heads = wanted
        .filter((_, index) => found[index]?.plants.length === 1)
        .map((tag) => Array.from(tag).slice(0, TAG_PREFIX_CHARACTERS).join(""));
      return takeTags(
        [...new Set(heads)].map((head) => ({ head, bytes: 0 })),
        limit,
      );
    },

    readChanges: (query) => store.readChanges({ ...query, within: tags }),
    findChangeBefore: (seq) => store.findChangeBefore(seq),

    listWebhooks: async () => (await store.listWebhooks()).filter(isShown),
    addWebhook: (webhook) => store.addWebhook({ ...webhook, tags }),
    putWebhook: async (next, last) =>
      isShown(last) && (next === undefined || isShown(next)) && store.putWebhook(next, last),

    listTokens: async ({ after, limit }) => {
      const found: TokenRecord[] = [];
      for (let from = after; found.length < limit;) {
        const page = await store.listTokens({ after: from, limit: TOKENS_READ });
        found.push(...page.filter(isShown));
        const last = page.at(-1);
        if (last === undefined) break;
        from = last.hash;
      }
      return found.slice(0, limit);
    },
    createToken: async (token) => {
      if (isShown(token)) return store.createToken(token);
      throw new Refusal(
        "insufficient_scope",
        `tags: at most ${JSON.stringify(tags)}, those of the creating token`,
      );
    },
    revokeToken: async (hash, revokedAtMs, unlessLast) => {
      const token = await store.findToken(hash);
      if (token === undefined || !isShown(token)) return false;
      return store.revokeToken(hash, revokedAtMs, unlessLast);
    },
  };
}
