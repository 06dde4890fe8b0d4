/**
 * The catalogue: every failure the service can answer, and nothing else.
 *
 * Append only. A code, once released, is never renumbered or reused, because callers branch on it.
 * 1xxx what was sent, 2xxx who sent it, 3xxx what the store holds, 4xxx how it was sent, 5xxx us.
 */

interface CatalogueEntry {
  /** The int32 `error` of the answer. */
  readonly code: number;
  readonly status: number;
  /** The `message` unless something more exact is known, and the text in docs/errors.md. */
  readonly meaning: string;
  /** Whether the very same request can succeed later. */
  readonly retry: boolean;
}

const final = (code: number, status: number, meaning: string): CatalogueEntry => ({
  code,
  status,
  meaning,
  retry: false,
});
const transient = (...entry: Parameters<typeof final>): CatalogueEntry => ({
  ...final(...entry),
  retry: true,
});

export const catalogue = {
  invalid_utf8: final(1001, 400, "The body is not valid UTF-8."),
  invalid_json: final(1002, 400, "The body is not valid JSON."),
  invalid_plant: final(
    1003,
    400,
    "The body is JSON but not a plant; the message names every fault.",
  ),
  invalid_id: final(1004, 400, "The id in the path is not an int64 in plain decimal digits."),
  invalid_query: final(
    1005,
    400,
    "A query parameter is unknown, repeated or out of range; the message names every one.",
  ),
  invalid_precondition: final(
    1006,
    400,
    "If-Match or If-None-Match is neither * nor a list of entity tags.",
  ),
  invalid_body: final(
    1007,
    400,
    "The body is JSON but not what this operation takes; the message names every fault.",
  ),
  token_missing: final(2001, 401, "No bearer token was sent."),
  token_invalid: final(2002, 401, "The bearer token is malformed, unknown or revoked."),
  token_expired: final(2003, 401, "The bearer token has expired."),
  insufficient_scope: final(
    2004,
    403,
    "The bearer token lacks the scope that this operation needs.",
  ),
  id_taken: final(3001, 409, "A different plant has this id; nothing was changed."),
  plant_not_found: final(3002, 404, "There is no plant with this id."),
  precondition_failed: final(
    3003,
    412,
    "The plant is not as If-Match or If-None-Match asks; nothing was changed.",
  ),
  changes_gone: final(
    3004,
    410,
    "The changes after this number are not kept any more; the message says where to start again.",
  ),
  token_not_found: final(3005, 404, "There is no token with this id."),
  token_name_taken: final(3006, 409, "A token in use has this name; nothing was changed."),
  last_manager: final(
    3007,
    409,
    "No other token can manage tokens, so this one is not revoked; make another one first.",
  ),
  webhook_not_found: final(3008, 404, "There is no webhook with this name."),
  webhook_name_taken: final(3009, 409, "A webhook has this name; nothing was changed."),
  store_full: final(3010, 409, "The store holds as many plants as it may; nothing was stored."),
  webhooks_full: final(
    3011,
    409,
    "There are as many webhooks as this service takes; remove one first.",
  ),
  malformed_request: final(
    4001,
    400,
    "The request's Host header is empty, repeated or not a host.",
  ),
  path_not_found: final(4002, 404, "There is nothing at this path."),
  method_not_allowed: final(
    4003,
    405,
    "This path does not take this method; the Allow header lists those it takes.",
  ),
  url_too_long: final(4004, 414, "The URL is longer than this service reads."),
  unsupported_media_type: final(
    4005,
    415,
    "The body must be declared as what this operation takes, JSON or lines of it, in UTF-8.",
  ),
  unsupported_encoding: final(4006, 415, "The body must be sent without a content encoding."),
  body_too_large: final(4007, 413, "The body is larger than this service reads."),
  body_too_slow: transient(4008, 408, "The body did not arrive in time."),
  body_incomplete: transient(4009, 400, "The connection ended before the body did."),
  rate_limited: transient(
    4010,
    429,
    "The token has used up its rate; Retry-After says when it can go on.",
  ),
  internal: transient(
    5001,
    500,
    "Something went wrong on our side; the log has it under the request id.",
  ),
  overloaded: transient(
    5002,
    503,
    "More requests are waiting than this service takes; nothing was stored.",
  ),
  store_unavailable: transient(5003, 503, "The store cannot write or read at the moment."),
  store_busy: transient(
    5004,
    503,
    "The store did not get to this request in time; nothing was stored.",
  ),
  shutting_down: transient(5005, 503, "The service is shutting down."),
  disk_low: transient(
    5006,
    503,
    "Too little disk space is free for a new plant; nothing was stored.",
  ),
};

export type ErrorName = keyof typeof catalogue;

/** A failure with a place in the catalogue: the only kind whose message reaches a caller. */
export class Refusal extends Error {
  readonly reason: ErrorName;

  constructor(reason: ErrorName, message: string = catalogue[reason].meaning, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Refusal";
    this.reason = reason;
  }
}

/** An error that is not a Refusal is a defect. Its message stays in the log. */
export function toRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal("internal", undefined, error);
}

/** A store cannot be opened. The message is written for the person who runs the command. */
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
