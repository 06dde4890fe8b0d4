/** POST /changes/revert: what it would undo, and undoing it. */

import { type BulkOptions, SAMPLE_LENGTH } from "../domain/bulk.ts";
import { changeTypes, nameBatch } from "../domain/change.ts";
import {
  openRange,
  parseRevert,
  previewRange,
  readTouched,
  revertBlock,
  revertRules,
  type RevertOptions,
  type RevertRequest as Wanted,
  startCounts,
} from "../domain/revert.ts";
import { type Endpoints, json, jsonBody, ok, operation } from "./endpoint.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import {
  answerPlan,
  BULK_TYPE,
  openBulk,
  PLANT_BYTES,
  type Plan,
  planOutput,
  runBulk,
  showPlan,
  startBulkReport,
} from "./bulk.ts";
import type { Exchange, Input } from "./exchange.ts";
import { asyncHeaders, dryRunArgument, revertFields, type Values } from "./field.ts";
import { accepted } from "./jobs.ts";
import { id, Plant } from "./plant-shapes.ts";
import {
  define,
  describeRules,
  annotate,
  flag,
  integer,
  list,
  object,
  type Shape,
  text,
} from "./shape.ts";

/** A string takes up to this many per character. */
const CHARACTER_BYTES = 2;
/** For one page of the journal. */
const PAGE_BYTES = 1_048_576;
/** A pass of a revert takes at most this share of the budget: others are served beside it. */
const PASS_SHARE = 0.25;

async function revertChanges(
  { query, body: wanted }: Input<object, Values<typeof revertFields>, object, Wanted>,
  exchange: Exchange,
): Promise<Plan> {
  const { store } = exchange;
  // A pass reserves what it collects.
  await openBulk(exchange, PAGE_BYTES);
  const range = await openRange(store, wanted, exchange.signal);
  const report = startBulkReport(startCounts(), query.batch ?? nameBatch("revert"));
  return {
    kind: "revert",
    request: wanted,
    isDry: wanted.dryRun === true,
    // Throws a Refusal if the range concerns too many plants.
    preview: (options) =>
      previewRange(store, { ...range, dryRun: true }, optionsFor(exchange, options)),
    report,
    run: (options) => {
      const limits = limitPass(exchange, options);
      const touched = readTouched(store, range, limits);
      return runBulk(exchange, report, options, touched, (block, writer) =>
        revertBlock(store, block, writer, report, limits),
      );
    },
  };
}

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

const moment = (example: unknown, description: string): Shape => ({
  schema: { type: ["integer", "string"], description: `${description} Its number, or a time.` },
  example,
});
const revertMembers = describeRules(revertRules, {
  from: moment(1_767_225_600_000_001, "The first change."),
  to: moment("2026-01-01T00:00:05.000Z", "The last change."),
  by: text("till", "Only changes by the token of this name."),
  batch: text("spring.csv 2026-01-01", "Only changes of this batch."),
  types: list(text("created", undefined, { enum: changeTypes }), "Only changes of these types."),
  dryRun: flag(true, "Change nothing."),
});
const RevertRequest = define("RevertRequest", revertMembers);

const previewMembers = {
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
};
const RevertPreview = define("RevertPreview", previewMembers);

const REVERT_EXAMPLE =
  '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
  '{"plants":2,"reverted":1,"unchanged":0,"changedSince":1,"refused":0,"batch":"revert 2026-01-02T00:00:00.000Z","complete":true}\n';

export const revertOperations: Endpoints = {
  revertChanges: operation({
    at: "POST /changes/revert",
    scopes: ["plants:write", "plants:read"],
    kind: "batch",
    summary: "Undo changes",
    description: ({ revertPlantsMax }) =>
      "Undoes the changes that match all members of the body; the API calls that `revert`. Each plant that they concern returns to its state before them. " +
      "A plant that was changed since is left alone. " +
      "Each plant is one write, recorded under this token. Send the request again to continue. It is a change like others, and can itself be undone. " +
      `With \`dryRun\` nothing is changed, and the answer is JSON, for at most ${revertPlantsMax} plants. ` +
      "Otherwise the answer has a line for each plant that was left alone: status 412 if it was changed since, else the error of its write. " +
      "Lines with counts show progress; `complete` is true in the last one. If the work was interrupted, the last line has `complete: false`, a status and an error. " +
      "With `Prefer: respond-async` it is a job, as for `PATCH /plants`.",
    query: revertFields,
    headers: asyncHeaders,
    body: jsonBody(RevertRequest, parseRevert),
    run: revertChanges,
    answer: answerPlan,
    answers: {
      ...ok("The result, or the preview of a dry run.", {
        ...json(RevertPreview),
        [BULK_TYPE]: text(REVERT_EXAMPLE),
      }),
      ...accepted,
    },
    fails: ["BadBody", "ChangesGone", "RangeTooLarge"],
    tool: {
      name: "revert_changes",
      title: "Undo changes",
      description:
        "Each plant that the selected changes concern returns to its state before them, unless it was changed since. " +
        "Select them by at least one of `from`, `to`, `by`, `batch` and `types`. A dry run, unless `dryRun` is false: show its counts and its sample to the user first. " +
        "If `complete` is false, `message` says why; call it again to continue.",
      output: planOutput(previewMembers, startCounts()),
      // Its `batch` selects changes. The one of the query names the writes.
      arguments: { ...revertMembers, dryRun: dryRunArgument },
      parse: (input) => ({ range: parseRevert({ ...input, dryRun: input["dryRun"] ?? true }) }),
      toBody: ({ range }) => range,
      show: showPlan,
    },
  }),
};
