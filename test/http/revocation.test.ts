/** A token that is revoked or expires ends what it has begun, within 5 seconds. */

import { describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { scopes } from "../../src/domain/token.ts";
import { limits } from "../support/limits.ts";
import { startService, TEST_TOKEN, type TestService } from "../support/service.ts";
import { batchHead, chunk, connectRaw, receive } from "../support/wire.ts";

/** The promise is 5 seconds. A machine that runs other tests beside this one gets a second more. */
const PROMISED_MS = 6_000;
/** By then what the token is to end has begun. */
const EXPIRY_MS = 2_500;

type End = "revoked" | "expired";
const reasonOf: Record<End, ErrorName> = { revoked: "token_invalid", expired: "token_expired" };

async function makeToken(
  service: TestService,
  end: End,
): Promise<{ token: string; end: () => Promise<void> }> {
  const token = mintToken();
  const createdAtMs = Date.now();
  const expiresAtMs = end === "expired" ? createdAtMs + EXPIRY_MS : undefined;
  const record = toRecord(token, { name: end, scopes, createdAtMs, expiresAtMs });
  await service.store.createToken(record);
  return {
    token,
    end: async () => {
      if (end === "expired") await Bun.sleep(EXPIRY_MS);
      else await service.store.revokeToken(record.hash, Date.now());
    },
  };
}

describe.concurrent.each(["revoked", "expired"] as const)("a token that is %s", (how) => {
  test("ends a batch that waits for its next line, with a last result", async () => {
    await using service = await startService();
    const { token, end } = await makeToken(service, how);
    const connection = await connectRaw(service.url);
    connection.send(`${batchHead().replace(TEST_TOKEN, token)}${chunk('{"id":1,"name":"a"}\n')}`);
    await receive(connection, /"line":1,"status":200/);
    await end();
    const endedAtMs = performance.now();
    const received = await receive(connection, /"line":2,.*\r\n0\r\n\r\n$/s);
    expect(performance.now() - endedAtMs).toBeLessThan(PROMISED_MS);
    expect(received).toContain(`"status":401,"error":${catalogue[reasonOf[how]].code}`);
    expect(service.logLines.join("")).toContain(`"reason":"${reasonOf[how]}"`);
    connection.abort();
  }, 15_000);

  test("ends a batch that is sent without a pause, and nothing is stored after it", async () => {
    await using service = await startService();
    const { token, end } = await makeToken(service, how);
    let sent = 0;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        controller.enqueue(Buffer.from(`{"id":${++sent},"name":"a"}\n`));
        await Bun.sleep(5);
      },
    });
    const response = await fetch(`${service.url}/plants/batch`, {
      method: "POST",
      body,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/x-ndjson" },
    });
    await end();
    const endedAtMs = performance.now();
    const lines = (await response.text()).trim().split("\n");
    expect(performance.now() - endedAtMs).toBeLessThan(PROMISED_MS);
    expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({ status: 401 });
    expect((await service.readPlants()).length).toBe(lines.length - 1);
  }, 15_000);

  test("ends a batch whose lines have all arrived, and the store gets no more of them", async () => {
    await using service = await startService();
    const { token, end } = await makeToken(service, how);
    let ending: Promise<void> | undefined;
    let calls = 0;
    service.store.createPlants = async (plants) => {
      calls++;
      await (ending ??= end());
      // The service looks at tokens twice a second.
      await Bun.sleep(1_000);
      return plants.map(() => "created" as const);
    };
    const lines = Array.from({ length: 3_000 }, (_, id) => `{"id":${id},"name":""}\n`);
    const response = await fetch(`${service.url}/plants/batch`, {
      method: "POST",
      body: lines.join(""),
      headers: { authorization: `Bearer ${token}`, "content-type": "application/x-ndjson" },
    });
    const results = (await response.text()).trim().split("\n");
    expect(JSON.parse(results.at(-1) ?? "")).toMatchObject({ status: 401 });
    expect(calls).toBe(1);
  }, 15_000);

  test("ends an export, whether its reader takes it or not", async () => {
    await using service = await startService(limits({ drainSecondsMax: 0.1 }));
    const name = "x".repeat(100_000);
    for (let block = 0; block < 10; block++)
      await service.store.createPlants(
        Array.from({ length: 40 }, (_, i) => ({
          id: BigInt(block * 40 + i),
          name,
          tag: undefined,
        })),
      );
    const { token, end } = await makeToken(service, how);
    const stalled = exportPlants(service, token);
    stalled.socket.pause();
    const slow = exportPlants(service, token);
    const begun = new Promise((resolve) => slow.socket.once("data", resolve));
    slow.socket.on("data", () => {
      slow.socket.pause();
      setTimeout(() => slow.socket.resume(), 100);
    });
    await begun;
    await end();
    const endedAtMs = performance.now();
    await slow.closed;
    expect(performance.now() - endedAtMs).toBeLessThan(PROMISED_MS);
    expect(slow.socket.bytesRead).toBeWithin(1, 40_000_000);
    while (!isCutOff(service)) await Bun.sleep(20);
    expect(performance.now() - endedAtMs).toBeLessThan(PROMISED_MS);
    expect(service.logLines.join("")).toContain(`"reason":"${reasonOf[how]}"`);
    stalled.socket.destroy();
  }, 20_000);
});

function exportPlants(
  { url }: TestService,
  token: string,
): { socket: Socket; closed: Promise<void> } {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  const top = [
    "GET /plants HTTP/1.1",
    "Host: a",
    `Authorization: Bearer ${token}`,
    "Accept: application/x-ndjson",
  ];
  socket.write(`${top.join("\r\n")}\r\n\r\n`);
  socket.on("error", () => undefined);
  return { socket, closed: new Promise((resolve) => socket.on("close", () => resolve())) };
}

const isCutOff = ({ logLines }: TestService): boolean =>
  logLines.some((line) => line.includes("answer_cut_off"));
