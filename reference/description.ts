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

/** With its place, the parameters of its path, and its answers in full. */
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

/** HEAD answers wherever GET does: listing it would only make the page longer. */
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

/** Markdown, as the description has it. The catalogue of errors follows the last one. */
export const guides = {
  Authentication:
    "Send `Authorization: Bearer <token>` with every request. Health checks, this page and its description need no token." +
    "\n\nThe first start prints a token. `plantstore token create` and `POST /tokens` make more, with the scopes that a client needs: " +
    "`plants:read`, `plants:write`, `tokens:manage`, `webhooks:manage`. Without a valid token the answer is 401; without the scope it is 403.",
  Paging:
    "Lists come in pages, in the order of the ids. The `Link` header has the address of the next page; follow it as it is. " +
    "The last page has none.\n\nTo get everything at once, ask for `Accept: application/x-ndjson` or `text/csv`: the answer is a stream.",
  Retries:
    "After a lost connection, 429 or 503, send the request again; `Retry-After` says when. " +
    "A create that was carried out already is answered 200 with `Idempotent-Replayed: true`." +
    "\n\nA read answers an `ETag`. Send it as `If-Match` with a replacement or a removal: if someone else has changed the plant, the answer is 412 and nothing is overwritten.",
  Batches:
    "`POST /plants/batch` takes an array, or any number of lines of JSON. Each plant succeeds or fails alone, and has a result of its own, in order. " +
    "A batch can be sent again as a whole.",
  Errors:
    "Every failure answers `{error, message}`: a number that never changes its meaning, and a text for people. " +
    "`X-Request-Id` names the request in the service's log.",
} as const;
