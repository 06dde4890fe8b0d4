/** The tags in use. */

import { findNext, formatPairs, PAGE_LENGTH } from "./connection.ts";
import { findJson } from "./errors.ts";
import { type Count, isCount, PlantClient } from "./plants.ts";
import type { RetryOptions } from "./retry.ts";

export interface TagQuery {
  readonly prefix?: string | undefined;
  /** The last tag seen; the page begins after it. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface TagPage {
  readonly tags: readonly string[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

export interface TagCount extends Count {
  readonly tag: string;
}

export interface TagCountPage {
  readonly tags: readonly TagCount[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

const isTagCount = (value: unknown): value is TagCount =>
  isCount(value) && typeof (value as Partial<TagCount>).tag === "string";

export class TagClient extends PlantClient {
  /**
   * A page of the tags in use.
   *
   * @operation listTags
   * @example
   * console.log(await client.listTagPage({ limit: 1 })); // { tags: [ 'bulb' ], next: 'bulb' }
   */
  async listTagPage(query: TagQuery = {}, options?: RetryOptions): Promise<TagPage> {
    return this.readTags("/tags", query, (tag) => typeof tag === "string", options);
  }

  /**
   * Like `listTagPage`, with the number of plants per tag.
   *
   * @operation countTags
   * @example
   * const { tags } = await client.countTagPage({ prefix: "sh" });
   * console.log(tags); // [ { tag: 'shrub', count: 1, exact: true } ]
   */
  async countTagPage(query: TagQuery = {}, options?: RetryOptions): Promise<TagCountPage> {
    return this.readTags("/tags/counts", query, isTagCount, options);
  }

  private async readTags<Tag>(
    path: string,
    { prefix, after, limit }: TagQuery,
    isTag: (value: unknown) => value is Tag,
    options: RetryOptions | undefined,
  ): Promise<{ readonly tags: readonly Tag[]; readonly next: string | undefined }> {
    const { headers, text } = await this.ask(
      path + formatPairs({ prefix, after, limit }),
      {},
      options,
    );
    const tags = findJson(text);
    const next = findNext(headers);
    if (!Array.isArray(tags) || !tags.every(isTag) || next === null) throw this.notAPlantStore();
    return { tags, next };
  }

  /**
   * All tags in use with this prefix.
   *
   * @operation listTags
   * @example
   * for await (const tag of client.listTags()) console.log(tag); // bulb, shrub
   */
  async *listTags(prefix = "", options?: RetryOptions): AsyncGenerator<string, void> {
    let after: string | undefined;
    do {
      const query = { prefix: prefix === "" ? undefined : prefix, after, limit: PAGE_LENGTH };
      const page: TagPage = await this.listTagPage(query, options);
      yield* page.tags;
      after = page.next;
    } while (after !== undefined);
  }
}
