/** What a request handler has at hand, and what it makes of a request. */

import type { Authenticator, Principal } from "../auth/authenticate.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import type { Scope } from "../domain/token.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Observations } from "../observe/observatory.ts";
import type { BodyReader } from "./body.ts";
import type { Readiness } from "./health.ts";

export interface Service {
  readonly config: Config;
  readonly store: Store;
  readonly authenticator: Authenticator;
  readonly bodies: BodyReader;
  readonly readiness: Readiness;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly observations: Observations;
  /** Sets the runtime's idle timer for one exchange; 0 takes it off. */
  readonly limitIdle: (request: Request, seconds: number) => void;
}

/** A request with the parts of its path that the route leaves open. */
export type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/** What a handler answers; the headers that every answer carries are added on the way out. */
export interface Answer {
  readonly status: number;
  readonly body: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** A plant that was not there before is on disk. */
  readonly isCreated?: boolean;
}

/** The request's id is for what is logged after the answer has begun. */
type Handle<More extends unknown[]> = (
  request: RoutedRequest,
  service: Service,
  requestId: string,
  ...more: More
) => Answer | Promise<Answer>;

export type Operation =
  /** Anyone may ask, because no plant is shown. */
  | { readonly scope: undefined; readonly handle: Handle<[]> }
  /** Whoever has a token with the scope may, or with `any` whoever has a valid one. */
  | { readonly scope: Scope | "any"; readonly handle: Handle<[principal: Principal]> };

export type Method = "GET" | "POST" | "PUT" | "DELETE";

export interface Route {
  readonly path: string;
  readonly operations: Readonly<Partial<Record<Method, Operation>>>;
}
