/** A receiver of webhooks that keeps what it is sent, and answers as the test wants. */

import { Webhook as Verifier } from "standardwebhooks";
import type { Webhook } from "../../src/domain/webhook.ts";
import { createSecret } from "../../src/webhooks/send.ts";

/** A stored webhook with no pending events and no lease. */
export const makeWebhook = (name: string, more: Partial<Webhook> = {}): Webhook => ({
  name,
  url: "http://127.0.0.1:9/",
  types: ["created"],
  secret: createSecret(),
  oldSecret: undefined,
  createdAtMs: 0,
  cursor: 0,
  paused: undefined,
  failures: 0,
  nextAttemptAtMs: 0,
  attempts: [],
  holder: undefined,
  version: name,
  ...more,
});

export interface Received {
  readonly id: string;
  readonly type: string;
  readonly body: string;
  readonly headers: Record<string, string>;
}

export function startReceiver() {
  const received: Received[] = [];
  let news = Promise.withResolvers<void>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request): Promise<Response> => {
      const body = await request.text();
      const { type } = JSON.parse(body) as { type: string };
      const headers = request.headers.toJSON() as Record<string, string>;
      received.push({ id: headers["webhook-id"] ?? "", type, body, headers });
      news.resolve();
      news = Promise.withResolvers();
      return receiver.answers.shift() ?? new Response(null, { status: 204 });
    },
  });
  const receiver = {
    url: `http://127.0.0.1:${server.port}/hook`,
    received,
    /** The next answers; then 204. */
    answers: [] as (Response | Promise<Response>)[],
    /** Resolves when it has been sent that many. */
    until: async (count: number): Promise<void> => {
      while (received.length < count) await news.promise;
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
  return receiver;
}

/** Throws unless the standard's own library finds the signature right. */
export const verify = ({ body, headers }: Received, secret: string): unknown =>
  new Verifier(secret).verify(body, headers);
