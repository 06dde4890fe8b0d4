/** An operation with its description, and the parts of the description that operations share. */

import type { FailureName } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";
import type { Scope } from "../domain/token.ts";
import { ignoreBody, JSON_TYPE, NDJSON_TYPES, readJson } from "./body.ts";
import type { Exchange } from "./exchange.ts";
import { answer, answerJson, type Method, type Operation } from "./handle.ts";
import { component, mapValues, type Members, type Shape, text } from "./shape.ts";

export const headers = {
  "X-Request-Id":
    "Names this request in the service's log. Sent with every failure, and with a success if the request has one.",
  Link: 'The next page, as `<…>; rel="next"` (RFC 8288). The last page has none.',
  "Last-Change": "The number of the newest change.",
  "Idempotent-Replayed": "`true` if the plant was in the store already.",
  "Preference-Applied":
    "The preference that was followed: `return=minimal` or `respond-async` (RFC 7240).",
  ETag: "A strong entity tag of the plant.",
  "WWW-Authenticate": "RFC 6750.",
  "Retry-After": "Seconds.",
  RateLimit:
    'What the token has left, as in `"token";r=7;t=1`: units, and seconds until all are available again (IETF draft).',
  "RateLimit-Policy":
    'What the token may use, as in `"token";q=100;w=1`: units in a window of seconds (IETF draft).',
  "Accept-Post": "The media types that a POST accepts (W3C Linked Data Platform).",
  "Accept-Patch": "The media types that a PATCH accepts (RFC 5789).",
  "Accept-Encoding": "`identity` if the body was refused for its content encoding (RFC 9110).",
};

export type Header = keyof typeof headers;

export type Responses = Readonly<Record<string, object>>;

export type Endpoint = Operation & {
  readonly at: `${Method} ${string}`;
  readonly summary: string;
  readonly query?: Members;
  readonly headers?: Members;
  readonly accepts?: object;
  /** The responses that are not failures. */
  readonly answers: Responses;
  /** In addition to those of every operation and of every body. */
  readonly fails?: readonly FailureName[];
};

export type Endpoints = Readonly<Record<string, Endpoint>>;

export const operation = (
  at: Endpoint["at"],
  scope: Endpoint["scope"],
  handle: Endpoint["handle"],
  described: Omit<Endpoint, "at" | "scope" | "handle">,
): Endpoint => ({ at, scope, handle, ...described });

/** OpenAPI puts a parameter's description beside its schema. */
export const describeParameters = (place: string, parameters: Members = {}, required?: true) =>
  Object.entries(parameters).map(([name, { schema, example, more }]) => {
    const { description, ...type } = schema;
    const parameter = { name, in: place, required, description, schema: type, example };
    return Object.assign(parameter, more);
  });

type Content = Readonly<Record<string, Shape>>;

/** An answer with this status, and with these headers besides X-Request-Id. */
export const answering = (
  status: number,
  description: string,
  content?: object,
  ...names: Header[]
): Responses => ({ [status]: { description, headers: withHeaders(names), content } });

export const ok = answering.bind(undefined, 200);

export const withHeaders = (names: readonly Header[]): object =>
  Object.fromEntries(
    (["X-Request-Id", ...names] as const).map((name) => [name, component("headers", name)]),
  );

export const json = (shape: Shape): Content => ({ "application/json": shape });

export const jsonWith = (
  { schema }: Pick<Shape, "schema">,
  examples: Readonly<Record<string, unknown>>,
): object => ({
  "application/json": { schema, examples: mapValues(examples, (value) => ({ value })) },
});

/** A JSON array of these, and NDJSON with one per line. */
export function jsonAndLines(name: string, examples: readonly unknown[]): Content {
  // OpenAPI 3.1 has no schema for NDJSON: to validators and generators it is text.
  const lines = text(
    examples.map((line) => `${JSON.stringify(line)}\n`).join(""),
    `One ${name} per line, as JSON.`,
  );
  return {
    ...json({ schema: { type: "array", items: component("schemas", name) }, example: examples }),
    ...Object.fromEntries(NDJSON_TYPES.map((type) => [type, lines])),
  };
}

/** An operation with small JSON bodies: tokens and webhooks. */
interface JsonOperation extends Pick<Endpoint, "at" | "summary" | "fails" | "needs"> {
  readonly scope: Scope | "any";
  readonly body?: Shape;
  readonly run: (exchange: Exchange, input: unknown) => unknown;
  readonly status?: number;
  readonly meaning?: string;
  readonly shows?: Shape;
}

export function toEndpoint(definition: JsonOperation): Endpoint {
  const { run, body, meaning = "Done.", shows, fails = [], ...described } = definition;
  const { status = shows === undefined ? 204 : 200, ...endpoint } = described;
  return {
    ...endpoint,
    handle: async (exchange) => {
      const { request, service } = exchange;
      if (body === undefined) await ignoreBody(request);
      const input = body && parseJson(await readJson(exchange));
      // A token that was revoked just before, or while the body arrived, must not leave a token or a webhook behind.
      if (request.method !== "GET")
        await service.authenticator.authenticate(request.headers.get("authorization"), 0);
      const result = await run(exchange, input);
      // The list of webhooks is the only large one, and it is a 200.
      if (status === 200) return answerJson(exchange, result);
      return answer(status, shows === undefined ? null : JSON.stringify(result));
    },
    ...(body && { bodyTypes: [JSON_TYPE], accepts: json(body) }),
    answers: answering(status, meaning, shows && json(shows)),
    fails: [body ? "BadBody" : "BadQuery", ...fails],
  };
}
