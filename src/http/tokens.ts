/** Tokens over HTTP: who am I, list, create, revoke. */

import { findExcess, grantRules, issueToken, parseGrant, summarize } from "../auth/token.ts";
import { formatTime } from "../domain/time.ts";
import { Refusal } from "../domain/errors.ts";
import { type Scope, scopes } from "../domain/token.ts";
import { answering, type Endpoints, json, jsonBody, ok, operation } from "./endpoint.ts";
import type { Exchange, Input } from "./exchange.ts";
import { tokenFields, tokenPath, type Values } from "./field.ts";
import { answer, answerJson } from "./answer.ts";
import { requireScopes } from "./handle.ts";
import { linkNext } from "./query.ts";
import { define, describeRules, list, maybe, object, text, time } from "./shape.ts";

const MANAGE = "tokens:manage" satisfies Scope;

const describeToken = (_input: Input, { token }: Exchange) => ({
  name: token?.name,
  prefix: token?.prefix || undefined,
  scopes: token?.scopes,
  tags: token?.tags,
  expires: formatTime(token?.expiresAtMs) ?? undefined,
});

async function createToken({ body }: Input, exchange: Exchange): Promise<Response> {
  const { service, token } = exchange;
  const grant = parseGrant(body);
  requireScopes(token, grant.scopes);
  const excess = token && findExcess(grant, token, service.config.rateLimit);
  if (excess !== undefined) throw new Refusal("insufficient_scope", excess);
  return answerJson(exchange, await issueToken(exchange.store, grant), undefined, 201);
}

async function listTokens(
  { query: { limit, after } }: Input<object, Values<typeof tokenFields>>,
  exchange: Exchange,
): Promise<Response> {
  // Tokens are listed by hash. The cursor sorts after every hash that begins with this id: digits are 0 to f.
  const from = after === undefined ? "" : `${after}g`;
  const found = await exchange.store.listTokens({ after: from, limit: limit + 1 });
  const page = found.slice(0, limit).map(summarize);
  const next = found.length > limit ? page.at(-1)?.id : undefined;
  return answerJson(exchange, page, linkNext(exchange, limit, next));
}

async function revokeToken(
  { path: { id } }: Input<Values<typeof tokenPath>>,
  { store, service: { config } }: Exchange,
): Promise<Response> {
  const [token] = await store.listTokens({ after: id, limit: 1 });
  if (token === undefined || summarize(token).id !== id) throw new Refusal("token_not_found");
  // PLANTSTORE_TOKEN manages tokens too, and cannot be revoked here.
  const isManager = token.scopes.includes(MANAGE) && (token.expiresAtMs ?? Infinity) > Date.now();
  const unlessLast = config.token === undefined && isManager ? MANAGE : undefined;
  if (!(await store.revokeToken(token.hash, Date.now(), unlessLast)))
    throw new Refusal("last_manager");
  return answer(204, null);
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
  tags: maybe(
    list(
      text("indoor"),
      "It sees and changes only plants with one of these tags; null for the whole store.",
    ),
  ),
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
    tags: {
      ...list(
        text(),
        "It sees and changes only plants with one of these tags. Absent for the whole store.",
      ),
      example: undefined,
    },
    expires: time(undefined, "Absent if the token does not expire."),
  },
  { optional: ["prefix", "tags", "expires"] },
);

const { name, expires, tags, rate } = grantRules;
const GrantShape = object(
  describeRules(grantRules, {
    name: text("till", `Unique among the tokens in use: ${name.expected}.`),
    scopes: list(text("plants:write", undefined, { enum: scopes }), undefined, { minItems: 1 }),
    expires: maybe(text("90d", `Never, or ${expires.expected}.`)),
    tags: maybe({
      ...list(text(), `Sees and changes only plants with one of these tags: ${tags.expected}.`),
      example: undefined,
    }),
    rate: maybe(text(undefined, `Requests and batch lines: ${rate.expected}.`)),
  }),
  { additionalProperties: false },
);

export const tokenOperations: Endpoints = {
  describeToken: operation({
    at: "GET /token",
    scopes: [],
    kind: "manage",
    summary: "Show the token that the request was sent with",
    description: "Its name, its scopes and its expiry, so that a client can tell what it may do.",
    run: describeToken,
    answers: ok("The token, without its secret.", json(OwnShape)),
  }),
  listTokens: operation({
    at: "GET /tokens",
    scopes: [MANAGE],
    kind: "manage",
    summary: "List the tokens",
    description:
      "A page of all tokens, revoked ones included, in the order of their ids; the next page is in the `Link` header, which the " +
      "last page does not have. The answer never has the token itself.",
    query: tokenFields,
    run: listTokens,
    answers: ok("The tokens.", json(list(Token)), "Link"),
  }),
  createToken: operation({
    at: "POST /tokens",
    scopes: [MANAGE],
    kind: "manage",
    summary: "Create a token",
    description:
      "Answers with the token, which is shown only once. A token cannot grant a scope that it lacks, a later expiry " +
      "than its own, a higher rate, or more than its tags. Each token has a rate of its own, so a rate does not bound what a token with " +
      "`tokens:manage` can do through others. " +
      "If the answer is lost, the name is taken: revoke that token, and create it again.",
    body: jsonBody(GrantShape, (value) => value),
    run: createToken,
    answers: answering(
      201,
      "The token works at once.",
      json(object({ token: text("pst_…"), ...tokenMembers })),
    ),
    fails: ["BadBody", "TokenNameTaken"],
  }),
  revokeToken: operation({
    at: "DELETE /tokens/{id}",
    scopes: [MANAGE],
    kind: "manage",
    summary: "Revoke a token",
    description:
      "Instances that can ask the store refuse the token within 5 seconds. The last token that can manage tokens cannot be revoked, unless the service has PLANTSTORE_TOKEN.",
    path: tokenPath,
    run: revokeToken,
    answers: answering(204, "The token is revoked."),
    fails: ["BadQuery", "TokenNotFound", "LastManager"],
  }),
};
