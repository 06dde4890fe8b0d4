/** The memory of compressed answers and bodies is counted, and given back whatever happens. */

import { expect, test } from "bun:test";
import { zstdCompressSync } from "node:zlib";
import { Refusal } from "../src/domain/errors.ts";
import { Budget } from "../src/http/budget.ts";
import type { Exchange, Service } from "../src/http/exchange.ts";
import { openPacker } from "../src/http/pack.ts";
import { unpack } from "../src/http/unpack.ts";
import { rejectionOf } from "./support/expect.ts";

const MiB = 1_048_576;

function exchangeThatAccepts(coding: string, packing: Budget): Exchange {
  const request = new Request("http://localhost/plants", {
    headers: { "accept-encoding": coding },
  });
  return { request, service: { packing } } as unknown as Exchange;
}

test("streams are compressed as long as the budget has room, from the moment they are asked for", () => {
  const packing = new Budget(2 * MiB);
  const open = (coding: string) => openPacker(exchangeThatAccepts(coding, packing));
  const [first, second] = [open("zstd"), open("zstd")];
  expect(packing.bytesHeld).toBe(2 * MiB);
  expect(open("zstd")).toBeUndefined();
  expect(() => open("zstd, identity;q=0")).toThrow(new Refusal("overloaded"));
  first?.hold(false);
  first?.hold(false);
  expect(open("zstd, identity;q=0")).toBeDefined();
  second?.hold(false);
  expect(packing.bytesHeld).toBe(MiB);
});

test("a damaged body holds nothing after its refusal, whatever follows", async () => {
  const packing = new Budget(100 * MiB);
  const service = { packing, config: { queueSecondsMax: 1 } } as unknown as Service;
  const refused = Promise.withResolvers<void>();
  const isOver = Promise.withResolvers<void>();
  const damaged = Buffer.from(zstdCompressSync(Buffer.alloc(100_000, "plants ")));
  damaged.fill(0xff, 12);
  const chunks = (async function* () {
    yield new Uint8Array(damaged);
    await refused.promise;
    // A frame with a window of 8 MB.
    yield new Uint8Array([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68, 0, 0, 0]);
    isOver.resolve();
  })();
  const read = async (): Promise<void> => {
    for await (const _ of unpack("zstd", chunks, service));
  };
  expect(await rejectionOf(read())).toMatchObject({ reason: "invalid_encoding" });
  refused.resolve();
  await Promise.race([isOver.promise, Bun.sleep(100)]);
  expect(packing.bytesHeld).toBe(0);
});

test("a body of many empty frames does not hold up other requests", async () => {
  const packing = new Budget(100 * MiB);
  const service = { packing, config: { queueSecondsMax: 1 } } as unknown as Service;
  const empty = zstdCompressSync(Buffer.alloc(0));
  const withWindow = Buffer.from("28b52ffd0068010000", "hex");
  const frames = [...Array<Buffer>(20_000).fill(empty), withWindow];
  let ticks = 0;
  const read = async (): Promise<void> => {
    const chunks = (async function* () {
      yield new Uint8Array(Buffer.concat(frames));
    })();
    for await (const _ of unpack("zstd", chunks, service));
  };
  const reading = read();
  // The window of the last frame counts when the frame is reached.
  for (; packing.bytesHeld < 8 * MiB; ticks++) await new Promise(setImmediate);
  await reading;
  expect(ticks).toBeGreaterThan(5);
});
