/** The part of an OpenAPI description that the page shows, and the guides beside it. */

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean;
  readonly items?: Schema;
  readonly oneOf?: readonly Schema[];
}

interface Media {
  readonly schema?: Schema;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value?: unknown }>>;
}

export type Content = Readonly<Record<string, Media>>;

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema?: Schema;
  readonly example?: string | number;
}

export interface Answer {
  readonly $ref?: string;
  readonly description?: string;
  readonly headers?: Readonly<Record<string, object>>;
  readonly content?: Content;
}

/** With its path and method, the parameters of the path, and resolved answers. */
export interface Operation {
  readonly path: string;
  readonly method: string;
  readonly operationId?: string;
  readonly tags?: readonly string[];
  readonly summary?: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: {
    readonly description?: string;
    readonly required?: boolean;
    readonly content: Content;
  };
  readonly responses?: Readonly<Record<string, Answer>>;
  readonly security?: readonly object[];
}

type Paths = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

export interface Description {
  readonly info: {
    readonly title: string;
    readonly version: string;
    readonly description: string;
    readonly license?: { readonly name: string };
  };
  readonly tags: readonly { readonly name: string; readonly description?: string }[];
  readonly paths: Paths;
  readonly webhooks: Paths;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly responses: Readonly<Record<string, Answer>>;
    readonly headers: Readonly<Record<string, { readonly description: string }>>;
    readonly securitySchemes: Readonly<Record<string, { readonly description: string }>>;
  };
}

const methods = ["get", "post", "put", "patch", "delete"];

/** HEAD works wherever GET does, so it is not listed. */
export const listOperations = (paths: Paths, { responses: known }: Description["components"]) =>
  Object.entries(paths).flatMap(([path, { parameters: shared = [], ...operations }]) =>
    methods
      .filter((method) => method in operations)
      .map((method): Operation => {
        const own = operations[method] as Operation;
        const parameters = [...(shared as Parameter[]), ...(own.parameters ?? [])];
        const answers = Object.entries(own.responses ?? {}).map(
          ([status, answer]) => [status, known[nameOf(answer.$ref ?? "")] ?? answer] as const,
        );
        const responses = Object.fromEntries(answers);
        return Object.assign({}, own, { path, method, parameters, responses });
      }),
  );

export const addressOf = ({ tags, operationId }: Operation): string =>
  `/${tags?.[0]}/${operationId}`;

export const nameOf = (reference: string): string => reference.replace(/^.*\//, "");

/** The examples by name. One alone has none. */
export const listExamples = ({
  example,
  examples = {},
}: Media): [name: string, value: unknown][] =>
  example === undefined
    ? Object.entries(examples).map(([name, { value }]) => [name, value])
    : [["", example]];

/** As it is sent. */
export const formatExample = (value: unknown, indent?: number): string =>
  typeof value === "string" ? value : (JSON.stringify(value, null, indent) ?? "");

/** The types without references: "integer (int64)", "string or null". */
export function formatType({ type, format, properties, additionalProperties, oneOf }: Schema) {
  const types = typeof type === "string" ? [type] : (type ?? []);
  const named = types.join(" or ") || (oneOf === undefined ? "any" : "one of");
  const closed = properties !== undefined && additionalProperties === false;
  return `${named}${format === undefined ? "" : ` (${format})`}${closed ? ", no other members" : ""}`;
}

/** The values that are allowed: "1 to 1000", "at most 100 characters", "default asc". */
export function listLimits(schema: Schema): string[] {
  const { minimum, maximum, minLength, maxLength, minItems, maxItems } = schema;
  return [
    formatRange(minimum, maximum),
    formatRange(minLength, maxLength, "character"),
    formatRange(minItems, maxItems, "item"),
    schema.default === undefined ? "" : `default ${formatExample(schema.default)}`,
  ].filter((text) => text !== "");
}

function formatRange(min?: number, max?: number, noun?: string): string {
  const last = max ?? min;
  if (last === undefined) return "";
  const unit = noun === undefined ? "" : last === 1 ? ` ${noun}` : ` ${noun}s`;
  if (min !== undefined && max !== undefined) return `${min} to ${max}${unit}`;
  return `${max === undefined ? "at least" : "at most"} ${last}${unit}`;
}

/** In Markdown. The catalogue of errors follows the last guide. */
export const guides = {
  Authentication:
    "Send `Authorization: Bearer <token>` with every request. Health checks, this page and its description need no token." +
    "\n\nThe first start prints a token. `plantstore token create` and `POST /tokens` create more, with the scopes that a client needs: " +
    "`plants:read`, `plants:write`, `tokens:manage`, `webhooks:manage`. Without a valid token the answer is 401; without the scope it is 403.",
  Paging:
    "Lists are paged by cursor, in the order of the ids. The `Link` header has the URL of the next page; follow it unchanged. " +
    "The last page has none.\n\nTo stream everything, send `Accept: application/x-ndjson` or `text/csv`.",
  Retries:
    "After a lost connection, 429 or 503, retry; `Retry-After` says when. " +
    "A create that had already succeeded answers 200 with `Idempotent-Replayed: true`." +
    "\n\nA read returns an `ETag`. Send it as `If-Match` with a change or a removal: if someone else has changed the plant, the answer is 412 and nothing is overwritten.",
  Batches:
    "`POST /plants/batch` accepts an array, or any number of lines of JSON. Each plant succeeds or fails alone, and gets its own result, in order. " +
    "A whole batch is safe to retry.",
  Errors:
    "Every failure answers `{error, message}`: a stable error code, and a text for people. " +
    "`X-Request-Id` names the request in the service's log.",
} as const;
