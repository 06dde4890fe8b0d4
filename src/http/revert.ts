/** POST /changes/revert: a preview as JSON, or NDJSON with progress and the plants that were left alone. */

import { type BulkOptions, type Left, SAMPLE_LENGTH } from "../domain/bulk.ts";
import { changeTypes, nameBatch } from "../domain/change.ts";
import { formatJson, parseJson } from "../domain/json.ts";
import {
  openRange,
  parseRevert,
  previewRange,
  type Range,
  readTouched,
  revertBlock,
  type RevertOptions,
  type RevertRequest,
  startCounts,
} from "../domain/revert.ts";
import { type Endpoint, json, ok, operation } from "./endpoint.ts";
import { JSON_TYPE, readJson, requireOpen } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import {
  answerBulk,
  BULK_TYPE,
  bulkOptionsFor,
  PLANT_BYTES,
  runBulk,
  startBulkReport,
} from "./bulk.ts";
import type { Exchange } from "./exchange.ts";
import { answerText } from "./handle.ts";
import { accepted, asyncHeaders } from "./jobs.ts";
import { parseQuery, writeParameters } from "./query.ts";
import { id, Plant } from "./plant-shapes.ts";
import { define, annotate, flag, integer, list, object, type Shape, text } from "./shape.ts";

/** A string takes up to this many per character. */
const CHARACTER_BYTES = 2;
/** For one page of the journal. */
const PAGE_BYTES = 1_048_576;
/** A pass of a revert takes at most this share of the budget: others are served beside it. */
const PASS_SHARE = 0.25;

async function revertChanges(exchange: Exchange): Promise<Response> {
  const { request, service, token } = exchange;
  service.rates.requireBatch(token);
  const { batch } = parseQuery(request.url, writeParameters);
  const wanted = parseRevert(parseJson(await readJson(exchange)));
  const range = await openRevert(exchange, wanted);
  if (wanted.dryRun === true)
    return answerText(exchange, formatJson(await previewRevert(exchange, range, request.signal)));
  const report = startReport(batch);
  const run = (options: BulkOptions) => revertAll(exchange, range, report, options);
  return answerBulk(exchange, { kind: "revert", request: wanted, report, run });
}

/** Reserves memory for one page, then opens the range. A pass reserves what it collects. */
export async function openRevert(exchange: Exchange, wanted: RevertRequest): Promise<Range> {
  exchange.reserve(PAGE_BYTES, ANSWERS_SHARE);
  await requireOpen(exchange.request);
  exchange.waitLong();
  return openRange(exchange.service.store, wanted);
}

/** Throws a Refusal if the range concerns too many plants. */
export const previewRevert = (exchange: Exchange, range: Range, signal: AbortSignal) =>
  previewRange(
    exchange.service.store,
    { ...range, dryRun: true },
    optionsFor(exchange, bulkOptionsFor(exchange, signal)),
  );

const optionsFor = (exchange: Exchange, options: BulkOptions): RevertOptions => ({
  ...exchange.service.config,
  ...options,
  reserve: (plants, characters) =>
    exchange.reserve(
      PAGE_BYTES + plants * PLANT_BYTES + characters * CHARACTER_BYTES,
      ANSWERS_SHARE,
    ),
});

/** Smaller passes on a small budget. A dry run has one pass, so it has the configured limits. */
function limitPass(exchange: Exchange, options: BulkOptions): RevertOptions {
  const { budget, config } = exchange.service;
  const bytes = (budget.bytesMax * PASS_SHARE) / 2;
  return {
    ...optionsFor(exchange, options),
    revertPlantsMax: Math.min(config.revertPlantsMax, Math.ceil(bytes / PLANT_BYTES)),
    revertCharactersMax: Math.min(config.revertCharactersMax, Math.ceil(bytes / CHARACTER_BYTES)),
  };
}

export const startReport = (batch = nameBatch("revert")) => startBulkReport(startCounts(), batch);

type Report = ReturnType<typeof startReport>;

/** Reverts block by block and updates the report. Yields the plants that were left alone. */
export function revertAll(
  exchange: Exchange,
  range: Range,
  report: Report,
  options: BulkOptions,
): AsyncGenerator<readonly Left[]> {
  const { store } = exchange.service;
  const limits = limitPass(exchange, options);
  const touched = readTouched(store, range, limits);
  return runBulk(exchange, report, options, touched, (block, writer) =>
    revertBlock(store, block, writer, report, limits),
  );
}

const moment = (example: unknown, description: string): Shape => ({
  schema: { type: ["integer", "string"], description: `${description} Its number, or a time.` },
  example,
});
export const revertMembers = {
  from: moment(1_767_225_600_000_001, "The first change."),
  to: moment("2026-01-01T00:00:05.000Z", "The last change."),
  by: text("till", "Only changes by the token of this name."),
  batch: text("spring.csv 2026-01-01", "Only changes of this batch."),
  types: list(text("created", undefined, { enum: changeTypes }), "Only changes of these types."),
  dryRun: flag(true, "Change nothing."),
};
const optional = Object.keys(revertMembers);
const RevertRequest = define("RevertRequest", revertMembers, { optional });

const RevertPreview = define("RevertPreview", {
  plants: integer(2, "Plants that the changes concern."),
  revertible: integer(1, "Plants that would return to their earlier state."),
  unchanged: integer(0, "Plants that are in that state already."),
  changedSince: integer(1, "Plants changed since, which would be left alone."),
  sample: list(
    object(
      {
        id,
        now: {
          ...annotate(Plant, "Absent if there is no such plant now."),
          example: { name: "Monstera" },
        },
        before: { ...annotate(Plant, "Absent if the plant would be removed."), example: undefined },
      },
      { optional: ["now", "before"] },
    ),
    `Up to ${SAMPLE_LENGTH} of the plants that would be undone: their state now, and after the undo.`,
  ),
  skipped: list(
    object(
      {
        id,
        now: { ...annotate(Plant, "Absent if there is no such plant now."), example: undefined },
      },
      { optional: ["now"] },
    ),
    `Up to ${SAMPLE_LENGTH} of the plants changed since: their state now.`,
  ),
});

const REVERT_EXAMPLE =
  '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
  '{"plants":2,"reverted":1,"unchanged":0,"changedSince":1,"refused":0,"batch":"revert 2026-01-02T00:00:00.000Z","complete":true}\n';

export const revertOperation: Endpoint = operation(
  "POST /changes/revert",
  "plants:write",
  revertChanges,
  {
    bodyTypes: [JSON_TYPE],
    summary: "Undo changes",
    needs: "plants:read",
    query: {
      batch: annotate(
        writeParameters.batch,
        "Names these writes in the journal; by default `revert` and the time.",
      ),
    },
    headers: asyncHeaders,
    accepts: json(RevertRequest),
    answers: {
      ...ok("The result, or the preview of a dry run.", {
        ...json(RevertPreview),
        [BULK_TYPE]: text(REVERT_EXAMPLE),
      }),
      ...accepted,
    },
    fails: ["BadBody", "ChangesGone", "RangeTooLarge"],
  },
);
