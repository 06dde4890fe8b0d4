/** The HTTP client of a plant store, for browsers, Node, Bun and Deno. */

import { WebhookClient } from "./webhooks.ts";

export type {
  BatchOptions,
  Outcome,
  Refused,
  Removal,
  Settle,
  Settled,
  Upsert,
  Upserted,
} from "./batch.ts";
export type { BulkFilter, BulkPreview } from "./bulk.ts";
export type {
  Change,
  ChangeCount,
  ChangeCountPage,
  ChangeCountQuery,
  ChangePage,
  ChangeQuery,
} from "./changes.ts";
export type { ClientOptions, WriteOptions } from "./connection.ts";
export { type ErrorName, type FailureOf, type Refusals, ServiceError } from "./errors.ts";
export type { Bulk, BulkOptions, Job, Reverted, RevertLeft, UpsertedByJob } from "./jobs.ts";
export type {
  Content,
  Count,
  Created,
  Filter,
  ListQuery,
  NewPlant,
  Page,
  PageQuery,
  Plant,
  PlantCount,
  PlantPatch,
  SortedPage,
  SortedQuery,
  Versioned,
} from "./plants.ts";
export type { RetryOptions } from "./retry.ts";
export type { RevertPreview, RevertRange } from "./revert.ts";
export type { TagCount, TagCountPage, TagPage, TagQuery } from "./tags.ts";
export type { NewToken, Token, TokenFacts, TokenPage, TokenQuery } from "./tokens.ts";
export {
  type NewWebhook,
  type VerifyOptions,
  verifyWebhook,
  type Webhook,
  type WebhookAttempt,
  WebhookError,
  type WebhookEvent,
} from "./webhooks.ts";

/**
 * Each noun has a file, whose class extends that of the noun before. The examples begin with three plants (a rose with
 * the tag `shrub`, a tulip with the tag `bulb`, a fern), a token and a webhook `till`, and the finished job `tidy up`.
 */
export class Client extends WebhookClient {}
