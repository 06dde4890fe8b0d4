/**
 * The catalogue: every failure the service can answer, and nothing else.
 *
 * Append only. A code, once released, is never renumbered or reused, because callers branch on it.
 * 1xxx what was sent, 2xxx who sent it, 3xxx what the store holds, 4xxx how it was sent, 5xxx us.
 */

/** The status, and the OpenAPI responses that list the error. Operations share responses. */
const plants = "400 BadPlant BadReplacement";
const bodies = `${plants} BadBody BadPatch` as const;
const conditions = "400 BadCondition BadReplacement BadPatch";
const queries = `${bodies} BadCondition BadQuery` as const;
const requests = `${queries} BadRequest` as const;

/**
 * The int32 `error`, its status and OpenAPI responses, and its meaning: the default `message`. The OpenAPI document,
 * the client's table and that of docs/api.md are generated from this.
 */
const table = {
  invalid_utf8: `1001 ${bodies}: The body is not valid UTF-8.`,
  invalid_json: `1002 ${bodies}: The body is not valid JSON.`,
  invalid_plant: `1003 ${plants}: The body is JSON but not a plant; the message names every fault.`,
  invalid_id: `1004 ${conditions}: The id in the path is not an int64 in plain decimal digits.`,
  invalid_query: `1005 ${queries}: A query parameter is unknown, repeated or out of range; the message names every one.`,
  invalid_precondition: `1006 ${conditions}: If-Match or If-None-Match is neither * nor a list of entity tags.`,
  invalid_body:
    "1007 400 BadBody BadPatch: The body is JSON but not what this operation takes; the message names every fault.",
  token_missing: "2001 401 Unauthorized: No bearer token was sent.",
  token_invalid: "2002 401 Unauthorized: The bearer token is malformed, unknown or revoked.",
  token_expired: "2003 401 Unauthorized: The bearer token has expired.",
  insufficient_scope:
    "2004 403 Forbidden: The token lacks the scope for this operation, or cannot grant what was requested.",
  id_taken: "3001 409 IdTaken BatchConflict: A different plant has this id; nothing was changed.",
  plant_not_found: "3002 404 PlantNotFound: There is no plant with this id.",
  precondition_failed:
    "3003 412 PreconditionFailed: The plant does not match If-Match or If-None-Match; nothing was changed.",
  changes_gone:
    "3004 410 ChangesGone: The cursor is no longer in the journal; the message says where to restart.",
  token_not_found: "3005 404 TokenNotFound: There is no token with this id.",
  token_name_taken: "3006 409 TokenNameTaken: A token in use has this name; nothing was changed.",
  last_manager:
    "3007 409 LastManager: This is the last token that can manage tokens; create another before you revoke it.",
  webhook_not_found: "3008 404 WebhookNotFound: There is no webhook with this name.",
  webhook_name_taken: "3009 409 WebhookConflict: A webhook has this name; nothing was changed.",
  store_full:
    "3010 409 IdTaken BatchConflict: The store has reached its plant limit; nothing was stored.",
  webhooks_full:
    "3011 409 WebhookConflict: There are as many webhooks as this service takes; remove one first.",
  range_too_large: "3012 409 RangeTooLarge: The changes concern too many plants for a dry run.",
  transaction_too_large:
    "3013 409 BatchConflict: The stored plants that an atomic batch changes are too large for one transaction; nothing was changed.",
  malformed_request: `4001 ${requests}: The request's Host header is empty, repeated or not a host.`,
  path_not_found: "4002 404: There is nothing at this path.",
  method_not_allowed:
    "4003 405: This path does not take this method; the Allow header lists those it takes.",
  url_too_long: "4004 414 UrlTooLong: The URL exceeds the limit.",
  unsupported_media_type:
    "4005 415 UnsupportedBody: The Content-Type must be one that this operation accepts (JSON or NDJSON), in UTF-8.",
  unsupported_encoding:
    "4006 415 UnsupportedBody: The body must be sent without a content encoding.",
  body_too_large: "4007 413 BodyTooLarge: The body exceeds the limit.",
  body_too_slow: "4008 408 BodyTooSlow: The body did not arrive in time.",
  body_incomplete: `4009 ${bodies}: The connection ended before the body did.`,
  rate_limited:
    "4010 429 RateLimited: The token has used up its rate; Retry-After says when to try again.",
  expectation_failed:
    "4011 417 ExpectationFailed: The service answers Expect: 100-continue in lower case alone; send the body without that header.",
  internal: "5001 500 InternalError: Internal error; find it in the log by the request id.",
  overloaded:
    "5002 503 Unavailable: The write queue or the memory budget is full; nothing was stored.",
  store_unavailable:
    "5003 503 Unavailable: The store is temporarily unavailable; a write may have been stored, and a retry settles it.",
  store_busy: "5004 503 Unavailable: The request timed out in the queue; nothing was stored.",
  shutting_down: "5005 503 Unavailable: The service is shutting down.",
  disk_low:
    "5006 503 Unavailable: Too little disk space is free for a new plant; nothing was stored.",
  issuer_unavailable:
    "5007 503 Unavailable: The key of the JWT is unknown, and the issuer's keys could not be fetched.",
  store_down: "5008 503 Unavailable: The store cannot be reached or is locked; nothing was stored.",
  store_refused:
    "5009 503 Unavailable: The database refuses this service until an operator acts; nothing was stored.",
} as const satisfies Record<string, `${number} ${number}${string}: ${string}`>;

export type ErrorName = keyof typeof table;
type Words<Text> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text;
type Answers<Text> = Text extends `${infer Head}: ${string}` ? Words<Head> : never;
export type FailureName = Exclude<Answers<(typeof table)[ErrorName]>, `${number}`>;

function parseEntry(name: string, text: string) {
  const [head = "", meaning = ""] = text.split(/: (.*)/);
  const [code, first, ...failures] = head.split(" ");
  const status = Number(first);
  /** Whether the same request can succeed on a retry. */
  const retry = status >= 500 || status === 408 || status === 429 || name === "body_incomplete";
  return { code: Number(code), status, failures, meaning, retry };
}

export const catalogue = Object.fromEntries(
  Object.entries(table).map(([name, text]) => [name, parseEntry(name, text)]),
) as Readonly<Record<ErrorName, ReturnType<typeof parseEntry>>>;

/** An error from the catalogue: the only kind whose message reaches a client. */
export class Refusal extends Error {
  readonly reason: ErrorName;

  constructor(reason: ErrorName, message: string = catalogue[reason].meaning, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Refusal";
    this.reason = reason;
  }
}

/** An error that is not a Refusal is a defect. Its message stays in the log. */
export const toRefusal = (error: unknown): Refusal =>
  error instanceof Refusal ? error : new Refusal("internal", undefined, error);

/** Error fields that JSON and structured clone would drop. PostgreSQL's own code is in `errno`. */
export function describeError(error: Error): Readonly<Record<string, unknown>> {
  const { name, message, stack, cause } = error;
  const { code, errno, path } = error as Partial<Record<"code" | "errno" | "path", unknown>>;
  return { name, message, code, errno, path, stack, cause };
}

/** The store cannot be opened. The message is for the operator. */
export class StoreOpenError extends Error {
  override readonly name = "StoreOpenError";
}

export function refuseNewerSchema(version: number, newest: number, location: string): void {
  if (version > newest)
    throw new StoreOpenError(
      `${location} has schema ${version}, and this version of plantstore knows schemas up to ${newest}. ` +
        "A newer plantstore wrote it; start that one.",
    );
}
