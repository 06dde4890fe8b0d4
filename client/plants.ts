/** Plants on the wire, one by one and in lists. An id is a bigint, never a number, so no digit is lost. */

import {
  Connection,
  findNext,
  formatPairs,
  JSON_BODY,
  NDJSON_TYPE,
  PAGE_LENGTH,
  quoteIds,
  type WriteOptions,
} from "./connection.ts";
import { findJson, findWaitMs, ServiceError } from "./errors.ts";
import { Backoff, type RetryOptions } from "./retry.ts";

/** A plant without its id. */
export interface Content {
  readonly name: string;
  /** Undefined if the plant has none. */
  readonly tag?: string | undefined;
}

/** "replayed" means that the same plant was stored already. Nothing was changed. */
export type Created = "created" | "replayed";

export interface Plant extends Content {
  /** Any int64. */
  readonly id: bigint;
  /** When it last changed (ISO 8601), with `include`. Undefined if that is not known. */
  readonly changed?: string | undefined;
}

/** A plant to create, or the replacement of one. */
export type NewPlant = Plant;

/** A plant with the entity tag of its content, for `ifMatch`. */
export interface Versioned {
  readonly plant: Plant;
  readonly etag: string;
}

/** A merge patch: members that are left out stay as they are, and null removes the tag. */
export interface PlantPatch {
  readonly name?: string | undefined;
  readonly tag?: string | null | undefined;
}

export interface Filter {
  /** Exactly this tag. */
  readonly tag?: string | undefined;
  /** A substring of the name, case-insensitive. */
  readonly name?: string | undefined;
  /** Words in any order. Each must be in the name or the tag; case and accents are ignored. */
  readonly q?: string | undefined;
  /** Whether the plant has a tag. */
  readonly tagged?: boolean | undefined;
  /** By id; ascending by default. */
  readonly order?: "asc" | "desc" | undefined;
}

export interface ListQuery extends Filter {
  /** The id of the last plant seen; the list begins after it. */
  readonly after?: bigint | undefined;
  /** Adds the time of the last change to each plant. */
  readonly include?: "changed" | undefined;
}

export interface PageQuery extends ListQuery {
  /** 1 to 1000, 100 by default. A page may be shorter and still have a next one. */
  readonly limit?: number | undefined;
}

export interface SortedQuery extends Pick<PageQuery, "limit" | "include">, Omit<Filter, "order"> {
  /** By name, tag or time of the last change; `-` for descending. */
  readonly sort: "name" | "-name" | "tag" | "-tag" | "changed" | "-changed";
  /** The `cursor` of the page before, with the same sort. */
  readonly cursor?: string | undefined;
}

export interface SortedPage {
  readonly plants: readonly Plant[];
  /** The `cursor` of the next page; undefined on the last one. */
  readonly cursor: string | undefined;
}

export interface Page {
  readonly plants: readonly Plant[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: bigint | undefined;
}

export interface Count {
  readonly count: number;
  /** False if there may be more. */
  readonly exact: boolean;
}

/** If it is not exact, `next` is the `after` of the count that continues it. */
export interface PlantCount extends Count {
  readonly next?: bigint;
}

export function isCount(value: unknown): value is Count {
  const { count, exact } = (value ?? {}) as Partial<Count>;
  return typeof count === "number" && typeof exact === "boolean";
}

interface ChangeOptions extends WriteOptions {
  readonly ifMatch?: string | undefined;
}

export class PlantClient extends Connection {
  /**
   * Creates a plant, and resolves when it is on disk. Rejects with `id_taken` if a different plant has the id.
   *
   * @operation createPlant
   * @example
   * console.log(await client.create({ id: 9007199254740993n, name: "Ivy" })); // created
   * console.log(await client.create({ id: 9007199254740993n, name: "Ivy" })); // replayed
   */
  async create(plant: NewPlant, { batch, ...options }: WriteOptions = {}): Promise<Created> {
    const init = { method: "POST", headers: JSON_BODY, body: formatPlant(plant) };
    const { headers, text } = await this.ask(`/plants${formatPairs({ batch })}`, init, options);
    if (findContent(text) === undefined) throw this.notAPlantStore();
    return headers.get("idempotent-replayed") === "true" ? "replayed" : "created";
  }

  /**
   * Reads a plant, or rejects with `plant_not_found`. With `ifNoneMatch`, resolves to undefined if the plant still has
   * that etag.
   *
   * @operation readPlant
   * @example
   * const { plant, etag } = await client.get(1n);
   * console.log(plant); // { id: 1n, name: 'Rose', tag: 'shrub' }
   * console.log(await client.get(1n, { ifNoneMatch: etag })); // undefined
   */
  get(
    id: bigint,
    options?: RetryOptions & { readonly ifNoneMatch?: undefined },
  ): Promise<Versioned>;
  get(
    id: bigint,
    options: RetryOptions & { readonly ifNoneMatch: string },
  ): Promise<Versioned | undefined>;
  async get(
    id: bigint,
    { ifNoneMatch, ...options }: RetryOptions & { readonly ifNoneMatch?: string | undefined } = {},
  ): Promise<Versioned | undefined> {
    const headers = ifNoneMatch === undefined ? {} : { "if-none-match": ifNoneMatch };
    try {
      const answer = await this.ask(`/plants/${formatId(id)}`, { headers }, options);
      const [plant] = findPlants(`[${answer.text}]`) ?? [];
      const etag = findEtag(answer.headers);
      if (plant === undefined || etag === undefined) throw this.notAPlantStore();
      return { plant, etag };
    } catch (error) {
      const isUnchanged = error instanceof ServiceError && error.status === 304;
      if (isUnchanged && ifNoneMatch !== undefined) return undefined;
      throw error;
    }
  }

  /**
   * Replaces the name and the tag of the plant with this id. With `ifMatch`, rejects with `precondition_failed` if the
   * plant no longer has that etag; without it, the last writer wins.
   *
   * @operation replacePlant
   * @example
   * const { plant, etag } = await client.get(1n);
   * const saved = await client.replace({ ...plant, name: "Rosa" }, { ifMatch: etag });
   * console.log(saved.plant); // { id: 1n, name: 'Rosa', tag: 'shrub' }
   */
  async replace({ id, name, tag }: NewPlant, options: ChangeOptions = {}): Promise<Versioned> {
    return this.change("PUT", id, { name, tag }, options, { name, tag });
  }

  /**
   * Changes the members of the patch, and leaves the others; `{ tag: null }` removes the tag. `ifMatch` as for
   * `replace`.
   *
   * @operation patchPlant
   * @example
   * const { plant } = await client.patch(1n, { tag: null });
   * console.log(plant.tag); // undefined
   */
  async patch(id: bigint, patch: PlantPatch, options: ChangeOptions = {}): Promise<Versioned> {
    return this.change("PATCH", id, patch, options);
  }

  /** `wanted` is the plant that a replacement leaves; what a patch leaves follows from the plant that was there. */
  private async change(
    method: string,
    id: bigint,
    patch: PlantPatch,
    { ifMatch, batch, ...options }: ChangeOptions,
    wanted?: Content,
  ): Promise<Versioned> {
    const headers = { ...JSON_BODY, ...(ifMatch === undefined ? {} : { "if-match": ifMatch }) };
    const init = { method, headers, body: JSON.stringify(patch) };
    try {
      const path = `/plants/${formatId(id)}${formatPairs({ batch })}`;
      const answer = await this.ask(path, init, options);
      const [content, etag] = [findContent(answer.text), findEtag(answer.headers)];
      if (content === undefined || etag === undefined) throw this.notAPlantStore();
      return { plant: { id, ...(wanted ?? content) }, etag };
    } catch (error) {
      if (!(error instanceof ServiceError) || error.status !== 412) throw error;
      const current = await this.get(id, options).catch(() => undefined);
      // A retry after a lost answer finds its own change.
      const now = current?.plant;
      const { name, tag } = patch;
      const isDone =
        wanted === undefined
          ? (name === undefined || name === now?.name) &&
            (tag === undefined || (tag ?? undefined) === now?.tag)
          : wanted.name === now?.name && wanted.tag === now.tag;
      if (current !== undefined && isDone) return current;
      throw error;
    }
  }

  /**
   * Removes a plant. With `ifMatch`, rejects with `precondition_failed` if the plant no longer has that etag.
   *
   * @operation removePlant
   * @example
   * const { etag } = await client.get(3n);
   * await client.remove(3n, { ifMatch: etag });
   * console.log(await client.countPlants()); // { count: 2, exact: true }
   */
  async remove(id: bigint, { ifMatch, batch, ...options }: ChangeOptions = {}): Promise<void> {
    const headers = ifMatch === undefined ? {} : { "if-match": ifMatch };
    const path = `/plants/${formatId(id)}${formatPairs({ batch })}`;
    await this.removeAt(path, "plant_not_found", headers, options);
  }

  /**
   * A page of plants, by id.
   *
   * @operation listPlants
   * @example
   * const { plants, next } = await client.listPage({ q: "rose", limit: 1 });
   * console.log(plants[0]?.name, next); // Rose undefined
   */
  async listPage(query: PageQuery = {}, options?: RetryOptions): Promise<Page> {
    const init = { headers: { accept: "application/json" } };
    const { headers, text } = await this.ask(`/plants${formatQuery(query)}`, init, options);
    const plants = findPlants(text);
    const after = findNext(headers);
    const isPage = after === undefined || /^-?\d+$/.test(after ?? "");
    if (plants === undefined || !isPage) throw this.notAPlantStore();
    return { plants, next: after === undefined ? undefined : BigInt(after as string) };
  }

  /**
   * A page in the order of `sort`. The service scans all plants for each page. A plant that changes between two pages
   * may be on both, or on none.
   *
   * @operation listPlants
   * @example
   * const { plants, cursor } = await client.listSortedPage({ sort: "-name", limit: 2 });
   * console.log(plants.map(({ name }) => name)); // [ 'Tulip', 'Rose' ]
   * console.log((await client.listSortedPage({ sort: "-name", cursor })).plants.length); // 1
   */
  async listSortedPage(query: SortedQuery, options?: RetryOptions): Promise<SortedPage> {
    const init = { headers: { accept: "application/json" } };
    const { headers, text } = await this.ask(`/plants${formatQuery(query)}`, init, options);
    const plants = findPlants(text);
    const cursor = findNext(headers, "cursor");
    if (plants === undefined || cursor === null) throw this.notAPlantStore();
    return { plants, cursor };
  }

  /**
   * Iterates over all matching plants, page by page. Concurrent changes may or may not show.
   *
   * @operation listPlants
   * @example
   * for await (const { name } of client.list({ tagged: true })) console.log(name); // Rose, Tulip
   */
  async *list(query: ListQuery = {}, options?: RetryOptions): AsyncGenerator<Plant, void> {
    let { after } = query;
    do {
      const page: Page = await this.listPage({ ...query, after, limit: PAGE_LENGTH }, options);
      yield* page.plants;
      after = page.next;
    } while (after !== undefined);
  }

  /**
   * Streams all matching plants. It ends without an error only if it is complete.
   *
   * @operation listPlants
   * @example
   * for await (const { id } of client.export()) console.log(id); // 1n, 2n, 3n
   */
  async *export(query: ListQuery = {}, options?: RetryOptions): AsyncGenerator<Plant, void> {
    for await (const plants of this.exportBlocks(query, options)) yield* plants;
  }

  /**
   * Like `export`, in blocks. It resumes after a lost connection. Behind an HTTP/1.0 proxy a truncated stream looks
   * complete, so after the stream it reads pages from the last plant until one has no next link.
   *
   * @operation listPlants
   * @example
   * for await (const plants of client.exportBlocks({ order: "desc" })) console.log(plants.length); // 3
   */
  async *exportBlocks(
    filter: ListQuery = {},
    options: RetryOptions = {},
  ): AsyncGenerator<readonly Plant[], void> {
    const settings = { ...this.options, ...options };
    const { signal } = settings;
    const backoff = new Backoff(settings, findWaitMs);
    let { after } = filter;
    let isStreamed = false;
    for (;;) {
      try {
        if (!isStreamed)
          for await (const plants of this.streamPlants({ ...filter, after }, signal)) {
            backoff.reset();
            yield plants;
            after = plants.at(-1)?.id ?? after;
          }
        isStreamed = true;
        const query = { ...filter, after, limit: PAGE_LENGTH };
        const page: Page = await this.listPage(query, { signal, delaysMs: [] });
        if (page.plants.length > 0) yield page.plants;
        if (page.next === undefined) return;
        after = page.next;
      } catch (error) {
        await backoff.wait(error);
      }
    }
  }

  /**
   * Counts the matching plants, for a second at most. Add up the counts until one has no `next`.
   *
   * @operation countPlants
   * @example
   * console.log(await client.countPlants({ tag: "shrub" })); // { count: 1, exact: true }
   */
  async countPlants(filter: ListQuery = {}, options?: RetryOptions): Promise<PlantCount> {
    const path = `/plants/count${formatQuery({ ...filter, order: undefined })}`;
    const { headers, text } = await this.ask(path, {}, options);
    const count = findJson(text);
    if (!isCount(count)) throw this.notAPlantStore();
    const next = findNext(headers) ?? "";
    return /^-?\d+$/.test(next) ? { ...count, next: BigInt(next) } : count;
  }

  private async *streamPlants(
    query: PageQuery,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Plant[], void> {
    let { after } = query;
    const init = { headers: { accept: NDJSON_TYPE } };
    for await (const lines of this.readLines(`/plants${formatQuery(query)}`, init, signal)) {
      const plants = findPlants(`[${lines.join(",")}]`);
      const [first] = plants ?? [];
      // A stream that does not advance would be read forever.
      const isNext =
        first !== undefined &&
        (after === undefined || (query.order === "desc" ? first.id < after : first.id > after));
      if (plants === undefined || !isNext) throw this.notAPlantStore();
      yield plants;
      after = plants.at(-1)?.id;
    }
  }
}

/** Throws a TypeError unless the id is a bigint: a number may have lost digits. */
export function formatPlant({ id, name, tag }: NewPlant, more: object = {}): string {
  return `{"id":${formatId(id)},${JSON.stringify({ name, tag, ...more }).slice(1)}`;
}

export function formatId(id: bigint): string {
  if (typeof id === "bigint") return String(id);
  throw new TypeError(`id: expected a bigint, got ${typeof id}`);
}

/** A missing name does not compile: if a filter is not sent, every plant matches. */
const queryNames: Readonly<Record<keyof PageQuery | keyof SortedQuery, true>> = {
  tag: true,
  name: true,
  q: true,
  tagged: true,
  order: true,
  sort: true,
  cursor: true,
  after: true,
  limit: true,
  include: true,
};
/** Other members of the given object are not sent. */
const QUERY_NAMES = Object.keys(queryNames);

export function formatQuery(query: PageQuery | SortedQuery): string {
  const values: Readonly<Record<string, unknown>> = { ...query };
  return formatPairs(Object.fromEntries(QUERY_NAMES.map((name) => [name, values[name]])));
}

/** Undefined without an entity tag. `*` is none: as `ifMatch` it would match any content. */
const findEtag = (headers: Headers): string | undefined =>
  /^(W\/)?".*"$/.exec(headers.get("etag") ?? "")?.[0];

/** The plant without its id, in answer to a write; undefined if the text is something else. */
function findContent(json: string): Content | undefined {
  const { name, tag } = (findJson(json) ?? {}) as Partial<Content>;
  return typeof name === "string" ? { name, tag } : undefined;
}

/** Undefined if the text is not an array of plants. */
function findPlants(json: string): Plant[] | undefined {
  const found = findJson(quoteIds(json));
  if (!Array.isArray(found)) return undefined;
  const plants = found.flatMap((value: unknown) => findPlant(value) ?? []);
  return plants.length === found.length ? plants : undefined;
}

function findPlant(value: unknown): Plant | undefined {
  const { id, name, tag, changed } = (value ?? {}) as Record<keyof Plant, unknown>;
  const isPlant = typeof id === "string" && typeof name === "string";
  if (!isPlant || (tag !== undefined && typeof tag !== "string")) return undefined;
  if (!/^-?\d+$/.test(id)) return undefined;
  return {
    id: BigInt(id),
    name,
    ...(tag !== undefined && { tag }),
    ...(typeof changed === "string" && { changed }),
  };
}
