/** Webhooks: managing them, and verifying what they send. */

import type { Change } from "./changes.ts";
import { findUnsentWaitMs, quoteIds } from "./connection.ts";
import { findJson } from "./errors.ts";
import type { RetryOptions } from "./retry.ts";
import { isNamed, TokenClient } from "./tokens.ts";

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
  /** Sends only changes of plants with one of these tags; null for the whole store. */
  readonly tags: readonly string[] | null;
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

export class WebhookClient extends TokenClient {
  /**
   * All webhooks.
   *
   * @operation listWebhooks
   * @example
   * for (const { name, state } of await client.listWebhooks()) console.log(name, state); // till active
   */
  async listWebhooks(options?: RetryOptions): Promise<readonly Webhook[]> {
    const webhooks = findJson((await this.ask("/webhooks", {}, options)).text);
    if (!Array.isArray(webhooks) || !webhooks.every(isNamed)) throw this.notAPlantStore();
    return webhooks as unknown as readonly Webhook[];
  }

  /**
   * A webhook with its last attempts. Rejects with `webhook_not_found`.
   *
   * @operation readWebhook
   * @example
   * console.log((await client.getWebhook("till")).types); // [ 'created', 'replaced', 'removed' ]
   */
  getWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("GET", pathOf(name), options);
  }

  /**
   * Sends every change from now on to the URL.
   *
   * @operation addWebhook
   * @example
   * const { name, secret } = await client.addWebhook({ url: "https://shop.example/plants" });
   * console.log(name, secret.startsWith("whsec_")); // shop.example true
   */
  addWebhook(webhook: NewWebhook, options?: RetryOptions): Promise<WithSecret> {
    return this.manage("POST", "/webhooks", options, webhook);
  }

  /**
   * Removes a webhook. What it has not delivered is dropped.
   *
   * @operation removeWebhook
   * @example
   * await client.removeWebhook("till");
   * console.log(await client.listWebhooks()); // []
   */
  removeWebhook(name: string, options?: RetryOptions): Promise<void> {
    return this.removeAt(pathOf(name), "webhook_not_found", {}, options);
  }

  /**
   * Sends one event of the type `webhook.test`.
   *
   * @operation testWebhook
   * @example
   * const { status, error } = await client.testWebhook("till");
   * console.log(status, error); // 204 null
   */
  async testWebhook(name: string, options?: RetryOptions): Promise<WebhookAttempt> {
    const init = { method: "POST" };
    const { text } = await this.ask(pathOf(name, "test"), init, options, findUnsentWaitMs);
    const attempt = findJson(text) as Partial<WebhookAttempt> | null | undefined;
    if (typeof attempt?.durationMs !== "number") throw this.notAPlantStore();
    return attempt as WebhookAttempt;
  }

  /**
   * Pauses a webhook: its changes wait in the journal.
   *
   * @operation pauseWebhook
   * @example
   * console.log((await client.pauseWebhook("till")).state); // paused
   */
  pauseWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "pause"), options);
  }

  /**
   * Resumes a webhook at its cursor.
   *
   * @operation resumeWebhook
   * @example
   * await client.pauseWebhook("till");
   * console.log((await client.resumeWebhook("till")).state); // active
   */
  resumeWebhook(name: string, options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "resume"), options);
  }

  /**
   * Skips the change whose delivery failed. `skipped` is its number; null if none had failed.
   *
   * @operation skipWebhook
   * @example
   * console.log((await client.skipWebhook("till")).skipped); // null
   */
  skipWebhook(
    name: string,
    options?: RetryOptions,
  ): Promise<Webhook & { readonly skipped: number | null }> {
    return this.manage("POST", pathOf(name, "skip"), options);
  }

  /**
   * Sends the changes after `from` again; 0 starts at the oldest in the journal.
   *
   * @operation replayWebhook
   * @example
   * console.log((await client.replayWebhook("till", "newest")).failures); // 0
   */
  replayWebhook(name: string, from: number | "newest", options?: RetryOptions): Promise<Webhook> {
    return this.manage("POST", pathOf(name, "replay"), options, { from });
  }

  /**
   * Gives a webhook a new secret. For 24 hours events are signed with the old one too.
   *
   * @operation rotateWebhook
   * @example
   * console.log((await client.rotateWebhook("till")).secret.startsWith("whsec_")); // true
   */
  rotateWebhook(name: string, options?: RetryOptions): Promise<WithSecret> {
    return this.manage("POST", pathOf(name, "rotate"), options);
  }
}

const pathOf = (name: string, action?: string): string =>
  `/webhooks/${encodeURIComponent(name)}${action === undefined ? "" : `/${action}`}`;

/** The payload of a webhook. */
export interface WebhookEvent {
  /** As in `plant.created`. Later versions may add types. */
  readonly type: string;
  /** The time of the event, ISO 8601. */
  readonly timestamp: string;
  /** Empty for the type `webhook.test`. */
  readonly data: Change;
}

/** The request did not come from the owner of the secret, or is too old. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
}

export interface VerifyOptions {
  /** The allowed clock skew, in either direction. */
  readonly toleranceSeconds?: number;
  readonly nowMs?: number;
}

/**
 * Resolves to the event if a signature matches one of the secrets (`whsec_…`), else rejects with a WebhookError.
 * `body` is the raw body of the request: parsed and serialized again, it would not match the signature.
 */
export async function verifyWebhook(
  body: string,
  headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>,
  secrets: string | readonly string[],
  { toleranceSeconds = 300, nowMs = Date.now() }: VerifyOptions = {},
): Promise<WebhookEvent> {
  const read = (name: string): string =>
    String((headers instanceof Headers ? headers.get(name) : headers[name]) ?? "");
  const [id, timestamp] = [read("webhook-id"), read("webhook-timestamp")];
  const ageSeconds = /^\d+$/.test(timestamp) ? nowMs / 1000 - Number(timestamp) : Number.NaN;
  if (!(Math.abs(ageSeconds) <= toleranceSeconds))
    throw new WebhookError("webhook-timestamp: missing, or too far from now");
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${body}`);
  const signatures = read("webhook-signature")
    .split(" ")
    .flatMap((signature) => (signature.startsWith("v1,") ? [toBytes(signature.slice(3))] : []));
  for (const secret of [secrets].flat()) {
    const bytes = toBytes(secret.replace(/^whsec_/, ""));
    if (bytes.length === 0) throw new TypeError("secret: expected whsec_ and base64");
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["verify"]);
    for (const signature of signatures)
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) return parseEvent(body);
  }
  throw new WebhookError("webhook-signature: no signature matches");
}

function parseEvent(body: string): WebhookEvent {
  const event = JSON.parse(quoteIds(body)) as WebhookEvent;
  const { id } = event.data as { readonly id?: string | bigint };
  return id === undefined ? event : { ...event, data: { ...event.data, id: BigInt(id) } };
}

/** Empty if the text is not base64. */
function toBytes(base64: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
