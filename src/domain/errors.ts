/**
 * The catalogue: every failure the service can answer, and nothing else.
 *
 * Append only. A code, once released, is never renumbered or reused, because callers branch on it.
 * 1xxx what was sent, 2xxx who sent it, 3xxx what the store holds, 4xxx how it was sent, 5xxx us.
 */

/** The OpenAPI responses that list an error, and their status. Operations share responses. */
const plants = { status: 400, failures: ["BadPlant", "BadReplacement"] } as const;
const bodies = { status: 400, failures: [...plants.failures, "BadBody", "BadPatch"] } as const;
const conditions = {
  status: 400,
  failures: ["BadCondition", "BadReplacement", "BadPatch"],
} as const;
const queries = {
  status: 400,
  failures: [...bodies.failures, "BadCondition", "BadQuery"],
} as const;
const requests = { status: 400, failures: [...queries.failures, "BadRequest"] } as const;
const unauthorized = { status: 401, failures: ["Unauthorized"] } as const;
const taken = { status: 409, failures: ["IdTaken", "BatchConflict"] } as const;
const webhooks = { status: 409, failures: ["WebhookConflict"] } as const;
const jobs = { status: 409, failures: ["JobConflict", "RangeTooLarge", "BatchConflict"] } as const;
const names = { status: 409, failures: [...jobs.failures, "IdTaken", "JobRunning"] } as const;
const unsupported = { status: 415, failures: ["UnsupportedBody"] } as const;
const unavailable = { status: 503, failures: ["Unavailable"] } as const;

/**
 * `code` is the int32 `error`, `meaning` the default `message`. The OpenAPI document, the client's table and that of
 * docs/api.md are generated from this. One line per error.
 */
// prettier-ignore
const table = {
  invalid_utf8: { code: 1001, ...bodies, meaning: "The body is not valid UTF-8." },
  invalid_json: { code: 1002, ...bodies, meaning: "The body is not valid JSON." },
  invalid_plant: { code: 1003, ...plants, meaning: "The body is JSON but not a plant; the message names every fault." },
  invalid_id: { code: 1004, ...conditions, meaning: "The id in the path is not an int64 in plain decimal digits." },
  invalid_query: { code: 1005, ...queries, meaning: "A query parameter is unknown, repeated or out of range; the message names every one." },
  invalid_precondition: { code: 1006, ...conditions, meaning: "If-Match or If-None-Match is neither * nor a list of entity tags." },
  invalid_body: { code: 1007, status: 400, failures: ["BadBody", "BadPatch"], meaning: "The body is JSON but not what this operation accepts; the message names every fault." },
  invalid_encoding: { code: 1008, status: 400, failures: ["BadPlant"], meaning: "The body does not unpack as its Content-Encoding says: it is damaged or incomplete." },
  token_missing: { code: 2001, ...unauthorized, meaning: "No bearer token was sent." },
  token_invalid: { code: 2002, ...unauthorized, meaning: "The bearer token is malformed, unknown or revoked." },
  token_expired: { code: 2003, ...unauthorized, meaning: "The bearer token has expired." },
  insufficient_scope: { code: 2004, status: 403, failures: ["Forbidden"], meaning: "The token lacks the scope for this operation, or cannot grant what was requested." },
  tag_not_permitted: { code: 2005, status: 403, failures: ["Forbidden"], meaning: "The token is for plants with some tags, and the plant would have another tag, or none; nothing was changed." },
  token_confined: { code: 2006, status: 403, failures: ["Forbidden"], meaning: "The token is for plants with some tags, and this operation concerns the whole store." },
  id_taken: { code: 3001, ...taken, meaning: "A different plant has this id; nothing was changed." },
  plant_not_found: { code: 3002, status: 404, failures: ["PlantNotFound"], meaning: "There is no plant with this id." },
  precondition_failed: { code: 3003, status: 412, failures: ["PreconditionFailed"], meaning: "The plant does not match If-Match or If-None-Match; nothing was changed." },
  changes_gone: { code: 3004, status: 410, failures: ["ChangesGone"], meaning: "The cursor is no longer in the journal; the message says where to restart." },
  token_not_found: { code: 3005, status: 404, failures: ["TokenNotFound"], meaning: "There is no token with this id." },
  token_name_taken: { code: 3006, status: 409, failures: ["TokenNameTaken"], meaning: "A token in use has this name; nothing was changed." },
  last_manager: { code: 3007, status: 409, failures: ["LastManager"], meaning: "This is the last token that can manage tokens; create another before you revoke it." },
  webhook_not_found: { code: 3008, status: 404, failures: ["WebhookNotFound"], meaning: "There is no webhook with this name." },
  webhook_name_taken: { code: 3009, ...webhooks, meaning: "A webhook has this name; nothing was changed." },
  store_full: { code: 3010, ...taken, meaning: "The store has reached its plant limit; nothing was stored." },
  webhooks_full: { code: 3011, ...webhooks, meaning: "The webhook limit is reached; remove one first." },
  range_too_large: { code: 3012, status: 409, failures: ["RangeTooLarge"], meaning: "The changes concern too many plants for a dry run." },
  transaction_too_large: { code: 3013, status: 409, failures: ["BatchConflict"], meaning: "The stored plants that an atomic batch changes are too large for one transaction; nothing was changed." },
  job_running: { code: 3014, ...names, meaning: "A job runs under the name of this batch; nothing was changed." },
  jobs_full: { code: 3015, ...jobs, meaning: "The limit of running jobs is reached; wait for one to end, or stop one." },
  job_not_found: { code: 3016, status: 404, failures: ["JobNotFound"], meaning: "There is no job of this batch." },
  job_stopped: { code: 3017, status: 409, failures: [], meaning: "The job was stopped on request; what it had changed stays." },
  malformed_request: { code: 4001, ...requests, meaning: "The request's Host header is empty, repeated or not a host." },
  path_not_found: { code: 4002, status: 404, failures: [], meaning: "There is nothing at this path." },
  method_not_allowed: { code: 4003, status: 405, failures: [], meaning: "This path does not accept this method; the Allow header lists the methods that it accepts." },
  url_too_long: { code: 4004, status: 414, failures: ["UrlTooLong"], meaning: "The URL exceeds the limit." },
  unsupported_media_type: { code: 4005, ...unsupported, meaning: "The Content-Type must be one that this operation accepts (JSON or NDJSON), in UTF-8." },
  unsupported_encoding: { code: 4006, ...unsupported, meaning: "The body must be sent without a content encoding." },
  body_too_large: { code: 4007, status: 413, failures: ["BodyTooLarge"], meaning: "The body exceeds the limit." },
  body_too_slow: { code: 4008, status: 408, failures: ["BodyTooSlow"], meaning: "The body did not arrive in time." },
  body_incomplete: { code: 4009, ...bodies, meaning: "The connection ended before the body did." },
  rate_limited: { code: 4010, status: 429, failures: ["RateLimited"], meaning: "The token has used up its rate; Retry-After says when to try again." },
  expectation_failed: { code: 4011, status: 417, failures: ["ExpectationFailed"], meaning: "Expect: 100-continue is accepted in lower case only; send the body without that header." },
  internal: { code: 5001, status: 500, failures: ["InternalError"], meaning: "Internal error; find it in the log by the request id." },
  overloaded: { code: 5002, ...unavailable, meaning: "The write queue or the memory budget is full; nothing was stored." },
  store_unavailable: { code: 5003, ...unavailable, meaning: "The store is temporarily unavailable; a write may have been stored, and a retry settles it." },
  store_busy: { code: 5004, ...unavailable, meaning: "The request timed out in the queue; nothing was stored." },
  shutting_down: { code: 5005, ...unavailable, meaning: "The service is shutting down." },
  disk_low: { code: 5006, ...unavailable, meaning: "Too little disk space is free for a new plant; nothing was stored." },
  issuer_unavailable: { code: 5007, ...unavailable, meaning: "The JWT's key is unknown, and the issuer's keys could not be fetched." },
  store_down: { code: 5008, ...unavailable, meaning: "The store cannot be reached or is locked; nothing was stored." },
  store_refused: { code: 5009, ...unavailable, meaning: "The database refuses this service until an operator fixes it; nothing was stored." },
} as const;

export type ErrorName = keyof typeof table;
export type FailureName = (typeof table)[ErrorName]["failures"][number];

/** Whether the same request can succeed on a retry. */
const canRetry = (name: string, status: number): boolean =>
  status >= 500 || status === 408 || status === 429 || name === "body_incomplete";

interface Entry
  extends
    Readonly<Record<"code" | "status", number>>,
    Readonly<{ failures: readonly FailureName[]; meaning: string; retry: boolean }> {}

export const catalogue = Object.fromEntries(
  Object.entries<Omit<Entry, "retry">>(table).map(([name, entry]) => [
    name,
    { ...entry, retry: canRetry(name, entry.status) },
  ]),
) as Readonly<Record<ErrorName, Entry>>;

/** What is wrong, as a key of `faultTexts` with values. Plain data. */
export interface Fault {
  readonly name: string;
  readonly values: Readonly<Record<string, string>>;
}

/** An error from the catalogue: the only kind whose message reaches a client. */
export class Refusal extends Error {
  readonly reason: ErrorName;
  /** The same as the message, for those that say it in another language. */
  readonly faults: readonly Fault[];

  constructor(
    reason: ErrorName,
    message: string = catalogue[reason].meaning,
    cause?: unknown,
    faults: readonly Fault[] = [],
  ) {
    // A service that refuses everything makes thousands a second. The stack of a defect is that of the cause.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, cause === undefined ? undefined : { cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = "Refusal";
    this.reason = reason;
    this.faults = faults;
  }
}

/** An error that is not a Refusal is a defect. Its message stays in the log. */
export const toRefusal = (error: unknown): Refusal =>
  error instanceof Refusal ? error : new Refusal("internal", undefined, error);

/** Whether the store, or this service, cannot do it for now. */
export const isOutage = (error: unknown): boolean =>
  error instanceof Refusal && catalogue[error.reason].status === 503;

/** For a line of a stream whose status has been sent, and for a report. */
export function describeRefusal({ reason, message }: Refusal) {
  const { status, code } = catalogue[reason];
  return { status, error: code, message };
}

/** Error fields that JSON and structured clone would drop. PostgreSQL's own code is in `errno`. */
export function describeError(error: Error): Readonly<Record<string, unknown>> {
  const { name, message, stack, cause } = error;
  const { code, errno, syscall, path } = error as NodeJS.ErrnoException;
  return { name, message, code, errno, syscall, path, stack, cause };
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
