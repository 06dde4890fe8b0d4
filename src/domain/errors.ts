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
  /** The `message` where nothing more exact is known, and the text in docs/errors.md. */
  readonly meaning: string;
  /** Whether the very same request can succeed later. */
  readonly retry: boolean;
}

export const catalogue = {
  invalid_utf8: {
    code: 1001,
    status: 400,
    meaning: "The body is not valid UTF-8.",
    retry: false,
  },
  invalid_json: {
    code: 1002,
    status: 400,
    meaning: "The body is not valid JSON.",
    retry: false,
  },
  invalid_plant: {
    code: 1003,
    status: 400,
    meaning: "The body is JSON but not a plant; the message names every fault.",
    retry: false,
  },
  invalid_id: {
    code: 1004,
    status: 400,
    meaning: "The id in the path is not an int64 in plain decimal digits.",
    retry: false,
  },
  invalid_query: {
    code: 1005,
    status: 400,
    meaning: "A query parameter is unknown, repeated or out of range; the message names every one.",
    retry: false,
  },
  invalid_precondition: {
    code: 1006,
    status: 400,
    meaning: "If-Match or If-None-Match is neither * nor a list of entity tags.",
    retry: false,
  },
  token_missing: {
    code: 2001,
    status: 401,
    meaning: "No bearer token was sent.",
    retry: false,
  },
  token_invalid: {
    code: 2002,
    status: 401,
    meaning: "The bearer token is malformed, unknown or revoked.",
    retry: false,
  },
  token_expired: {
    code: 2003,
    status: 401,
    meaning: "The bearer token has expired.",
    retry: false,
  },
  insufficient_scope: {
    code: 2004,
    status: 403,
    meaning: "The bearer token lacks the scope that this operation needs.",
    retry: false,
  },
  id_taken: {
    code: 3001,
    status: 409,
    meaning: "A different plant has this id; nothing was changed.",
    retry: false,
  },
  plant_not_found: {
    code: 3002,
    status: 404,
    meaning: "There is no plant with this id.",
    retry: false,
  },
  precondition_failed: {
    code: 3003,
    status: 412,
    meaning: "The plant is not as If-Match or If-None-Match asks; nothing was changed.",
    retry: false,
  },
  malformed_request: {
    code: 4001,
    status: 400,
    meaning: "The request's Host header is empty, repeated or not a host.",
    retry: false,
  },
  path_not_found: {
    code: 4002,
    status: 404,
    meaning: "There is nothing at this path.",
    retry: false,
  },
  method_not_allowed: {
    code: 4003,
    status: 405,
    meaning: "This path does not take this method; the Allow header lists those it takes.",
    retry: false,
  },
  url_too_long: {
    code: 4004,
    status: 414,
    meaning: "The URL is longer than this service reads.",
    retry: false,
  },
  unsupported_media_type: {
    code: 4005,
    status: 415,
    meaning:
      "The body must be declared as what this operation takes, JSON or lines of it, in UTF-8.",
    retry: false,
  },
  unsupported_encoding: {
    code: 4006,
    status: 415,
    meaning: "The body must be sent without a content encoding.",
    retry: false,
  },
  body_too_large: {
    code: 4007,
    status: 413,
    meaning: "The body is larger than this service reads.",
    retry: false,
  },
  body_too_slow: {
    code: 4008,
    status: 408,
    meaning: "The body did not arrive in time.",
    retry: true,
  },
  body_incomplete: {
    code: 4009,
    status: 400,
    meaning: "The connection ended before the body did.",
    retry: true,
  },
  internal: {
    code: 5001,
    status: 500,
    meaning: "Something went wrong on our side; the log has it under the request id.",
    retry: true,
  },
  overloaded: {
    code: 5002,
    status: 503,
    meaning: "More requests are waiting than this service takes; nothing was stored.",
    retry: true,
  },
  store_unavailable: {
    code: 5003,
    status: 503,
    meaning: "The store cannot write or read at the moment.",
    retry: true,
  },
  store_busy: {
    code: 5004,
    status: 503,
    meaning: "The store did not get to this request in time; nothing was stored.",
    retry: true,
  },
  shutting_down: {
    code: 5005,
    status: 503,
    meaning: "The service is shutting down.",
    retry: true,
  },
} as const satisfies Record<string, CatalogueEntry>;

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
