/** verifyWebhook, against signatures made by another implementation of HMAC. */

import { expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { verifyWebhook, WebhookError, type WebhookEvent } from "../../client/client.ts";
import { rejectionOf } from "../support/expect.ts";

const secretOf = (text: string): string => `whsec_${Buffer.from(text).toString("base64")}`;
const SECRET = secretOf("a secret of 24 bytes, ok");
const OTHER = secretOf("another secret of 24 byt");
const NOW = 1_767_225_600;
const body = '{"type":"plant.created","data":{"name":"Röschen"}}';

function sign(secret: string, timestamp = String(NOW), id = "msg_1", text = body): string {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${text}`).digest("base64")}`;
}

const headersWith = (signature: string, timestamp = String(NOW)) => ({
  "webhook-id": "msg_1",
  "webhook-timestamp": timestamp,
  "webhook-signature": signature,
});

const verify = (
  text: string,
  headers: Parameters<typeof verifyWebhook>[1],
  secret: string | string[] = SECRET,
) => verifyWebhook(text, headers, secret, { nowMs: NOW * 1_000 });

test("a right signature is accepted, and the body parsed", async () => {
  const headers = headersWith(sign(SECRET));
  const expected = JSON.parse(body) as WebhookEvent;
  expect(await verify(body, headers)).toEqual(expected);
  expect(await verify(body, new Headers(headers))).toEqual(expected);
});

test("an id that a double cannot hold keeps its digits", async () => {
  const text = '{"type":"plant.removed","data":{"id":-9223372036854775807,"by":"\\"id\\":1"}}';
  const event = await verify(text, headersWith(sign(SECRET, String(NOW), "msg_1", text)));
  expect(event.data).toMatchObject({ id: -9223372036854775807n, by: '"id":1' });
});

test("while a secret is replaced, one of several signatures and secrets is enough", async () => {
  const two = headersWith(`v1a,abc ${sign(OTHER)} ${sign(SECRET)}`);
  expect(await verify(body, two)).toBeDefined();
  expect(await verify(body, headersWith(sign(OTHER)), [SECRET, OTHER])).toBeDefined();
});

const old = String(NOW - 301);
test.each([
  ["a changed body", `${body} `, headersWith(sign(SECRET))],
  ["another secret", body, headersWith(sign(OTHER))],
  ["another id", body, headersWith(sign(SECRET, String(NOW), "msg_2"))],
  ["no signature", body, headersWith("")],
  ["a signature that is not base64", body, headersWith("v1,***")],
  ["another version", body, headersWith(sign(SECRET).replace("v1,", "v2,"))],
  ["an old time", body, headersWith(sign(SECRET, old), old)],
  ["no time", body, headersWith(sign(SECRET, ""), "")],
  ["no headers", body, {}],
])("is refused: %s", async (_name, text, headers) =>
  expect(await rejectionOf(verify(text, headers))).toBeInstanceOf(WebhookError),
);

test("a secret that is none is the caller's mistake", async () =>
  expect(await rejectionOf(verify(body, headersWith(sign(SECRET)), ""))).toBeInstanceOf(TypeError));
