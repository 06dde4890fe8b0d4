/** verifyWebhook, against signatures made by another implementation of HMAC. */

import { describe, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { verifyWebhook, WebhookError, type WebhookEvent } from "../client/client.ts";
import { rejectionOf } from "./support/expect.ts";

const SECRET = `whsec_${Buffer.from("a secret of 24 bytes, ok").toString("base64")}`;
const OTHER = `whsec_${Buffer.from("another secret of 24 byt").toString("base64")}`;
const NOW_MS = 1_767_225_600_000;
const body = '{"type":"plant.created","data":{"name":"Röschen"}}';

function sign(secret: string, timestamp: string, id = "msg_1", text = body): string {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${text}`).digest("base64")}`;
}

const headersWith = (signature: string, timestamp = String(NOW_MS / 1000)) => ({
  "webhook-id": "msg_1",
  "webhook-timestamp": timestamp,
  "webhook-signature": signature,
});

const now = String(NOW_MS / 1000);

test("a right signature is accepted, and the body parsed", async () => {
  const headers = headersWith(sign(SECRET, now));
  const expected = JSON.parse(body) as WebhookEvent;
  expect(await verifyWebhook(body, headers, SECRET, { nowMs: NOW_MS })).toEqual(expected);
  expect(await verifyWebhook(body, new Headers(headers), SECRET, { nowMs: NOW_MS })).toEqual(
    expected,
  );
});

test("an id that a double cannot hold keeps its digits", async () => {
  const text = '{"type":"plant.removed","data":{"id":-9223372036854775807,"by":"\\"id\\":1"}}';
  const headers = headersWith(sign(SECRET, now, "msg_1", text));
  const event = await verifyWebhook(text, headers, SECRET, { nowMs: NOW_MS });
  expect(event.data).toMatchObject({ id: -9223372036854775807n, by: '"id":1' });
});

test("while a secret is replaced, one of several signatures and secrets is enough", async () => {
  const two = headersWith(`v1a,abc ${sign(OTHER, now)} ${sign(SECRET, now)}`);
  expect(await verifyWebhook(body, two, SECRET, { nowMs: NOW_MS })).toBeDefined();
  const one = headersWith(sign(OTHER, now));
  expect(await verifyWebhook(body, one, [SECRET, OTHER], { nowMs: NOW_MS })).toBeDefined();
});

describe("is refused:", () => {
  const old = String(NOW_MS / 1000 - 301);
  test.each([
    ["a changed body", `${body} `, headersWith(sign(SECRET, now))],
    ["another secret", body, headersWith(sign(OTHER, now))],
    ["another id", body, headersWith(sign(SECRET, now, "msg_2"))],
    ["no signature", body, headersWith("")],
    ["a signature that is not base64", body, headersWith("v1,***")],
    ["another version", body, headersWith(sign(SECRET, now).replace("v1,", "v2,"))],
    ["an old time", body, headersWith(sign(SECRET, old), old)],
    ["no time", body, headersWith(sign(SECRET, ""), "")],
    ["no headers", body, {}],
  ])("%s", async (_name, text, headers) => {
    const rejection = await rejectionOf(verifyWebhook(text, headers, SECRET, { nowMs: NOW_MS }));
    expect(rejection).toBeInstanceOf(WebhookError);
  });

  test("a secret that is none", async () => {
    const headers = headersWith(sign(SECRET, now));
    const rejection = await rejectionOf(verifyWebhook(body, headers, "", { nowMs: NOW_MS }));
    expect(rejection).toBeInstanceOf(TypeError);
  });
});
