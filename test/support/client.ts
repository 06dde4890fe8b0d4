/** Requests with a good token, by method and path. */

import { TEST_TOKEN, type TestService } from "./service.ts";

export interface Sent {
  readonly body?: string | Uint8Array | ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
}

export function send(
  service: TestService,
  method: string,
  path: string,
  sent: Sent = {},
): Promise<Response> {
  const type: Record<string, string> =
    sent.body === undefined ? {} : { "content-type": "application/json" };
  return fetch(service.url + path, {
    method,
    headers: { authorization: `Bearer ${TEST_TOKEN}`, ...type, ...sent.headers },
    ...(sent.body === undefined ? {} : { body: sent.body }),
  });
}

/** What a refusal has to look like on the wire. */
export async function readError(
  response: Response,
): Promise<{ status: number; error: number; message: string }> {
  const { error, message } = (await response.json()) as { error: number; message: string };
  return { status: response.status, error, message };
}
