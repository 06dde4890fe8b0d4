/** The HTTP client of a plant store, for browsers, Node, Bun and Deno. */

import { WebhookClient } from "./webhooks.ts";

export type { Outcome, Refused, Removal, Settle, Settled, Upsert, Upserted } from "./batch.ts";
export type { BulkPreview } from "./bulk.ts";
export type {
  Change,
  ChangeCount,
  ChangeCountPage,
  ChangeCountQuery,
  ChangePage,
  ChangeQuery,
} from "./changes.ts";
export type { ClientOptions, WriteOptions } from "./connection.ts";
export { type ErrorName, ServiceError } from "./errors.ts";
export type { Bulk, BulkOptions, Job, Reverted, RevertLeft, UpsertedByJob } from "./jobs.ts";
export type {
  BulkFilter,
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

/** Each noun has a file, whose class extends that of the noun before. */
export class Client extends WebhookClient {}
