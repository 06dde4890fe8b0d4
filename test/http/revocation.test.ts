/** A token that is revoked or expires ends what it has begun. */

import { describe, expect, test } from "bun:test";
import { hashToken } from "../../src/auth/token.ts";
import { catalogue } from "../../src/domain/errors.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import {
  bearer,
  grantToken,
  sendLines,
  startService,
  storePlants,
  TEST_TOKEN,
  type TestService,
} from "../support/service.ts";
import { until } from "../support/until.ts";
import { batchHead, chunk, connectRaw, getHead, sendDeaf } from "../support/wire.ts";

export const groups = ["sqlite"];

const endToken = async ({ store, database }: TestService, token: string, end = "revoked") =>
  end === "expired"
    ? database.run("UPDATE tokens SET expires_at_ms = 1")
    : store.revokeToken(hashToken(token), Date.now());

describe.concurrent("a token that is no longer good", () => {
  test.each([
    ["revoked", "token_invalid"],
    ["expired", "token_expired"],
  ] as const)(
    "%s, ends a batch that waits for its next line, with a last result: %s",
    async (how, reason) => {
      // Longer than a test may take: it is not the body's deadline that ends it.
      await using service = await startService(limits({ readSecondsMax: 3_600 }));
      const token = await grantToken(service);
      const connection = await connectRaw(service.url);
      connection.send(`${batchHead().replace(TEST_TOKEN, token)}${chunk('{"id":1,"name":"a"}\n')}`);
      await connection.receive(/"line":1,"status":200/);
      await endToken(service, token, how);
      const received = await connection.receive(/"line":2,.*\r\n0\r\n\r\n$/s);
      expect(received).toContain(`"status":401,"error":${catalogue[reason].code}`);
      expect(service.logLines.join("")).toContain(`"reason":"${reason}"`);
      connection.abort();
    },
  );

  test("ends a batch whose lines have all arrived before its next block is stored", async () => {
    await using service = await startService();
    const token = await grantToken(service);
    let ending: Promise<unknown> | undefined;
    let calls = 0;
    service.store.writePlants = async (writes) => {
      calls++;
      await (ending ??= endToken(service, token));
      // The service looks at tokens twice a second.
      await Bun.sleep(1_000);
      return writes.map(() => "created" as const);
    };
    const response = await sendLines(service, makeLines(0, 3_000), bearer(token));
    expect(parseLines(await response.text()).at(-1)).toMatchObject({ status: 401 });
    expect(calls).toBe(1);
  });

  test("ends an export, whether its reader takes it or not", async () => {
    await using service = await startService(limits({ drainSecondsMax: 0.1 }));
    await storePlants(service, 400, "x".repeat(100_000));
    const token = await grantToken(service);
    const request = getHead("/plants", "Accept: application/x-ndjson").replace(TEST_TOKEN, token);
    const stalled = sendDeaf(service.url, request);
    const slow = sendDeaf(service.url, request);
    const closed = new Promise((resolve) => slow.once("close", resolve));
    const begun = new Promise((resolve) => slow.once("data", resolve));
    slow.on("data", () => {
      slow.pause();
      setTimeout(() => slow.resume(), 100);
    });
    slow.resume();
    await begun;
    await endToken(service, token);
    await closed;
    expect(slow.bytesRead).toBeWithin(1, 40_000_000);
    await until("the other is cut off", () => service.logLines.join("").includes("answer_cut_off"));
    expect(service.logLines.join("")).toContain(`"reason":"token_invalid"`);
    stalled.destroy();
  });
});
