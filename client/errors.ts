/** The service's catalogue of errors. Later versions may add codes. */
export const errorNames = {
  /* table: errorNames */

  1001: "invalid_utf8",
  1002: "invalid_json",
  1003: "invalid_plant",
  1004: "invalid_id",
  1005: "invalid_query",
  1006: "invalid_precondition",
  1007: "invalid_body",
  1008: "invalid_encoding",
  2001: "token_missing",
  2002: "token_invalid",
  2003: "token_expired",
  2004: "insufficient_scope",
  2005: "tag_not_permitted",
  2006: "token_confined",
  3001: "id_taken",
  3002: "plant_not_found",
  3003: "precondition_failed",
  3004: "changes_gone",
  3005: "token_not_found",
  3006: "token_name_taken",
  3007: "last_manager",
  3008: "webhook_not_found",
  3009: "webhook_name_taken",
  3010: "store_full",
  3011: "webhooks_full",
  3012: "range_too_large",
  3013: "transaction_too_large",
  3014: "job_running",
  3015: "jobs_full",
  3016: "job_not_found",
  3017: "job_stopped",
  4001: "malformed_request",
  4002: "path_not_found",
  4003: "method_not_allowed",
  4004: "url_too_long",
  4005: "unsupported_media_type",
  4006: "unsupported_encoding",
  4007: "body_too_large",
  4008: "body_too_slow",
  4009: "body_incomplete",
  4010: "rate_limited",
  4011: "expectation_failed",
  5001: "internal",
  5002: "overloaded",
  5003: "store_unavailable",
  5004: "store_busy",
  5005: "shutting_down",
  5006: "disk_low",
  5007: "issuer_unavailable",
  5008: "store_down",
  5009: "store_refused",

  /* end */
} as const;

export type ErrorName = (typeof errorNames)[keyof typeof errorNames];

const BODY_INCOMPLETE = 4009;
const STORE_UNAVAILABLE = 5003;
const TRANSIENT_STATUSES = new Set([408, 429, 500, 502, 503, 504]);

/** Whether the same request may succeed later. */
export const isTransient = (status: number, code: number): boolean =>
  TRANSIENT_STATUSES.has(status) || code === BODY_INCOMPLETE;

/** Omitted members are unknown. */
export type FailureFacts = Partial<Omit<ServiceError, "name" | "stack" | "message" | "reason">> &
  Pick<ServiceError, "message">;

/** The service refused, or no usable answer came. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  /** 0 if no answer came: the request may or may not have taken effect. */
  readonly status: number = 0;
  /** The error code of the catalogue; 0 if the answer did not come from the service itself. */
  readonly code: number = 0;
  /** The name of the code; undefined for code 0, and for codes of a later version. */
  readonly reason: ErrorName | undefined;
  /** The message of the service itself. */
  readonly detail: string;
  /** Whether the same request may succeed later. */
  readonly isTransient: boolean = false;
  readonly retryAfterMs: number = 0;

  constructor({ message, cause, ...facts }: FailureFacts) {
    super(message, { cause });
    this.detail = message;
    Object.assign(this, facts);
    this.reason = nameOf(this.code);
  }
}

/** For what the service refuses each method, beyond what it may refuse any of them for. */
export interface Refusals {
  /* table: refusals */

  readonly create: "id_taken" | "store_full" | "job_running";
  readonly get: "plant_not_found";
  readonly replace: "plant_not_found" | "precondition_failed" | "job_running";
  readonly patch: "plant_not_found" | "precondition_failed" | "job_running";
  readonly remove: "plant_not_found" | "precondition_failed" | "job_running";
  readonly listPage: never;
  readonly listSortedPage: never;
  readonly list: never;
  readonly export: never;
  readonly exportBlocks: never;
  readonly countPlants: never;
  readonly listTagPage: never;
  readonly countTagPage: never;
  readonly listTags: never;
  readonly createBatch:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full";
  readonly createAll:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full";
  readonly upsertBatch:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full";
  readonly upsertAll:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full";
  readonly writeAtomic:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full";
  readonly followJob:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "changes_gone"
    | "store_full"
    | "range_too_large"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full"
    | "job_stopped";
  readonly listJobs: never;
  readonly findJob: never;
  readonly stopJob: "job_not_found";
  readonly previewPatch: "job_running" | "jobs_full";
  readonly previewRemoval: "job_running" | "jobs_full";
  readonly patchMatching: "job_running" | "jobs_full" | "job_stopped";
  readonly removeMatching: "job_running" | "jobs_full" | "job_stopped";
  readonly upsertByJob:
    | "id_taken"
    | "plant_not_found"
    | "precondition_failed"
    | "store_full"
    | "transaction_too_large"
    | "job_running"
    | "jobs_full"
    | "job_stopped";
  readonly listChangePage: "changes_gone";
  readonly countChangePage: "changes_gone";
  readonly findNewestChange: "changes_gone";
  readonly changes: "changes_gone";
  readonly previewRevert: "changes_gone" | "range_too_large" | "job_running" | "jobs_full";
  readonly revert: "changes_gone" | "range_too_large" | "job_running" | "jobs_full" | "job_stopped";
  readonly describeToken: never;
  readonly listTokenPage: never;
  readonly listTokens: never;
  readonly createToken: "token_name_taken";
  readonly revokeToken: "token_not_found" | "last_manager";
  readonly listWebhooks: never;
  readonly getWebhook: "webhook_not_found";
  readonly addWebhook: "changes_gone" | "webhook_name_taken" | "webhooks_full";
  readonly removeWebhook: "webhook_not_found";
  readonly testWebhook: "webhook_not_found";
  readonly pauseWebhook: "webhook_not_found";
  readonly resumeWebhook: "webhook_not_found";
  readonly skipWebhook: "webhook_not_found";
  readonly replayWebhook: "changes_gone" | "webhook_not_found";
  readonly rotateWebhook: "webhook_not_found";

  /* end */
}

/**
 * The error of a method, with the names that it may have.
 *
 * @example
 * const failure = await client.get(404n).catch((error: FailureOf<"get">) => error);
 * if (failure instanceof ServiceError && failure.reason === "plant_not_found")
 *   console.log(failure.status); // 404
 */
export type FailureOf<Method extends keyof Refusals> = ServiceError & {
  readonly reason: Refusals[Method] | Exclude<ErrorName, Refusals[keyof Refusals]> | undefined;
};

export const nameOf = (code: number): ErrorName | undefined =>
  (errorNames as Readonly<Record<number, ErrorName>>)[code];

/** The minimum wait before a retry; undefined if a retry cannot help. */
export const findWaitMs = (error: unknown): number | undefined =>
  error instanceof ServiceError && error.isTransient ? error.retryAfterMs : undefined;

/** Whether a write that failed like this may have taken effect. After any other failure it has not. */
export const mayBeDone = ({ status, code }: ServiceError): boolean =>
  [0, 500, 502, 504].includes(status) || code === STORE_UNAVAILABLE;

/** Node.js and Bun set these codes. A browser reports only that there was no answer. */
const TRANSIENT_LOSSES =
  /^(ECONNRESET|EPIPE|ETIMEDOUT|EAI_AGAIN|UND_ERR_.*|Z_.*|Z(LIB|STD).*|ShortRead)$/i;

const UNTRUSTED = /CERT|SIGNATURE|ALTNAME/;

/**
 * Explains a request without an answer. No retry helps with an unknown host or a bad certificate. A refused connection
 * is retried only if the service has answered before: it may be restarting.
 */
export function explainLoss(
  url: string,
  { wasReached, wasAnswered }: Readonly<Record<"wasReached" | "wasAnswered", boolean>>,
  cause: unknown,
): ServiceError {
  const { name, message, code } = findCause(cause);
  const lost = (sentence: string, mayRecover: boolean): ServiceError =>
    new ServiceError({ message: sentence, isTransient: mayRecover, cause });
  if (name === "TimeoutError") return lost(`${url} did not answer in time.`, true);
  if (code === "ECONNREFUSED" || code === "ConnectionRefused")
    return lost(`${url} cannot be reached.`, wasReached);
  if (code === "ENOTFOUND")
    return lost(`${url} cannot be reached: there is no host ${new URL(url).hostname}.`, false);
  if (code === "EPROTO")
    return lost(
      `${url} cannot be reached: the TLS handshake failed. Without TLS, its address begins with http.`,
      false,
    );
  const distrust = explainDistrust(cause);
  if (distrust !== undefined)
    return lost(`${url} has a certificate that is not trusted: ${distrust}.`, false);
  if (typeof code === "string" && !TRANSIENT_LOSSES.test(code))
    return lost(`${url} cannot be reached: ${message}.`, false);
  const { location: page } = globalThis as { readonly location?: { readonly origin: string } };
  if (!wasReached && page !== undefined && page.origin !== new URL(url).origin)
    return lost(
      `${url} cannot be reached from this page: it is not running, or PLANTSTORE_CORS_ORIGINS does not have ${page.origin}.`,
      false,
    );
  const advice = " If it has TLS, its address begins with https.";
  const isPlain = !wasAnswered && /^http:/i.test(url);
  return lost(`The connection to ${url} was lost.${isPlain ? advice : ""}`, true);
}

/** In the words of the runtime, except where Bun's are about its own `fetch`. */
export function explainDistrust(error: unknown): string | undefined {
  const { code, message } = findCause(error);
  if (typeof code !== "string" || !UNTRUSTED.test(code)) return undefined;
  return code === "ERR_TLS_CERT_ALTNAME_INVALID" ? "it is for another name" : message;
}

interface Cause {
  readonly name?: string;
  readonly message?: string;
  readonly code?: unknown;
}

/** Node.js wraps a network error in another error. */
function findCause(error: unknown): Cause {
  const { cause } = error as { cause?: Cause };
  return typeof cause?.code === "string" ? cause : (error as Cause);
}

const DETAIL_CHARACTERS_MAX = 200;

/** Turns an answer other than 2xx into an error: the service's code and message, or a proxy's status and text. */
export async function explainAnswer(url: string, response: Response): Promise<ServiceError> {
  const { status, headers } = response;
  const text = await response.text().catch(() => "");
  const { error, message } = (findJson(text) ?? {}) as { error?: unknown; message?: unknown };
  const isOurs = typeof error === "number" && typeof message === "string";
  const line = text.replaceAll(/\s+/g, " ").trim().slice(0, DETAIL_CHARACTERS_MAX);
  const detail = isOurs ? message : line || response.statusText || "no reason given";
  const code = isOurs ? error : 0;
  const location = headers.get("location");
  const isTokenRefused = status === 401 || status === 403;
  return new ServiceError({
    message: isTokenRefused
      ? `${url} does not accept the token: ${detail}`
      : location === null
        ? `${url} answers ${status}: ${detail}`
        : `${url} answers ${status} and refers to ${location}.`,
    status,
    code,
    detail,
    isTransient: isTransient(status, code),
    retryAfterMs: parseRetryAfter(headers.get("retry-after") ?? ""),
  });
}

/** Seconds, or a date (RFC 9110, section 10.2.3). */
function parseRetryAfter(text: string): number {
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return ms > 0 ? ms : 0;
}

export function findJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
