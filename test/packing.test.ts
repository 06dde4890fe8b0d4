/** The memory of compressed answers and bodies is counted, and given back whatever happens. */

import { expect, test } from "bun:test";
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
  const damaged = Bun.gzipSync(crypto.getRandomValues(new Uint8Array(100_000)));
  damaged.fill(0xff, 2_000, 2_010);
  const chunks = (async function* () {
    yield damaged;
    await refused.promise;
    yield Bun.gzipSync("plants");
    isOver.resolve();
  })();
  const read = async (): Promise<void> => {
    for await (const _ of unpack(chunks, service)) expect(packing.bytesHeld).toBeGreaterThan(0);
  };
  expect(await rejectionOf(read())).toMatchObject({ reason: "invalid_encoding" });
  expect(packing.bytesHeld).toBe(0);
  refused.resolve();
  await Promise.race([isOver.promise, Bun.sleep(100)]);
  expect(packing.bytesHeld).toBe(0);
});

test("a body of many empty members does not hold up other requests", async () => {
  const service = { packing: new Budget(MiB), config: { queueSecondsMax: 1 } };
  const members = Array<Uint8Array>(20_000).fill(Bun.gzipSync(""));
  const chunks = (async function* () {
    yield new Uint8Array(Buffer.concat(members));
  })();
  let ticks = 0;
  let next: NodeJS.Immediate | undefined;
  const tick = (): void => {
    ticks++;
    next = setImmediate(tick);
  };
  tick();
  for await (const _ of unpack(chunks, service as unknown as Service));
  clearImmediate(next);
  expect(ticks).toBeGreaterThan(5);
});
