/** Operations that take and answer small values: tokens and webhooks. */

import { parseJson } from "../domain/json.ts";
import type { Scope } from "../domain/token.ts";
import { readText, requireType } from "./body.ts";
import { answer, type Exchange, LacksScope } from "./handle.ts";
import { answering, type Entry, json } from "./openapi-parts.ts";
import { JSON_TYPE } from "./request-headers.ts";
import type { Shape } from "./shape.ts";
import { answerJson } from "./stream.ts";

interface JsonOperation extends Pick<Entry, "at" | "summary" | "description" | "fails"> {
  readonly scope: Scope | "any";
  /** One more scope. */
  readonly needs?: Scope;
  readonly body?: Shape;
  readonly run: (exchange: Exchange, given: unknown) => unknown;
  readonly status?: number;
  /** Of the answer. */
  readonly meaning?: string;
  /** What is answered; left out if nothing is. */
  readonly shows?: Shape;
}

export function toEntry(operation: JsonOperation): Entry {
  const { run, needs, body, meaning = "Done.", shows, fails = [], ...described } = operation;
  const { status = shows === undefined ? 204 : 200, ...entry } = described;
  return {
    ...entry,
    handle: async (exchange) => {
      const { request, service, token } = exchange;
      if (needs !== undefined && !token?.scopes.includes(needs)) throw new LacksScope(needs);
      if (body === undefined) await request.body?.cancel();
      else requireType(request.headers, JSON_TYPE);
      const given = body && parseJson(await readText(exchange));
      // A token that was revoked just before, or while the body came, must not leave a token or a webhook behind.
      if (request.method !== "GET")
        await service.authenticator.authenticate(request.headers.get("authorization"), 0);
      const result = await run(exchange, given);
      // The list of webhooks is the only large one, and it is a 200.
      if (status === 200) return answerJson(exchange, result);
      return answer(status, shows === undefined ? null : JSON.stringify(result));
    },
    ...(body && { bodyTypes: [JSON_TYPE], takes: json(body) }),
    answers: answering(status, meaning, shows && json(shows)),
    fails: [body ? "BadBody" : "BadQuery", ...fails],
  };
}
