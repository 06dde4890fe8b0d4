/** All plants that match, in one request. */

import { formatUpsert, type Upsert, UPSERT } from "./batch.ts";
import { formatPairs, JSON_BODY, NDJSON_TYPE, quoteIds } from "./connection.ts";
import { findJson } from "./errors.ts";
import { type Bulk, type BulkOptions, JobClient, nameBatch, type UpsertedByJob } from "./jobs.ts";
import { type Content, type Filter, formatId, formatQuery, type PlantPatch } from "./plants.ts";
import type { RetryOptions } from "./retry.ts";

/** Which plants a bulk change concerns: those that match, or all of the store. */
export interface BulkFilter extends Filter {
  /** Every plant, in place of a filter. */
  readonly all?: boolean | undefined;
  /** Not these. Their ids are in the URL, which has at most 8,192 bytes. */
  readonly except?: readonly bigint[] | undefined;
}

/** What a change of all plants that match would do. */
export interface BulkPreview {
  /** The number of plants that match. */
  readonly plants: number;
  /** False if more may match. */
  readonly exact: boolean;
  /** Some plants that would be changed: as they are, and as they would be; undefined if removed. */
  readonly sample: readonly {
    readonly id: bigint;
    readonly now: Content;
    readonly after?: Content | undefined;
  }[];
}

function bulkPath(filter: BulkFilter, more: Readonly<Record<string, unknown>>): string {
  const { all, except = [] } = filter;
  const pairs = [formatQuery({ ...filter, order: undefined }), formatPairs({ all, ...more })];
  // A comma needs no encoding, which would make it three times as long.
  if (except.length > 0) pairs.push(`?except=${except.map(formatId).join(",")}`);
  const query = pairs.filter((part) => part !== "").map((part) => part.slice(1));
  return `/plants?${query.join("&")}`;
}

export class BulkClient extends JobClient {
  /**
   * How many plants match the filter, and what some of them would be after the patch. Changes nothing.
   *
   * @operation patchPlants
   * @example
   * const { plants, sample } = await client.previewPatch({ tag: "shrub" }, { tag: "hedge" });
   * console.log(plants, sample[0]?.after); // 1 { name: 'Rose', tag: 'hedge' }
   */
  previewPatch(
    filter: BulkFilter,
    patch: PlantPatch,
    options?: RetryOptions,
  ): Promise<BulkPreview> {
    const init = { method: "PATCH", headers: JSON_BODY, body: JSON.stringify(patch) };
    return this.preview(bulkPath(filter, { dry_run: true }), init, options);
  }

  /**
   * How many plants match the filter, and some of them. Changes nothing.
   *
   * @operation removePlants
   * @example
   * const { plants, exact } = await client.previewRemoval({ tagged: true });
   * console.log(plants, exact); // 2 true
   */
  previewRemoval(filter: BulkFilter, options?: RetryOptions): Promise<BulkPreview> {
    const path = bulkPath(filter, { dry_run: true });
    return this.preview(path, { method: "DELETE" }, options);
  }

  /**
   * Changes all plants that match; without a filter, or `all`, it is refused. A plant that others change meanwhile is
   * left alone. If it is interrupted, it is sent again, and continues: the counts are those of the last attempt.
   *
   * @operation patchPlants, listJobs
   * @example
   * const { replaced } = await client.patchMatching({ tagged: false }, { tag: "to sort" });
   * console.log(replaced); // 1
   */
  patchMatching(
    filter: BulkFilter,
    patch: PlantPatch,
    { batch = nameBatch("change"), ...options }: BulkOptions<Bulk> = {},
  ): Promise<Bulk> {
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "PATCH", headers, body: JSON.stringify(patch) };
    return this.runBulk<Bulk>(bulkPath(filter, { batch }), init, options);
  }

  /**
   * Removes all plants that match, like `patchMatching`.
   *
   * @operation removePlants, listJobs
   * @example
   * const { removed } = await client.removeMatching({ all: true, except: [1n] });
   * console.log(removed); // 2
   */
  removeMatching(
    filter: BulkFilter,
    { batch = nameBatch("remove"), ...options }: BulkOptions<Bulk> = {},
  ): Promise<Bulk> {
    // As in `removeAt`: Bun's fetch repeats a DELETE without telling.
    const init = { method: "DELETE", headers: { accept: NDJSON_TYPE }, keepalive: false };
    return this.runBulk<Bulk>(bulkPath(filter, { batch }), init, options);
  }

  /**
   * Like `upsertBatch`, in one request of at most 1 MiB that the service finishes, even without this client: `stopJob`
   * ends it. A write that is malformed refuses all of them.
   *
   * @operation createPlants, listJobs
   * @example
   * const { created, replaced } = await client.upsertByJob([
   *   { id: 1n, name: "Rosa" },
   *   { id: 4n, name: "Ivy" },
   * ]);
   * console.log(created, replaced); // 1 1
   */
  upsertByJob(
    writes: readonly Upsert[],
    {
      batch = nameBatch("upsert"),
      ...options
    }: Omit<BulkOptions<UpsertedByJob>, "respondAsync"> = {},
  ): Promise<UpsertedByJob> {
    const body = `[${writes.map(formatUpsert).join(",")}]`;
    const path = `/plants/batch${formatPairs({ ...UPSERT, batch })}`;
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "POST", headers, body };
    return this.runBulk<UpsertedByJob>(path, init, { ...options, respondAsync: true });
  }

  protected async preview<Preview>(
    path: string,
    init: RequestInit,
    options: RetryOptions | undefined,
  ): Promise<Preview> {
    const preview = findPreview((await this.ask(path, init, options)).text);
    if (preview === undefined) throw this.notAPlantStore();
    return preview as Preview;
  }
}

/** Undefined if the text is not a preview. */
function findPreview(json: string): unknown {
  const found = findJson(quoteIds(json)) as
    (BulkPreview & { readonly skipped?: BulkPreview["sample"] }) | undefined;
  if (!Array.isArray(found?.sample) || typeof found.plants !== "number") return undefined;
  for (const plant of [...found.sample, ...(found.skipped ?? [])])
    Object.assign(plant, { id: BigInt(plant.id) });
  return found;
}
