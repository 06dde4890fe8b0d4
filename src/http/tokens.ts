/** Tokens over HTTP: the client's own, their list, new ones, and the end of one. */

import type { Principal } from "../auth/authenticate.ts";
import { grantRules, issueToken, parseGrant, summarize } from "../auth/token.ts";
import { Refusal } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";
import { type Scope, scopes, type TokenRecord } from "../domain/token.ts";
import { readText, requireType } from "./body.ts";
import { answer, type Exchange, LacksScope, requireUnrevoked } from "./handle.ts";
import {
  answer as describeAnswer,
  done,
  type Entries,
  json,
  ok,
  scopesShown,
} from "./openapi-parts.ts";
import { JSON_TYPE } from "./request-headers.ts";
import { both, define, list, maybe, object, text, time } from "./shape.ts";

const MANAGE = "tokens:manage" satisfies Scope;

function showToken(_exchange: Exchange, principal: Principal): Response {
  const { name: own, prefix, scopes: granted, expiresAtMs: endsAtMs } = principal;
  const ends = endsAtMs === undefined ? undefined : new Date(endsAtMs).toISOString();
  return answer(200, JSON.stringify({ name: own, prefix, scopes: granted, expires: ends }));
}

async function listTokens({ service }: Exchange): Promise<Response> {
  const tokens = await service.store.listTokens();
  return answer(200, JSON.stringify(tokens.map(summarize)));
}

async function createToken(exchange: Exchange, principal: Principal): Promise<Response> {
  const { request, service } = exchange;
  requireType(request.headers, JSON_TYPE);
  const grant = parseGrant(parseJson(await readText(exchange)), Date.now());
  await requireUnrevoked(exchange);
  const lacking = grant.scopes.find((scope) => !principal.scopes.includes(scope));
  if (lacking !== undefined)
    throw new LacksScope(
      lacking,
      `The token lacks the scope ${lacking}, so it cannot hand it out.`,
    );
  return answer(201, JSON.stringify(await issueToken(service.store, grant)));
}

async function revokeToken(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  await request.body?.cancel();
  await requireUnrevoked(exchange);
  const { store, config } = service;
  const tokens = await store.listTokens();
  const token = tokens.find((each) => summarize(each).id === request.params?.["id"]);
  if (token === undefined) throw new Refusal("token_not_found");
  // The token of the environment manages tokens too, and cannot be revoked here.
  const unlessLast = config.token === undefined && isManager(token) ? MANAGE : undefined;
  if (!(await store.revokeToken(token.hash, Date.now(), unlessLast)))
    throw new Refusal("last_manager");
  return answer(204, null);
}

const isManager = ({ scopes: has, expiresAtMs = Infinity }: TokenRecord): boolean =>
  has.includes(MANAGE) && expiresAtMs > Date.now();

const Token = define("Token", {
  id: text("9f86d081884c7d65", "Names the token in `DELETE /tokens/{id}`."),
  name: text("till"),
  prefix: text("pst_Ab12Cd", "The first characters of the token."),
  scopes: scopesShown,
  created: time("2026-01-01T00:00:00.000Z"),
  expires: maybe(time("2026-04-01T00:00:00.000Z")),
  lastUsed: maybe(time(null, "Written down every 30 seconds.")),
  revoked: maybe(time(null)),
  rate: maybe(text(null, "null for what the service allows every token.")),
});

const OwnShape = object(
  {
    name: text("till", "`PLANTSTORE_TOKEN` for the token from the service's environment."),
    prefix: text("pst_Ab12Cd", "Its first characters."),
    scopes: scopesShown,
    expires: time(undefined, "Left out if it does not expire."),
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

export const tokenOperations: Entries = {
  describeToken: {
    at: "GET /token",
    scope: "any",
    handle: showToken,
    summary: "Show the token that the request was sent with",
    answers: ok("The token, without its secret.", json(OwnShape)),
  },
  listTokens: {
    at: "GET /tokens",
    scope: MANAGE,
    handle: listTokens,
    summary: "List the tokens",
    description: "All that were ever made, oldest first. Never the token itself.",
    answers: ok("The tokens.", json(list(Token))),
  },
  createToken: {
    at: "POST /tokens",
    scope: MANAGE,
    handle: createToken,
    bodyTypes: [JSON_TYPE],
    summary: "Create a token",
    description:
      "Answers with the token, this once. A token cannot hand out a scope that it lacks. " +
      "If the answer is lost, the name is taken: revoke that token, and create it again.",
    requestBody: { required: true, content: json(GrantShape) },
    answers: {
      201: describeAnswer("The token works at once.", json(both(Token, { token: text("pst_…") }))),
    },
    fails: ["BadBody", "TokenNameTaken"],
  },
  revokeToken: {
    at: "DELETE /tokens/{id}",
    scope: MANAGE,
    handle: revokeToken,
    summary: "Revoke a token",
    description:
      "Instances refuse it within 5 seconds. The last token that can manage tokens stays, unless the service has PLANTSTORE_TOKEN.",
    answers: done("The token is revoked."),
    fails: ["BadQuery", "TokenNotFound", "LastManager"],
  },
};
