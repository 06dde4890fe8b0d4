/** Webhooks by the Standard Webhooks specification 1.0.0 (https://www.standardwebhooks.com). */

import { type Change, quoteIds } from "./changes.ts";

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
