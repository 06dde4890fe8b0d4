/** The part of an OpenAPI description that the page shows, and the guides beside it. */

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

interface Media {
  readonly schema?: Schema;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value?: unknown }>>;
}

type Content = Readonly<Record<string, Media>>;

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema?: Schema;
  readonly example?: string | number;
}

interface Answer {
  readonly $ref?: string;
  readonly description?: string;
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
  readonly requestBody?: { readonly description?: string; readonly content: Content };
  readonly responses?: Readonly<Record<string, Answer>>;
  readonly security?: readonly object[];
}

export interface Description {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly tags: readonly { readonly name: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly responses: Readonly<Record<string, Answer>>;
  };
}

const methods = ["get", "post", "put", "delete"];

/** HEAD works wherever GET does, so it is not listed. */
export const listOperations = ({ paths, components }: Description): Operation[] =>
  Object.entries(paths).flatMap(([path, { parameters: shared = [], ...operations }]) =>
    methods
      .filter((method) => method in operations)
      .map((method) => {
        const own = operations[method] as Operation;
        const parameters = [...(shared as Parameter[]), ...(own.parameters ?? [])];
        const answers = Object.entries(own.responses ?? {}).map(
          ([status, answer]) =>
            [status, components.responses[nameOf(answer.$ref ?? "")] ?? answer] as const,
        );
        const responses = Object.fromEntries(answers);
        return Object.assign({}, own, { path, method, parameters, responses });
      }),
  );

export const addressOf = ({ tags, operationId }: Operation): string =>
  `/${tags?.[0]}/${operationId}`;

export const nameOf = (reference: string): string => reference.replace(/^.*\//, "");

export function formatType({ $ref, type, format, properties, items }: Schema): string {
  if ($ref !== undefined) return nameOf($ref);
  if (items !== undefined) return `array of ${formatType(items)}`;
  if (properties !== undefined) return `{ ${Object.keys(properties).join(", ")} }`;
  const types = typeof type === "string" ? type : (type?.join(" or ") ?? "any");
  return format === undefined ? types : `${types} (${format})`;
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
    "\n\nA read returns an `ETag`. Send it as `If-Match` with a replacement or a removal: if someone else has changed the plant, the answer is 412 and nothing is overwritten.",
  Batches:
    "`POST /plants/batch` takes an array, or any number of lines of JSON. Each plant succeeds or fails alone, and gets its own result, in order. " +
    "A whole batch is safe to retry.",
  Errors:
    "Every failure answers `{error, message}`: a stable error code, and a text for people. " +
    "`X-Request-Id` names the request in the service's log.",
} as const;
