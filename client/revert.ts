/** Undoing changes. */

import { type Change, ChangeClient, type Moment } from "./changes.ts";
import { formatPairs, JSON_BODY, NDJSON_TYPE } from "./connection.ts";
import { type BulkOptions, nameBatch, type Reverted } from "./jobs.ts";
import type { Content } from "./plants.ts";
import type { RetryOptions } from "./retry.ts";

/** Which changes to undo: those that match everything given. Both ends belong to the range. */
export interface RevertRange {
  readonly from?: Moment | undefined;
  readonly to?: Moment | undefined;
  /** The name of a token. */
  readonly by?: string | undefined;
  readonly batch?: string | undefined;
  readonly types?: readonly Change["type"][] | undefined;
}

/** What undoing the changes would do. */
export interface RevertPreview {
  /** The number of plants that the changes concern. */
  readonly plants: number;
  readonly revertible: number;
  /** Plants that are in their earlier state already. */
  readonly unchanged: number;
  /** Plants changed since, which would be left alone. */
  readonly changedSince: number;
  /** A sample of the plants that would be undone: their state now, and after the undo. */
  readonly sample: readonly {
    readonly id: bigint;
    readonly now?: Content | undefined;
    readonly before?: Content | undefined;
  }[];
  /** A sample of the plants changed since. Earlier versions of the service do not tell. */
  readonly skipped?: readonly { readonly id: bigint; readonly now?: Content | undefined }[];
}

export class RevertClient extends ChangeClient {
  /**
   * What `revert` would do: counts, and a sample of plants. Rejects with `range_too_large` if the changes concern too many plants for it.
   *
   * @operation revertChanges
   * @example
   * await client.remove(1n, { batch: "autumn" });
   * console.log((await client.previewRevert({ batch: "autumn" })).sample); // [ { id: 1n, before: { name: 'Rose', tag: 'shrub' } } ]
   */
  async previewRevert(range: RevertRange, options?: RetryOptions): Promise<RevertPreview> {
    const body = JSON.stringify({ ...range, dryRun: true });
    const init = { method: "POST", headers: JSON_BODY, body };
    return this.preview("/changes/revert", init, options);
  }

  /**
   * Undoes changes. Calls `onLeft` for each plant that was left alone. If it is interrupted, it is sent again and
   * continues: `unchanged` then counts what was undone before, and a plant may be left a second time.
   *
   * @operation revertChanges, listJobs
   * @example
   * await client.remove(1n, { batch: "frost" });
   * console.log((await client.revert({ batch: "frost" })).reverted); // 1
   */
  async revert(
    range: RevertRange,
    { batch = nameBatch("revert"), ...options }: BulkOptions<Reverted> = {},
  ): Promise<Reverted> {
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "POST", headers, body: JSON.stringify(range) };
    return this.runBulk<Reverted>(`/changes/revert${formatPairs({ batch })}`, init, options);
  }
}
