/**
 * The catalogue: every failure the service can answer, and nothing else.
 *
 * Append only. A code, once released, is never renumbered or reused, because callers branch on it.
 * 1xxx what was sent, 2xxx who sent it, 3xxx what the store holds, 4xxx how it was sent, 5xxx us.
 */

/**
 * The int32 `error` of the answer, its status, and what it means: the `message` unless something more exact is known, and
 * the text in docs/errors.md.
 */
const table = {
  invalid_utf8: [1001, 400, "The body is not valid UTF-8."],
  invalid_json: [1002, 400, "The body is not valid JSON."],
  invalid_plant: [1003, 400, "The body is JSON but not a plant; the message names every fault."],
  invalid_id: [1004, 400, "The id in the path is not an int64 in plain decimal digits."],
  invalid_query: [
    1005,
    400,
    "A query parameter is unknown, repeated or out of range; the message names every one.",
  ],
  invalid_precondition: [
    1006,
    400,
    "If-Match or If-None-Match is neither * nor a list of entity tags.",
  ],
  invalid_body: [
    1007,
    400,
    "The body is JSON but not what this operation takes; the message names every fault.",
  ],
  token_missing: [2001, 401, "No bearer token was sent."],
  token_invalid: [2002, 401, "The bearer token is malformed, unknown or revoked."],
  token_expired: [2003, 401, "The bearer token has expired."],
  insufficient_scope: [
    2004,
    403,
    "The bearer token lacks the scope that this operation needs, or what it would hand out.",
  ],
  id_taken: [3001, 409, "A different plant has this id; nothing was changed."],
  plant_not_found: [3002, 404, "There is no plant with this id."],
  precondition_failed: [
    3003,
    412,
    "The plant is not as If-Match or If-None-Match asks; nothing was changed.",
  ],
  changes_gone: [
    3004,
    410,
    "The changes after this number are not kept any more; the message says where to start again.",
  ],
  token_not_found: [3005, 404, "There is no token with this id."],
  token_name_taken: [3006, 409, "A token in use has this name; nothing was changed."],
  last_manager: [
    3007,
    409,
    "No other token can manage tokens, so this one is not revoked; make another one first.",
  ],
  webhook_not_found: [3008, 404, "There is no webhook with this name."],
  webhook_name_taken: [3009, 409, "A webhook has this name; nothing was changed."],
  store_full: [3010, 409, "The store holds as many plants as it may; nothing was stored."],
  webhooks_full: [3011, 409, "There are as many webhooks as this service takes; remove one first."],
  range_too_large: [
    3012,
    409,
    "The changes concern more plants than a dry run looks at; nothing was changed.",
  ],
  malformed_request: [4001, 400, "The request's Host header is empty, repeated or not a host."],
  path_not_found: [4002, 404, "There is nothing at this path."],
  method_not_allowed: [
    4003,
    405,
    "This path does not take this method; the Allow header lists those it takes.",
  ],
  url_too_long: [4004, 414, "The URL is longer than this service reads."],
  unsupported_media_type: [
    4005,
    415,
    "The body must be declared as what this operation takes, JSON or lines of it, in UTF-8.",
  ],
  unsupported_encoding: [4006, 415, "The body must be sent without a content encoding."],
  body_too_large: [4007, 413, "The body is larger than this service reads."],
  body_too_slow: [4008, 408, "The body did not arrive in time."],
  body_incomplete: [4009, 400, "The connection ended before the body did."],
  rate_limited: [4010, 429, "The token has used up its rate; Retry-After says when to try again."],
  internal: [5001, 500, "Something went wrong on our side; the log has it under the request id."],
  overloaded: [5002, 503, "More requests are waiting than this service takes; nothing was stored."],
  store_unavailable: [5003, 503, "The store cannot write or read at the moment."],
  store_busy: [5004, 503, "The store did not get to this request in time; nothing was stored."],
  shutting_down: [5005, 503, "The service is shutting down."],
  disk_low: [5006, 503, "Too little disk space is free for a new plant; nothing was stored."],
} as const satisfies Record<string, readonly [code: number, status: number, meaning: string]>;

export type ErrorName = keyof typeof table;

type Entry = Readonly<{ code: number; status: number; meaning: string; retry: boolean }>;

/** Whether the very same request can succeed later. */
const isTransient = (name: string, status: number): boolean =>
  status >= 500 || status === 408 || status === 429 || name === "body_incomplete";

export const catalogue = Object.fromEntries(
  Object.entries(table).map(([name, [code, status, meaning]]) => [
    name,
    { code, status, meaning, retry: isTransient(name, status) },
  ]),
) as Readonly<Record<ErrorName, Entry>>;

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

/** What JSON and messages between threads would drop. PostgreSQL's own code is in `errno`. */
export function describeError(error: Error): Readonly<Record<string, unknown>> {
  const { name, message, stack, cause } = error;
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  return { name, message, code, errno, stack, cause };
}

/** A store cannot be opened. The message is written for the person who runs the command. */
export class StoreOpenError extends Error {
  override readonly name = "StoreOpenError";
}

export class UnreleasedStoreError extends StoreOpenError {
  constructor(location: string) {
    super(
      `${location} was made before version 1.0.0, by a version that was never released. Export its plants with that version, and import them into a new store.`,
    );
  }
}

export function refuseNewerSchema(version: number, newest: number, location: string): void {
  if (version > newest)
    throw new StoreOpenError(
      `${location} has schema ${version}, and this version of plantstore knows schemas up to ${newest}. ` +
        "A newer plantstore wrote it; start that one.",
    );
}
