/**
 * PATCH and DELETE /plants by filter, and what they share with a revert: a preview, a job, or progress as NDJSON, one
 * block at a time.
 */

import {
  BULK_CHARACTERS_MAX,
  type BulkOptions,
  changeBlock,
  countBlock,
  describeLeft,
  isLeaseLost,
  type Left,
  previewBulk,
  readMatching,
  requireFilter,
  startBulkCounts,
  writeBlock,
} from "../domain/bulk.ts";
import { nameBatch, type Writer } from "../domain/change.ts";
import { describeRefusal, Refusal, toRefusal } from "../domain/errors.ts";
import { formatJson } from "../domain/json.ts";
import type { Done, Patch, PlantWrite } from "../domain/write.ts";
import { NDJSON_TYPES, requireOpen } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange, Input } from "./exchange.ts";
import type { asyncHeaders, bulkFields, bulkHeaders, Values } from "./field.ts";
import { answer, answerText } from "./answer.ts";
import { answerAccepted, type Work } from "./jobs.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";

export const [BULK_TYPE] = NDJSON_TYPES;

/** Memory per plant in hand, besides its text. */
export const PLANT_BYTES = 400;
/** For each character of a block: in the page, the plants, their writes and the journal. */
const CHARACTER_BYTES = 8;
/** A block takes at most this share of the budget: others are served beside it. */
const BLOCK_SHARE = 0.25;
/** A line with counts shows progress, and keeps proxies from closing the connection. */
const QUIET_MS_MAX = 1_000;

/** Throws a Refusal unless it says which plants. */
export function toBulk({
  query,
  headers,
}: Input<object, Values<typeof bulkFields>, Values<typeof bulkHeaders>>) {
  const { batch, dry_run: isDry, all, except, ...filter } = query;
  requireFilter(filter, all);
  // Ignoring a condition would change what the client meant to protect.
  if (headers["If-Match"] !== undefined || headers["If-None-Match"] !== undefined)
    throw new Refusal(
      "invalid_precondition",
      "If-Match and If-None-Match apply to one plant, not to a change by filter.",
    );
  return { batch, isDry, filter, except };
}

export const changePlants =
  (kind: "change" | "remove") =>
  async (
    {
      query: { batch, isDry, filter, except },
      body: patch,
    }: Input<object, ReturnType<typeof toBulk>, object, Patch | undefined>,
    exchange: Exchange,
  ): Promise<Plan> => {
    const { store } = exchange.service;
    const bulk = { filter, except, patch };
    await openBulk(exchange, blockCharactersMax(exchange));
    const report = startBulkReport(startBulkCounts(), batch ?? nameBatch(kind));
    return {
      kind,
      request: bulk,
      isDry,
      preview: (options) => previewBulk(store, bulk, matchOptionsFor(exchange, options)),
      report,
      run: (options) =>
        runBulk(
          exchange,
          report,
          options,
          readMatching(store, bulk, matchOptionsFor(exchange, options)),
          (block, writer) => changeBlock(store, block, bulk, writer, report, options),
        ),
    };
  };

/** The limit of the characters of a block. */
const blockCharactersMax = ({ service }: Exchange): number =>
  Math.min(
    BULK_CHARACTERS_MAX,
    Math.ceil((service.budget.bytesMax * BLOCK_SHARE) / CHARACTER_BYTES),
  );

/** Reserves the memory of a page. A block reserves what its plants take. */
export async function openBulk(exchange: Exchange, pageBytes: number): Promise<void> {
  exchange.reserve(pageBytes, ANSWERS_SHARE);
  await requireOpen(exchange.request);
  exchange.waitLong();
}

export const bulkOptionsFor = ({ service }: Exchange, signal: AbortSignal): BulkOptions => ({
  signal,
  retry: (attempt) => retryWhileOverloaded(service.config.queueSecondsMax, attempt),
});

function matchOptionsFor(exchange: Exchange, options: BulkOptions) {
  const charactersMax = blockCharactersMax(exchange);
  // One plant fits, however small the budget.
  const bytesMax = exchange.service.budget.bytesMax * ANSWERS_SHARE;
  const reserve = (plants: number, characters: number): void => {
    const bytes = charactersMax + plants * PLANT_BYTES + characters * CHARACTER_BYTES;
    exchange.reserve(Math.min(bytes, bytesMax), ANSWERS_SHARE);
  };
  return { ...options, charactersMax, reserve, limits: exchange.service.config };
}

export const startBulkReport = <Counts extends object>(counts: Counts, batch: string) => ({
  ...counts,
  batch,
  complete: false,
});

type UpsertName = Exclude<Done, "replayed">;

/** Upserts and removals that the service finishes without the client. `digest` tells requests apart. */
export function acceptUpserts(
  exchange: Exchange,
  batch: string | undefined,
  digest: string,
  read: () => AsyncIterable<PlantWrite[]>,
): Promise<Response> {
  const { store } = exchange.service;
  const report = startBulkReport(
    { ...startBulkCounts(), created: 0 },
    batch ?? nameBatch("upsert"),
  );
  const run = (options: BulkOptions) =>
    runBulk(exchange, report, options, read(), async (block, writer) => {
      const outcomes = await writeBlock(store, block, writer, options);
      const ids = block.map(({ id }) => id);
      return countBlock<UpsertName>(report, ids, outcomes, (done) => done);
    });
  return answerAccepted(exchange, { kind: "upsert", request: { digest }, report, run });
}

type Report = { readonly batch: string; complete: boolean };

/** Writes block by block, at the token's rate, and updates the report. Yields the plants that were left alone. */
export async function* runBulk<Item>(
  exchange: Exchange,
  report: Report,
  { signal, run }: Pick<BulkOptions, "signal" | "run">,
  blocks: AsyncIterable<Item[]>,
  write: (block: readonly Item[], writer: Writer) => Promise<readonly Left[]>,
): AsyncGenerator<readonly Left[]> {
  const { batch } = report;
  const { service, token, ids } = exchange;
  const writer = exchange.leaseWriter(batch, run);
  // Remains if the generator is ended early: its client is gone.
  let refusal = new Refusal("body_incomplete");
  try {
    for await (const block of service.rates.pace(blocks, token, signal)) {
      signal.throwIfAborted();
      if (service.readiness.isDraining) throw new Refusal("shutting_down");
      const left = await write(block, writer);
      const lost = left.find((each) => isLeaseLost(each.refusal));
      yield lost === undefined ? left : left.filter((each) => !isLeaseLost(each.refusal));
      if (lost !== undefined) throw lost.refusal;
    }
    report.complete = true;
  } catch (error) {
    refusal = toRefusal(error);
    Object.assign(report, describeRefusal(refusal));
  } finally {
    const { reason, cause } = refusal;
    if (!report.complete) service.log.info("bulk_broken_off", { ...ids, batch, reason, cause });
  }
}

/** A change of many plants that is ready to begin. */
export interface Plan extends Work {
  readonly isDry: boolean;
  /** What it would do. */
  readonly preview: (options: BulkOptions) => Promise<object>;
}

/** A preview, or a job if the client prefers it. Else NDJSON: plants left alone, progress, and the report as the last line. */
export async function answerPlan(
  plan: Plan,
  { headers }: Input<object, object, Values<typeof asyncHeaders>>,
  exchange: Exchange,
): Promise<Response> {
  const { isDry, preview, report, run } = plan;
  if (isDry) {
    const shown = await preview(bulkOptionsFor(exchange, exchange.signal));
    return answerText(exchange, formatJson(shown));
  }
  if (headers.Prefer.isAsync) return answerAccepted(exchange, plan);
  await exchange.requireFree(report);
  const lines = toStream(exchange, (signal) =>
    writeLines(report, run(bulkOptionsFor(exchange, signal))),
  );
  return answer(200, lines, { "content-type": BULK_TYPE });
}

async function* writeLines(report: object, blocks: AsyncIterable<readonly Left[]>) {
  let quietSinceMs = performance.now();
  for await (const left of blocks) {
    const lines = left.map(describeLeft).map(formatLine);
    if (lines.length === 0 && performance.now() > quietSinceMs + QUIET_MS_MAX)
      lines.push(formatLine(report));
    if (lines.length === 0) continue;
    yield lines.join("");
    quietSinceMs = performance.now();
  }
  yield formatLine(report);
}

const formatLine = (value: object): string => `${formatJson(value)}\n`;
