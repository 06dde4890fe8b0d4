/** An operation with its description, and the parts of the description that operations share. */

import type { Config } from "../config.ts";
import type { FailureName } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";
import type { Scope } from "../domain/token.ts";
import type { answerHeaders } from "./answer.ts";
import { NDJSON_TYPES } from "./body.ts";
import type { Exchange, Input } from "./exchange.ts";
import type { Argument, Fields, Values } from "./field.ts";
import { type Body, type Method, type Operation, requireScopes } from "./handle.ts";
import { createHeadParser, type Head } from "./query.ts";
import { component, mapValues, type Shape, text } from "./shape.ts";

export type Header = keyof typeof answerHeaders;

export type Responses = Readonly<Record<string, object>>;

/** What an operation is, but for what it does. */
interface Described {
  readonly at: `${Method} ${string}`;
  readonly summary: string;
  readonly description: string | ((config: Config) => string);
  /** The schemas of the body by its media types. */
  readonly accepts?: object | undefined;
  /** The responses that are not failures. */
  readonly answers: Responses;
  /** In addition to those of every operation and of every body. */
  readonly fails?: readonly FailureName[];
}

export type Endpoint = Described &
  Head &
  Operation & {
    readonly also?: { readonly scopes: readonly Scope[] } | undefined;
    readonly refine?: ((input: Input) => object) | undefined;
    readonly tool?: Tool | undefined;
  };

/** An operation as a tool for agents. Its scopes and hints are those of the operation. */
export interface Tool<In = never, Result = never> {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** What it answers. Ids are strings: a model's JSON would round them. */
  readonly output: Shape;
  /** The members of the body, as arguments beside those of the path, the query and the headers. */
  readonly members?: Arguments;
  /** By default an object of its members. */
  readonly toBody?: (values: Readonly<Record<string, unknown>>) => unknown;
  /** In place of those that the fields have. */
  readonly arguments?: Arguments;
  /** By default each is judged by its rule. */
  readonly parse?: (input: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>;
  /** What of the result a model gets. */
  readonly show?: (result: Result, input: In, exchange: Exchange) => object | Promise<object>;
  /** In place of `run`, for what a single call cannot wait for, or shows otherwise. Resolves to JSON. */
  readonly call?: (exchange: Exchange, values: never) => Promise<string>;
}

export type Arguments = Readonly<Record<string, Argument<unknown>>>;

export type Endpoints = Readonly<Record<string, Endpoint>>;

interface BodyOf<Parsed, Path> extends Omit<Body, "parse" | "types"> {
  /** By default those of `accepts`. */
  readonly types?: readonly string[];
  readonly accepts: object;
  readonly parse?: (text: string, path: Path) => Parsed;
}

type None = Readonly<Record<string, never>>;

interface Definition<
  Path extends Fields,
  Query extends Fields,
  Heads extends Fields,
  Refined,
  Parsed,
  Result,
>
  extends
    Omit<Described, "accepts">,
    Pick<Operation, "scopes" | "kind">,
    Partial<Pick<Operation, "isWhole">>,
    Pick<Head, "forms" | "streamQuery"> {
  readonly path?: Path;
  readonly query?: Query;
  readonly headers?: Heads;
  /** Refuses values that contradict each other, and gives the handler what they mean together. */
  readonly refine?: (input: Input<Values<Path>, Values<Query>, Values<Heads>>) => Refined;
  /** Scopes that it needs for such a request, beside those that it always needs. */
  readonly also?: {
    readonly scopes: readonly Scope[];
    readonly when: (input: Input<Values<Path>, NoInfer<Refined>, Values<Heads>>) => boolean;
  };
  readonly body?: BodyOf<Parsed, Values<Path>>;
  readonly run: (
    input: Input<Values<Path>, NoInfer<Refined>, Values<Heads>, NoInfer<Parsed>>,
    exchange: Exchange,
  ) => Result | Promise<Result>;
  readonly answer?: (
    result: NoInfer<Result>,
    input: Input<Values<Path>, NoInfer<Refined>, Values<Heads>, NoInfer<Parsed>>,
    exchange: Exchange,
  ) => Response | Promise<Response>;
  readonly tool?: Tool<
    Input<Values<Path>, NoInfer<Refined>, Values<Heads>, NoInfer<Parsed>>,
    NoInfer<Result>
  >;
}

/** Ties what an operation does to what its fields find. */
export function operation<
  Path extends Fields = None,
  Query extends Fields = None,
  Heads extends Fields = None,
  Refined = Values<Query>,
  Parsed = undefined,
  Result = unknown,
>(definition: Definition<Path, Query, Heads, Refined, Parsed, Result>): Endpoint {
  const {
    refine,
    also,
    body,
    run,
    isWhole = false,
    ...described
  } = definition as unknown as Erased;
  const read = createHeadParser(described, { ignoresQuery: described.scopes === undefined });
  const parse = (exchange: Exchange): Input => {
    const input = read(exchange);
    if (refine !== undefined) input.query = refine(input);
    if (also?.when(input) === true) requireScopes(exchange.token, also.scopes);
    return input;
  };
  const { accepts, types = Object.keys(accepts ?? {}), ...how } = body ?? {};
  return {
    ...described,
    isWhole,
    also,
    refine,
    accepts,
    body: body && { types, ...how },
    parse: refine === undefined && also === undefined ? read : parse,
    run,
  };
}

/** Without the types of its fields. */
interface Erased extends Omit<Endpoint, "isWhole" | "accepts" | "also" | "body" | "parse"> {
  readonly isWhole?: boolean;
  readonly also?: { readonly scopes: readonly Scope[]; readonly when: (input: Input) => boolean };
  readonly body?: BodyOf<unknown, object>;
}

/** A small JSON object, parsed by its rules. */
export const jsonBody = <Parsed>(shape: Shape, parse: (value: unknown) => Parsed) => ({
  accepts: json(shape),
  parse: (sent: string) => parse(parseJson(sent)),
});

/** OpenAPI puts a parameter's description beside its schema. */
export const describeParameters = (
  place: string,
  parameters: Readonly<Record<string, Shape & { isHidden?: boolean }>> = {},
) =>
  Object.entries(parameters)
    .filter(([, { isHidden }]) => isHidden !== true)
    .map(([name, { schema, example, more, optional }]) => {
      const { description, ...type } = schema;
      const required = optional === true ? undefined : true;
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
