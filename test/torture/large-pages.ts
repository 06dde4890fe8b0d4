/** Clients that read large pages without a pause, beside others that create: writes keep their share. */

import { Ledger } from "../support/model.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { makeStore, readPlants } from "../support/stores.ts";
import { Creators, goodputOf, makePlantsFrom, quantile } from "./creators.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import { startTorturedService } from "./service.ts";

/** What creates keep of the rate that they have alone. */
const LONG = { plants: 2_000_000, goodputShareMin: 0.25 };
/** Measured for a second or two, beside whatever else runs: with several workers that says nothing on two cores. */
const SHORT = { plants: 200_000, goodputShareMin: 0.01 };
/** Several need Linux. */
const WORKERS = process.platform === "linux" ? [1, 2] : [1];
const CREATORS = 16;
const READERS = 8;
const PAGE_LENGTH = 1_000;

export const largePages: Scenario = {
  title: "eight readers of large pages by tag, beside creates that keep their share",
  run,
};

async function run({ seconds, ...budget }: Budget): Promise<Finding> {
  const faults: string[] = [];
  const figures: Record<string, number | string> = {};
  const counts = budget.isShort ? [1] : WORKERS;
  for (const workers of counts) {
    const found = await runWith(workers, { ...budget, seconds: seconds / counts.length });
    const name = `${workers} worker${workers === 1 ? "" : "s"}`;
    faults.push(...found.faults.map((fault) => `${name}: ${fault}`));
    for (const [figure, value] of Object.entries(found.figures))
      figures[`${name}: ${figure}`] = value;
  }
  return { faults, figures };
}

async function runWith(
  workers: number,
  { seconds, tell, isShort = false }: Budget,
): Promise<Finding> {
  const { plants, goodputShareMin } = isShort ? SHORT : LONG;
  const settings = { PLANTSTORE_WORKERS: String(workers) };
  const prepare = (path: string): void => makeStore(path, plants);
  await using service = await startTorturedService(settings, 1_000, prepare);
  const ledger = new Ledger();
  const creators = new Creators(service.url, ledger, makePlantsFrom(plants + 1));
  await creators.start(CREATORS);
  await creators.measure(seconds / 4);
  const alone = await creators.measure(seconds / 4);
  tell(`${READERS} readers come`);
  const faults: string[] = [];
  const reading = { isOver: false, pages: 0 };
  const readers = Array.from({ length: READERS }, async (_, nth) => {
    let target = firstPage(nth);
    while (!reading.isOver) {
      const response = await fetch(service.url + target, {
        headers: { authorization: `Bearer ${TEST_TOKEN}` },
      });
      const page = (await response.json()) as unknown[];
      reading.pages++;
      if (response.status !== 200) faults.push(`a page was answered ${response.status}`);
      const next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
      if (next !== undefined && page.length !== PAGE_LENGTH)
        faults.push(`a page had ${page.length} plants`);
      target =
        next === undefined
          ? firstPage(nth)
          : new URL(next, service.url + target).href.slice(service.url.length);
    }
  });
  const beside = await creators.measure(seconds / 2);
  reading.isOver = true;
  await Promise.all(readers);
  await creators.stop();
  const { exitCode, complaints } = await service.stop();
  const share = goodputOf(beside) / goodputOf(alone);
  faults.push(
    ...creators.faults,
    ...complaints,
    ...ledger.compare(readPlants(service.path, BigInt(plants + 1))),
  );
  if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  if (reading.pages < READERS) faults.push(`only ${reading.pages} pages were read`);
  if (share < goodputShareMin)
    faults.push(`creates kept ${Math.round(share * 100)} % of the rate that they have alone`);
  return {
    faults,
    figures: {
      "created a second alone": goodputOf(alone),
      "created a second beside the readers": goodputOf(beside),
      "kept, of the rate alone": share,
      "waited at most beside the readers, ms": quantile(beside.acceptedMs, 1),
      "pages a second": reading.pages / beside.seconds,
    },
  };
}

const firstPage = (nth: number): string =>
  `/plants?tag=${encodeURIComponent(`tag ${nth % 7}`)}&limit=${PAGE_LENGTH}`;
