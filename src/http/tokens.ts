/** Tokens over HTTP: the client's own, their list, new ones, and the end of one. */

import type { Principal } from "../auth/authenticate.ts";
import { grantRules, issueToken, summarize, type TokenGrant } from "../auth/token.ts";
import { Refusal } from "../domain/errors.ts";
import { parseJson, parseMembers } from "../domain/json.ts";
import { type Scope, scopes, type TokenRecord } from "../domain/token.ts";
import { requireType } from "./body.ts";
import { answer, type Exchange, LacksScope, requireUnrevoked } from "./handle.ts";
import {
  answer as describeAnswer,
  type Entry,
  json,
  maybe,
  objectOf,
  schema,
  scopesShown,
  text,
  withHeaders,
} from "./openapi-parts.ts";
import { JSON_TYPE } from "./request-headers.ts";

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
  const grant = parseGrant(await service.bodies.readText(request), Date.now());
  await requireUnrevoked(exchange);
  const lacking = grant.scopes.find((scope) => !principal.scopes.includes(scope));
  if (lacking !== undefined)
    throw new LacksScope(
      lacking,
      `The token lacks the scope ${lacking}, so it cannot hand it out.`,
    );
  const { token, record } = await issueToken(service.store, grant);
  return answer(201, JSON.stringify({ token, ...summarize(record) }));
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

function parseGrant(body: string, nowMs: number): TokenGrant {
  const { find, ...rule } = grantRules.expires;
  const rules = {
    ...grantRules,
    expires: { ...rule, find: (asked: unknown) => find(asked, nowMs) },
  };
  const { expires: expiresAtMs, ...grant } = parseMembers(parseJson(body), rules);
  return { ...grant, expiresAtMs, createdAtMs: nowMs };
}

const time = { ...text, format: "date-time" };
const maybeTime = { ...maybe("string"), format: "date-time" };

export const TokenSchema = objectOf({
  id: { ...text, description: "Names the token in `DELETE /tokens/{id}`." },
  name: text,
  prefix: { ...text, description: "The first characters of the token." },
  scopes: scopesShown,
  created: time,
  expires: maybeTime,
  lastUsed: { ...maybeTime, description: "Written down every 30 seconds." },
  revoked: maybeTime,
  rate: { ...maybe("string"), description: "null for what the service allows every token." },
});

const listed = {
  id: "9f86d081884c7d65",
  name: "till",
  prefix: "pst_Ab12Cd",
  scopes: ["plants:write"],
  created: "2026-01-01T00:00:00.000Z",
  expires: "2026-04-01T00:00:00.000Z",
  lastUsed: null,
  revoked: null,
  rate: null,
};

const own = {
  type: "object",
  required: ["name", "scopes"],
  properties: {
    name: {
      ...text,
      description: "`PLANTSTORE_TOKEN` for the token from the service's environment.",
    },
    prefix: { ...text, description: "Its first characters." },
    scopes: scopesShown,
    expires: { ...time, description: "Left out if it does not expire." },
  },
};

const { name, expires, rate } = grantRules;
const asked = {
  type: "object",
  required: ["name", "scopes"],
  additionalProperties: false,
  properties: {
    name: { ...text, description: `Unique among the tokens in use: ${name.expected}.` },
    scopes: { type: "array", minItems: 1, items: { ...text, enum: scopes } },
    expires: { ...maybe("string"), description: `Never, or ${expires.expected}.` },
    rate: { ...maybe("string"), description: `Requests and batch lines: ${rate.expected}.` },
  },
};

const tags = ["operation"];

export const tokenOperations: readonly Entry[] = [
  {
    at: "GET /token",
    id: "describeToken",
    scope: "any",
    handle: showToken,
    tags,
    summary: "Show the token that the request was sent with",
    answers: {
      200: describeAnswer(
        "The token, without its secret.",
        json(own, { name: listed.name, prefix: listed.prefix, scopes: listed.scopes }),
      ),
    },
  },
  {
    at: "GET /tokens",
    id: "listTokens",
    scope: MANAGE,
    handle: listTokens,
    tags,
    summary: "List the tokens",
    description: "All that were ever made, oldest first. Never the token itself.",
    answers: {
      200: describeAnswer("The tokens.", json({ type: "array", items: schema("Token") }, [listed])),
    },
  },
  {
    at: "POST /tokens",
    id: "createToken",
    scope: MANAGE,
    handle: createToken,
    bodyTypes: [JSON_TYPE],
    tags,
    summary: "Create a token",
    description:
      "Answers with the token, this once. A token cannot hand out a scope that it lacks. " +
      "If the answer is lost, the name is taken: revoke that token, and create it again.",
    requestBody: {
      required: true,
      content: json(asked, { name: "till", scopes: ["plants:write"], expires: "90d" }),
    },
    answers: {
      201: describeAnswer(
        "The token works at once.",
        json(
          { allOf: [schema("Token"), objectOf({ token: text })] },
          { token: "pst_…", ...listed },
        ),
      ),
    },
    fails: ["BadBody", "TokenNameTaken"],
  },
  {
    at: "DELETE /tokens/{id}",
    id: "revokeToken",
    scope: MANAGE,
    handle: revokeToken,
    tags,
    summary: "Revoke a token",
    description:
      "Instances refuse it within 5 seconds. The last token that can manage tokens stays, unless the service has PLANTSTORE_TOKEN.",
    answers: { 204: { description: "The token is revoked.", headers: withHeaders() } },
    fails: ["BadQuery", "TokenNotFound", "LastManager"],
  },
];
