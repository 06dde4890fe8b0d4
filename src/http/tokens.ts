/** Tokens over HTTP: who am I, list, create, revoke. */

import {
  findExcess,
  grantRules,
  type IssuedToken,
  issueToken,
  parseGrant,
  summarize,
} from "../auth/token.ts";
import { formatTime } from "../domain/time.ts";
import { Refusal } from "../domain/errors.ts";
import { type Scope, scopes } from "../domain/token.ts";
import { type Endpoints, json, ok, operation, toEndpoint } from "./endpoint.ts";
import type { Exchange } from "./exchange.ts";
import { answerJson, requireScope } from "./handle.ts";
import { linkNext, parseQuery, tokenParameters } from "./query.ts";
import { define, list, maybe, object, text, time } from "./shape.ts";

const MANAGE = "tokens:manage" satisfies Scope;

async function createToken({ service, token }: Exchange, body: unknown): Promise<IssuedToken> {
  const grant = parseGrant(body);
  for (const scope of grant.scopes) requireScope(token, scope);
  const excess = token && findExcess(grant, token, service.config.rateLimit);
  if (excess !== undefined) throw new Refusal("insufficient_scope", excess);
  return issueToken(service.store, grant);
}

async function listTokens(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const { limit, after } = parseQuery(request.url, tokenParameters);
  // Tokens are listed by hash. The cursor sorts after every hash that begins with this id: digits are 0 to f.
  const from = after === undefined ? "" : `${after}g`;
  const found = await service.store.listTokens({ after: from, limit: limit + 1 });
  const page = found.slice(0, limit).map(summarize);
  const next = found.length > limit ? page.at(-1)?.id : undefined;
  return answerJson(exchange, page, linkNext(exchange, limit, next));
}

async function revokeToken({ request, service }: Exchange): Promise<void> {
  const { store, config } = service;
  const id = tokenParameters.after.find(request.params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("token_not_found");
  const [token] = await store.listTokens({ after: id, limit: 1 });
  if (token === undefined || summarize(token).id !== id) throw new Refusal("token_not_found");
  // PLANTSTORE_TOKEN manages tokens too, and cannot be revoked here.
  const isManager = token.scopes.includes(MANAGE) && (token.expiresAtMs ?? Infinity) > Date.now();
  const unlessLast = config.token === undefined && isManager ? MANAGE : undefined;
  if (!(await store.revokeToken(token.hash, Date.now(), unlessLast)))
    throw new Refusal("last_manager");
}

const scopesShown = list(
  text("plants:write"),
  `Any of ${scopes.join(", ")}. Later versions may add more: ignore those that you do not know.`,
);

const tokenMembers = {
  id: text("9f86d081884c7d65", "Names the token in `DELETE /tokens/{id}`."),
  name: text("till"),
  prefix: text("pst_Ab12Cd", "The first characters of the token."),
  scopes: scopesShown,
  created: time("2026-01-01T00:00:00.000Z"),
  expires: maybe(time("2026-04-01T00:00:00.000Z")),
  lastUsed: maybe(time(null, "Updated every 30 seconds.")),
  revoked: maybe(time(null)),
  rate: maybe(text(null, "null for the default rate of the service.")),
};
const Token = define("Token", tokenMembers);

const OwnShape = object(
  {
    name: text("till", "`PLANTSTORE_TOKEN` for the token from the service's environment."),
    prefix: text("pst_Ab12Cd", "Its first characters."),
    scopes: scopesShown,
    expires: time(undefined, "Absent if the token does not expire."),
  },
  { optional: ["prefix", "expires"] },
);

const { name, expires, rate } = grantRules;
const GrantShape = object(
  {
    name: text("till", `Unique among the tokens in use: ${name.expected}.`),
    scopes: list(text("plants:write", undefined, { enum: scopes }), undefined, { minItems: 1 }),
    expires: maybe(text("90d", `Never, or ${expires.expected}.`)),
    rate: maybe(text(undefined, `Requests and batch lines: ${rate.expected}.`)),
  },
  { optional: ["expires", "rate"], additionalProperties: false },
);

export const tokenOperations: Endpoints = {
  describeToken: toEndpoint({
    at: "GET /token",
    scope: "any",
    run: ({ token }) => ({
      name: token?.name,
      prefix: token?.prefix || undefined,
      scopes: token?.scopes,
      expires: formatTime(token?.expiresAtMs) ?? undefined,
    }),
    summary: "Show the token that the request was sent with",
    meaning: "The token, without its secret.",
    shows: OwnShape,
  }),
  listTokens: operation("GET /tokens", MANAGE, listTokens, {
    summary: "List the tokens",
    query: tokenParameters,
    answers: ok("The tokens.", json(list(Token)), "Link"),
  }),
  createToken: toEndpoint({
    at: "POST /tokens",
    scope: MANAGE,
    body: GrantShape,
    run: createToken,
    summary: "Create a token",
    status: 201,
    meaning: "The token works at once.",
    shows: object({ token: text("pst_…"), ...tokenMembers }),
    fails: ["TokenNameTaken"],
  }),
  revokeToken: toEndpoint({
    at: "DELETE /tokens/{id}",
    scope: MANAGE,
    run: revokeToken,
    summary: "Revoke a token",
    meaning: "The token is revoked.",
    fails: ["TokenNotFound", "LastManager"],
  }),
};
