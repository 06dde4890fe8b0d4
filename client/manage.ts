/** Tokens, webhooks, and undoing changes, for programs that manage a service. */

import {
  type Bulk,
  type BulkOptions,
  type BulkPreview,
  type Change,
  findBulkLine,
  findJobs,
  findPreview,
  type Job,
  type Reverted,
  type RevertPreview,
  type RevertRange,
  toLeft,
} from "./changes.ts";
import { Connection, findUnsentWaitMs, NDJSON_TYPE } from "./connection.ts";
import { findJson, findWaitMs, isTransient, ServiceError } from "./errors.ts";
import { findNext, formatPairs, formatQuery } from "./plants.ts";
import { retry, type RetryOptions, sleep } from "./retry.ts";

/** A token without its secret. Times are in ISO 8601. */
export interface Token {
  readonly id: string;
  readonly name: string;
  /** The first characters of the secret. */
  readonly prefix: string;
  readonly scopes: readonly string[];
  readonly created: string;
  readonly expires: string | null;
  readonly lastUsed: string | null;
  readonly revoked: string | null;
  /** As in `100/s`; null for the default of the service. */
  readonly rate: string | null;
}

export interface NewToken {
  /** Unique among the tokens in use. */
  readonly name: string;
  readonly scopes: readonly string[];
  /** A duration as in `90d`, a date or a time. By default the token does not expire. */
  readonly expires?: string | null | undefined;
  /** As in `100/s`, or `none`. */
  readonly rate?: string | null | undefined;
}

export interface TokenQuery {
  /** The id of the last token seen; the page begins after it. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface TokenPage {
  readonly tokens: readonly Token[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

/** One attempt to deliver an event. */
export interface WebhookAttempt {
  /** The `webhook-id` of the event. A test's starts with `msg_test_`. */
  readonly event: string;
  readonly time: string;
  readonly durationMs: number;
  /** The HTTP status; null without an answer. */
  readonly status: number | null;
  /** Why there was no answer. */
  readonly error: string | null;
  /** The beginning of the answer's body. */
  readonly answer: string | null;
}

/** A webhook without its secret. */
export interface Webhook {
  readonly name: string;
  readonly url: string;
  readonly types: readonly Change["type"][];
  readonly state: "active" | "paused";
  /** Why it is paused. */
  readonly reason: string | null;
  /** The cursor: the number of the last change that was delivered, skipped or filtered out. */
  readonly lastChange: number;
  /** Failed attempts since the last success. */
  readonly failures: number;
  readonly nextAttempt: string | null;
  readonly created: string;
  /** The last five, newest first. */
  readonly attempts: readonly WebhookAttempt[];
}

export interface NewWebhook {
  readonly url: string;
  /** By default the host of the URL. */
  readonly name?: string | undefined;
  /** By default all. */
  readonly types?: readonly Change["type"][] | undefined;
}

/** The secret is shown only once. */
type WithSecret = Webhook & { readonly secret: string };

export const PAGE_LENGTH = 1_000;

export const JSON_BODY = { "content-type": "application/json" };

type BulkRequest = Omit<RequestInit, "headers"> & {
  readonly headers: Readonly<Record<string, string>> & { readonly accept: string };
};

/** The service writes progress every second. Short work ends sooner. */
const FOLLOW_MS_MIN = 100;
const FOLLOW_MS_MAX = 1_000;

export class Manager extends Connection {
  async listTokenPage(
    { after, limit }: TokenQuery = {},
    options?: RetryOptions,
  ): Promise<TokenPage> {
    const { headers, text } = await this.ask(
      `/tokens${formatQuery({ after, limit })}`,
      {},
      options,
    );
    const tokens = findJson(text);
    const next = findNext(headers);
    if (!Array.isArray(tokens) || !tokens.every(isNamed) || next === null)
      throw this.notAPlantStore();
    return { tokens: tokens as unknown as readonly Token[], next };
  }

  /** All tokens ever made, in the order of their ids. */
  async *listTokens(options?: RetryOptions): AsyncGenerator<Token, void> {
    let after: string | undefined;
    do {
      const page: TokenPage = await this.listTokenPage({ after, limit: PAGE_LENGTH }, options);
      yield* page.tokens;
      after = page.next;
    } while (after !== undefined);
  }

  /** Only this answer has the secret. If the answer was lost, the name is taken: revoke that token. */
  createToken(
    token: NewToken,
    options?: RetryOptions,
  ): Promise<Token & { readonly token: string }> {
    return this.manage("POST", "/tokens", options, token);
  }

  async revokeToken(id: string, options?: RetryOptions): Promise<void> {
    await this.ask(`/tokens/${encodeURIComponent(id)}`, { method: "DELETE" }, options);
  }

  async listWebhooks(options?: RetryOptions): Promise<readonly Webhook[]> {
    const webhooks = findJson((await this.ask("/webhooks", {}, options)).text);
    if (!Array.isArray(webhooks) || !webhooks.every(isNamed)) throw this.notAPlantStore();
    return webhooks as unknown as readonly Webhook[];
  }

  getWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("GET", pathOf(name), options);
  }

  /** Sends every change from now on to the URL. */
  addWebhook(webhook: NewWebhook, options?: RetryOptions): Promise<WithSecret> {
    return this.manage("POST", "/webhooks", options, webhook);
  }

  removeWebhook(name: string, options?: RetryOptions): Promise<void> {
    return this.removeAt(pathOf(name), "webhook_not_found", {}, options);
  }

  /** Sends one event of the type `webhook.test`. */
  async testWebhook(name: string, options?: RetryOptions): Promise<WebhookAttempt> {
    const init = { method: "POST" };
    const { text } = await this.ask(pathOf(name, "test"), init, options, findUnsentWaitMs);
    const attempt = findJson(text) as Partial<WebhookAttempt> | null | undefined;
    if (typeof attempt?.durationMs !== "number") throw this.notAPlantStore();
    return attempt as WebhookAttempt;
  }

  pauseWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "pause"), options);
  }

  resumeWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "resume"), options);
  }

  /** Skips the change whose delivery failed. `skipped` is its number; null if none had failed. */
  skipWebhook(
    name: string,
    options?: RetryOptions,
  ): Promise<Webhook & { readonly skipped: number | null }> {
    return this.manage("POST", pathOf(name, "skip"), options);
  }

  /** Sends the changes after `from` again; 0 starts at the oldest in the journal. */
  replayWebhook(name: string, from: number | "newest", options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "replay"), options, { from });
  }

  /** For 24 hours events are signed with the old secret too. */
  rotateWebhook(name: string, options?: RetryOptions): Promise<WithSecret> {
    return this.manage("POST", pathOf(name, "rotate"), options);
  }

  /** Counts, and a sample of plants. Rejects with `range_too_large` if the changes concern too many plants for it. */
  async previewRevert(range: RevertRange, options?: RetryOptions): Promise<RevertPreview> {
    const body = JSON.stringify({ ...range, dryRun: true });
    const init = { method: "POST", headers: JSON_BODY, body };
    return this.preview("/changes/revert", init, options) as Promise<RevertPreview>;
  }

  protected async preview(
    path: string,
    init: RequestInit,
    options: RetryOptions | undefined,
  ): Promise<RevertPreview | BulkPreview> {
    const preview = findPreview((await this.ask(path, init, options)).text);
    if (preview === undefined) throw this.notAPlantStore();
    return preview;
  }

  /**
   * Undoes changes. Calls `onLeft` for each plant that was left alone. If it is interrupted, it is sent again and
   * continues: `unchanged` then counts what was undone before, and a plant may be left a second time.
   */
  async revert(
    range: RevertRange,
    { batch = nameBatch("revert"), ...options }: BulkOptions<Reverted> = {},
  ): Promise<Reverted> {
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "POST", headers, body: JSON.stringify(range) };
    return this.runBulk<Reverted>(`/changes/revert${formatPairs({ batch })}`, init, options);
  }

  /** Resolves to the counts of the last attempt. */
  protected runBulk<Counts>(path: string, init: BulkRequest, options: BulkOptions<Counts>) {
    const settings = { ...this.options, ...options };
    const attempt = (): Promise<Counts> =>
      settings.respondAsync === true
        ? this.followBulk(path, init, settings)
        : this.readBulk(path, init, settings);
    return retry(attempt, settings, findWaitMs);
  }

  private async readBulk<Counts>(
    path: string,
    init: BulkRequest,
    { onLeft, onProgress, signal }: BulkOptions<Counts>,
  ): Promise<Counts> {
    for await (const lines of this.readLines(path, init, signal))
      for (const text of lines) {
        const line = findBulkLine(text);
        if (line === undefined) throw this.notAPlantStore();
        const { complete, status = 0, error = 0, message = "", ...counts } = line;
        if (line.id !== undefined) onLeft?.(toLeft(line));
        else if (complete === true) return counts as Counts;
        else if (status === 0) onProgress?.(counts as Counts);
        else throw this.explainEnd(status, error, message);
      }
    throw this.explainLoss(new Error("the stream ended"), signal);
  }

  private async followBulk<Counts>(
    path: string,
    { headers, ...init }: BulkRequest,
    options: BulkOptions<Counts>,
  ): Promise<Counts> {
    const { signal } = options;
    const request = {
      ...init,
      headers: { ...headers, prefer: "respond-async" },
      signal: signal ?? null,
    };
    const response = await this.request(path, request);
    const text = await response.text().catch((error: unknown) => {
      throw this.explainLoss(error, signal);
    });
    const [job] = findJobs(`[${text}]`) ?? [];
    if (job === undefined) throw this.notAPlantStore();
    return this.followJob<Counts>(job.batch, options);
  }

  /** Waits for a job, and resolves to its counts. Rejects if it ended early, with `job_stopped` if it was stopped. */
  async followJob<Counts = Bulk | Reverted>(
    batch: string,
    { onLeft, onProgress, ...options }: Omit<BulkOptions<Counts>, "batch" | "respondAsync"> = {},
  ): Promise<Counts> {
    const { signal } = { ...this.options, ...options };
    for (let waitMs = FOLLOW_MS_MIN; ; waitMs = Math.min(2 * waitMs, FOLLOW_MS_MAX)) {
      await sleep(waitMs, signal);
      const job = await this.findJob(batch, options);
      const { complete, status = 0, error = 0, message = "", ...counts } = job?.report ?? {};
      if (job !== undefined) onProgress?.(counts as Counts);
      if (job?.state === "running" || job?.state === "stopping") continue;
      if (job?.state !== "ended")
        throw new ServiceError({
          message: `${this.url}: The service that did the work ended.`,
          isTransient: true,
        });
      for (const plant of job.left) onLeft?.(plant);
      if (complete === true) return counts as Counts;
      throw this.explainEnd(status, error, message);
    }
  }

  private explainEnd(status: number, code: number, detail: string): ServiceError {
    const facts = { status, code, detail, isTransient: isTransient(status, code) };
    return new ServiceError({ message: `${this.url}: ${detail}`, ...facts });
  }

  /** The work that runs, by any token, and what ended before: at most 32, the oldest first. */
  async listJobs(options?: RetryOptions): Promise<readonly Job[]> {
    return this.findJobs("/jobs", options);
  }

  async findJob(batch: string, options?: RetryOptions): Promise<Job | undefined> {
    return (await this.findJobs(`/jobs${formatPairs({ batch })}`, options))[0];
  }

  /** The job changes nothing after the answer. Rejects with `job_not_found`. */
  async stopJob(batch: string, options?: RetryOptions): Promise<void> {
    const init = { method: "DELETE", keepalive: false };
    await this.ask(`/jobs${formatPairs({ batch })}`, init, options);
  }

  private async findJobs(path: string, options: RetryOptions | undefined) {
    const jobs = findJobs((await this.ask(path, {}, options)).text);
    if (jobs === undefined) throw this.notAPlantStore();
    return jobs;
  }

  /** A POST is retried only if the service did nothing: a repeat could create a second secret. */
  private async manage<Answer>(
    method: string,
    path: string,
    options: RetryOptions | undefined,
    body?: object,
  ): Promise<Answer> {
    const init =
      body === undefined ? { method } : { method, headers: JSON_BODY, body: JSON.stringify(body) };
    const findWait = method === "POST" ? findUnsentWaitMs : undefined;
    const answer = findJson((await this.ask(path, init, options, findWait)).text);
    if (!isNamed(answer)) throw this.notAPlantStore();
    return answer as Answer;
  }
}

export const nameBatch = (name: string): string => `${name} ${new Date().toISOString()}`;

const pathOf = (name: string, action?: string): string =>
  `/webhooks/${encodeURIComponent(name)}${action === undefined ? "" : `/${action}`}`;

const isNamed = (value: unknown): value is { readonly name: string } =>
  typeof (value as { readonly name?: unknown } | null | undefined)?.name === "string";
