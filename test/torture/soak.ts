/** Everything at once for as long as one likes: memory and descriptors stay what they were, and the store is right. */

import { Clients, type Surroundings } from "../support/clients.ts";
import { readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";
import { connectRaw } from "../support/wire.ts";
import { quantile } from "./creators.ts";
import { sendRaw } from "./fuzz.ts";
import { judgeForm } from "./fuzz-judge.ts";
import { format, makeRaw, makeSound } from "./fuzz-requests.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";
import {
  countDescriptors,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
} from "./service.ts";

const CLIENTS = 16;
/** The store does not grow, and neither should anything else. */
const PLANTS_EACH_MAX = 150;
const BATCH_LENGTH_MAX = 20;
const NAME_LENGTH_MAX = 200;
/** Beyond what a double can hold, and what the nuisances create. */
const FIRST_ID = 2n ** 61n;
const LAST_ID = FIRST_ID + 2n ** 48n;
/** Clients that send anything, and then vanish in the middle of a request. */
const NUISANCES = 8;
const SOUND_REQUESTS_EACH = 20;
const MADE = 500;
const NUISANCE_ID = 2n ** 60n;
const SAMPLE_MS = 200;
const TELL_EVERY = 300;
/**
 * The garbage collector's ups and downs are less. An hour has some ten million requests, where a leak of
 * three bytes each would show; a minute shows one of a few hundred.
 */
const MEMORY_BYTES_MORE_MAX = 24 * 1024 ** 2;
/** A few seconds end before the heap has its size: it grew by 32 MB where half a minute showed less than 1 MB. */
const SHORT_MEMORY_BYTES_MORE_MAX = 48 * 1024 ** 2;
const DESCRIPTORS_MORE_MAX = 5;
/** Compilers and caches fill up in the beginning. */
const WARM_UP_SHARE = 0.4;

export const soak: Scenario = {
  title: "every operation, right, wrong and aborted, without a pause",
  missing: missingFigures,
  run,
};

async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  await using service = await startTorturedService({ PLANTSTORE_LOG_LEVEL: "warn" });
  const faults: string[] = [];
  const surroundings: Surroundings = {
    findUrl: () => service.url,
    firstId: FIRST_ID,
    plantsMax: PLANTS_EACH_MAX,
    batchLengthMax: BATCH_LENGTH_MAX,
    nameLengthMax: NAME_LENGTH_MAX,
    mayRefuse: ["overloaded", "store_busy"],
    onLost: () => faults.push("a connection was lost"),
  };
  const clients = new Clients(CLIENTS, surroundings, random);
  const memory: number[] = [];
  const descriptorsBefore = countDescriptors(service.pid);
  let nuisances = 0;
  const countRequests = (): number => clients.requests + nuisances;
  const watch = setInterval(() => {
    if (!service.isAlive()) return;
    const bytes = measureMemoryBytes(service.pid);
    if (memory.push(bytes) % TELL_EVERY === 0)
      tell(`${countRequests()} requests, ${Math.round(bytes / 1e6)} MB`);
  }, SAMPLE_MS);
  const isTimeOver = endsAfter(seconds);
  const isOver = (): boolean => isTimeOver() || !service.isAlive();
  // Made once: to make one takes longer than to answer it.
  const sound = Array.from({ length: MADE }, () =>
    makeSound(NUISANCE_ID, NUISANCE_ID + 1n, random),
  );
  const raw = Array.from({ length: MADE }, () => makeRaw(NUISANCE_ID, random));
  const disturb = async (): Promise<void> => {
    while (!isOver()) {
      const connection = await connectRaw(service.url);
      for (let left = SOUND_REQUESTS_EACH; left > 0 && !isOver(); left--) {
        const request = random.pick(sound);
        const answer = await connection.ask(format(request));
        if (answer === undefined) break;
        nuisances++;
        const found = judgeForm(answer, request.line.startsWith("HEAD "));
        faults.push(...found.map((fault) => `${fault} to ${request.line}`));
      }
      connection.abort();
      const bytes = random.pick(raw);
      const { faults: found } = await sendRaw(service.url, bytes);
      nuisances++;
      faults.push(...found.map((fault) => `${fault} to ${bytes.toString("latin1", 0, 500)}`));
    }
  };
  await Promise.all(Array.from({ length: NUISANCES }, disturb));
  await clients.stop();
  clearInterval(watch);

  // The clients keep their connections.
  const descriptorsMax = descriptorsBefore + CLIENTS + NUISANCES + DESCRIPTORS_MORE_MAX;
  await until(
    `at most ${descriptorsMax} descriptors are open`,
    () => !service.isAlive() || countDescriptors(service.pid) <= descriptorsMax,
  ).catch((error: Error) => faults.push(error.message));
  faults.push(...(await service.stop()));
  const rows = readPlants(service.path).filter(({ id }) => id >= FIRST_ID && id < LAST_ID);
  faults.push(...clients.compare(rows));
  const growth = measureGrowth(memory);
  if (growth > (isShort ? SHORT_MEMORY_BYTES_MORE_MAX : MEMORY_BYTES_MORE_MAX))
    faults.push(`memory grew by ${growth} bytes after the warm-up`);
  return {
    faults,
    figures: {
      requests: countRequests(),
      "requests a second": countRequests() / seconds,
      "put off by 503": clients.unsettled,
      "plants in the end": clients.ledger.listCertain().length,
      "memory in the end, MB": (memory.at(-1) ?? 0) / 1e6,
      "memory growth after the warm-up, bytes": growth,
    },
  };
}

/** Between the first and the last quarter behind the warm-up, by their medians. */
function measureGrowth(samples: readonly number[]): number {
  const warm = samples.slice(Math.floor(samples.length * WARM_UP_SHARE));
  const quarter = Math.max(1, Math.floor(warm.length / 4));
  return quantile(warm.slice(-quarter), 0.5) - quantile(warm.slice(0, quarter), 0.5);
}
