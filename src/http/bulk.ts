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
import { type Done, type Patch, parsePatchText, type PlantWrite } from "../domain/write.ts";
import { NDJSON_TYPES, requireOpen } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange, Input } from "./exchange.ts";
import { type asyncHeaders, bulkFields, bulkHeaders, type Values } from "./field.ts";
import { answer, answerText } from "./answer.ts";
import { type Endpoints, json, ok, operation } from "./endpoint.ts";
import { accepted, answerAccepted, type Work } from "./jobs.ts";
import { BulkPreview, patchArguments, patchBodies, previewMembers } from "./plant-shapes.ts";
import { flag, integer, list, mapValues, type Members, object, type Shape, text } from "./shape.ts";
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
function toBulk({
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

const changePlants =
  (kind: "change" | "remove") =>
  async (
    {
      query: { batch, isDry, filter, except },
      body: patch,
    }: Input<object, ReturnType<typeof toBulk>, object, Patch | undefined>,
    exchange: Exchange,
  ): Promise<Plan> => {
    const { store } = exchange;
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

const bulkOptionsFor = ({ service }: Exchange, signal: AbortSignal): BulkOptions => ({
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
  const { store } = exchange;
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

/** A client waits for an answer for a minute or so. */
const BULK_MS_MAX = 45_000;
const TIME_OVER = "The call reached its time limit; call again to continue.";

/** Runs long work, which ends if the client leaves, its token becomes invalid, or the time is over. */
export async function runLong(
  exchange: Exchange,
  work: (signal: AbortSignal) => Promise<object>,
): Promise<object> {
  const { service, token, authorization } = exchange;
  service.rates.requireBatch(token);
  const ending = new AbortController();
  const end = (refusal: Refusal): void => ending.abort(refusal);
  // Before the work begins, which refuses a client that has left already.
  exchange.signal.addEventListener("abort", () => end(new Refusal("body_incomplete")));
  const timer = setTimeout(() => end(new Refusal("store_busy", TIME_OVER)), BULK_MS_MAX);
  const unwatch = service.authenticator.watch({ header: authorization, onInvalid: end });
  try {
    return await work(ending.signal);
  } finally {
    clearTimeout(timer);
    unwatch();
  }
}

/** A model reads the whole report, so it is short. */
const LEFT_MAX = 20;

/** What becomes of a change of many plants, for an agent: the preview, or the report at its end. */
export const showPlan = (
  { kind, isDry, preview, report, run }: Plan,
  _input: object,
  exchange: Exchange,
): Promise<object> =>
  runLong(exchange, async (signal) => {
    const options = bulkOptionsFor(exchange, signal);
    // Also before a revert, so it has the bounds of a dry run.
    const previewed = isDry || kind === "revert" ? await preview(options) : {};
    if (isDry) return previewed;
    await exchange.requireFree(report);
    const left: object[] = [];
    for await (const block of run(options))
      left.push(...block.slice(0, LEFT_MAX - left.length).map(describeLeft));
    return { ...report, left };
  });

export const failureMembers = { status: integer(), error: integer(), message: text() };

/** The schema of that: a preview, or a report with these counts. */
export function planOutput(preview: Members, counts: Readonly<Record<string, number>>): Shape {
  const members = {
    ...preview,
    ...mapValues(counts, () => integer()),
    batch: text(undefined, "The name of the writes in the journal."),
    complete: flag(undefined, "False if the work was interrupted; `message` says why."),
    left: list(
      object({ id: text(), ...failureMembers }),
      `The first ${LEFT_MAX} plants that were left alone.`,
    ),
    ...failureMembers,
  };
  return object(members, { optional: Object.keys(members).filter((name) => name !== "plants") });
}

const describeBulk = (count: string): string =>
  "Without a filter the answer is 400; for the whole store, send `all=true` instead. Each plant is one conditional write: a plant that someone else changed " +
  "meanwhile is left alone. Plants created meanwhile may be missed. " +
  "With `dry_run=true` nothing is changed, and the answer is JSON. " +
  "Otherwise the answer has a line for each plant that was left alone: status 412 if it was changed meanwhile, else the error of its write. " +
  `Lines with counts (\`${count}\`, \`unchanged\`, \`changedSince\`, \`refused\`) show progress; \`complete\` is true in the last one. ` +
  "If the work was interrupted, the last line has `complete: false`, a status and an error. Send the request again to continue. " +
  "If the client closes the connection, the work stops after a commit. " +
  "With `Prefer: respond-async` the answer is 202, and the service finishes the work without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. " +
  "The batch names these writes in the journal, so `POST /changes/revert` can undo them.";

function describeAnswers(name: string, replaced: number, removed: number) {
  const example =
    '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
    `{"plants":2,"replaced":${replaced},"removed":${removed},"unchanged":0,"changedSince":1,"refused":0,"batch":"${name} 2026-01-02T00:00:00.000Z","complete":true}\n`;
  const contents = { ...json(BulkPreview), [BULK_TYPE]: text(example) };
  return { ...ok("The result, or the preview of a dry run.", contents), ...accepted };
}

const HOW_TO_BULK =
  "; at least one is needed, or `all`. A dry run, unless `dryRun` is false: show its counts and its sample to the user first. " +
  "Plants that others change meanwhile are left alone, and listed in `left`. If `complete` is false, `message` says why; call it again to continue. revert_changes with its `batch` undoes it.";

const bulkOutput = planOutput(previewMembers, startBulkCounts());

export const bulkOperations: Endpoints = {
  patchPlants: operation({
    at: "PATCH /plants",
    scopes: ["plants:write", "plants:read"],
    kind: "batch",
    summary: "Change all plants that match",
    description: `Applies a merge patch (RFC 7396) to each plant that matches all filters. ${describeBulk("replaced")}`,
    query: bulkFields,
    headers: bulkHeaders,
    refine: toBulk,
    body: { accepts: patchBodies, parse: parsePatchText },
    answers: describeAnswers("change", 1, 0),
    fails: ["BadPatch", "JobConflict"],
    run: changePlants("change"),
    answer: answerPlan,
    tool: {
      name: "change_plants",
      title: "Change all plants that match",
      description: `Applies \`patch\` to every plant that matches all filters${HOW_TO_BULK}`,
      members: patchArguments,
      toBody: ({ patch }) => patch,
      output: bulkOutput,
      show: showPlan,
    },
  }),
  removePlants: operation({
    at: "DELETE /plants",
    scopes: ["plants:write", "plants:read"],
    kind: "batch",
    summary: "Remove all plants that match",
    description: `Removes each plant that matches all filters. ${describeBulk("removed")}`,
    query: bulkFields,
    headers: bulkHeaders,
    refine: toBulk,
    answers: describeAnswers("remove", 0, 1),
    fails: ["BadCondition", "JobConflict"],
    run: changePlants("remove"),
    answer: answerPlan,
    tool: {
      name: "remove_plants",
      title: "Remove all plants that match",
      description: `Removes every plant that matches all filters${HOW_TO_BULK}`,
      output: bulkOutput,
      show: showPlan,
    },
  }),
};
