/** Everything at once for as long as one likes: memory and descriptors stay what they were, and the store is right. */

import { isSamePlant } from "../support/plants.ts";
import { createRandom, type Random } from "../support/random.ts";
import { readPlants } from "../support/stores.ts";
import { measureGrowth, type Sample } from "./growth.ts";
import type { Finding, Scenario } from "./scenario.ts";
import {
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
  type TorturedService,
} from "./service.ts";
import { SoakClient } from "./soak-client.ts";

interface Terms {
  readonly seconds: number;
  readonly random: Random;
  readonly tell: (line: string) => void;
}

const CLIENTS = 24;
const SAMPLE_MS = 200;
const TELL_EVERY = 300;
/**
 * The garbage collector's ups and downs are less. An hour has some ten million requests, of which a leak of
 * three bytes each would show; a minute shows one of a few hundred.
 */
const MEMORY_BYTES_MORE_MAX = 24 * 1024 ** 2;
const DESCRIPTORS_MORE_MAX = 5;

export const soak: Scenario = {
  title: "every operation, right, wrong and aborted, without a pause",
  missing: missingFigures,
  run: (budget) => runSoak(budget),
};

export async function runSoak({ seconds, random, tell }: Terms): Promise<Finding> {
  await using service = await startTorturedService({ PLANTSTORE_LOG_LEVEL: "warn" });
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, (_, nth) =>
      SoakClient.open(service.url, nth, createRandom(random.below(2 ** 31))),
    ),
  );
  const samples: Sample[] = [];
  const descriptors: number[] = [];
  const countRequests = (): number => clients.reduce((sum, { requests }) => sum + requests, 0);
  const watch = setInterval(() => {
    if (!service.isAlive()) return;
    const bytes = measureMemoryBytes(service.pid);
    descriptors.push(countDescriptors(service.pid));
    if (samples.push({ requests: countRequests(), bytes }) % TELL_EVERY === 0)
      tell(`${countRequests()} requests, ${Math.round(bytes / 1e6)} MB`);
  }, SAMPLE_MS);
  const endMs = performance.now() + seconds * 1000;
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < endMs && service.isAlive()) await client.act();
    }),
  );
  clearInterval(watch);
  for (const client of clients) client.close();

  const growth = measureGrowth(samples);
  const faults = clients.flatMap((client) => client.faults);
  faults.push(...(await end(service, clients)));
  if (growth.bytes > MEMORY_BYTES_MORE_MAX)
    faults.push(
      `memory grew by ${growth.bytes} bytes in ${growth.requests} requests, ${growth.bytesPerRequest.toFixed(1)} each`,
    );
  const descriptorGrowth = measureGrowth(
    descriptors.map((bytes, requests) => ({ requests, bytes })),
  );
  if (descriptorGrowth.bytes > DESCRIPTORS_MORE_MAX)
    faults.push(`${descriptorGrowth.bytes} descriptors more were open in the end`);
  return {
    faults,
    figures: {
      requests: countRequests(),
      "requests a second": countRequests() / seconds,
      "put off by 503": clients.reduce((sum, { refused }) => sum + refused, 0),
      "plants in the end": clients.reduce((sum, { plants }) => sum + plants.size, 0),
      "memory in the end, MB": (samples.at(-1)?.bytes ?? 0) / 1e6,
      "memory growth after the warm-up, bytes": growth.bytes,
      "in so many requests": growth.requests,
      "bytes a request": growth.bytesPerRequest,
      "descriptors in the end": descriptors.at(-1) ?? 0,
    },
  };
}

/** The log without a complaint, and exactly the plants that the clients know of. */
async function end(service: TorturedService, clients: readonly SoakClient[]): Promise<string[]> {
  if (!service.isAlive()) return ["the process died"];
  const { exitCode, complaints } = await service.stop();
  const faults = [...complaints];
  if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  const stored = new Map(readPlants(service.path).map((plant) => [plant.id, plant]));
  for (const plant of clients.flatMap(({ plants }) => [...plants.values()])) {
    const kept = stored.get(plant.id);
    if (kept === undefined || !isSamePlant(kept, plant))
      faults.push(`${plant.id} is lost or another`);
    stored.delete(plant.id);
  }
  return [...faults, ...[...stored.keys()].map((id) => `${id} should not be stored`)];
}
