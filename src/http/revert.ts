/** POST /changes/revert: a preview as JSON, or NDJSON with progress and the plants that were left alone. */

import type { Config } from "../config.ts";
import { joinWriter } from "../domain/change.ts";
import { Refusal, toRefusal } from "../domain/errors.ts";
import { formatJson, parseJson } from "../domain/plant.ts";
import {
  openRange,
  parseRevert,
  previewRange,
  type Range,
  readTouched,
  revertBlock,
  type RevertOptions,
  startCounts,
} from "../domain/revert.ts";
import { type Endpoint, json, ok, operation } from "./endpoint.ts";
import {
  ANSWERS_SHARE,
  type Exchange,
  JSON_TYPE,
  NDJSON_TYPES,
  readJson,
  requireOpen,
} from "./exchange.ts";
import { answer, answerText, describeRefusal, requireScope } from "./handle.ts";
import { parseQuery, writeParameters } from "./query.ts";
import { define, explained, flag, integer, list, object, type Shape, text } from "./shape.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";

const [REVERT_TYPE] = NDJSON_TYPES;

/** Memory per plant of a pass, besides its text. */
const PLANT_BYTES = 400;
/** Proxies close a silent connection after a minute. */
const QUIET_MS_MAX = 10_000;

async function revertChanges(exchange: Exchange): Promise<Response> {
  const { request, service, token } = exchange;
  const { config, store, rates } = service;
  requireScope(token, "plants:read");
  rates.requireBatch(token);
  const { batch = `revert ${new Date().toISOString()}` } = parseQuery(request.url, writeParameters);
  const asked = parseRevert(parseJson(await readJson(exchange)));
  const { revertPlantsMax, revertCharactersMax, queueSecondsMax } = config;
  exchange.reserve(revertPlantsMax * PLANT_BYTES + 2 * revertCharactersMax, ANSWERS_SHARE);
  await requireOpen(request);
  const range = await openRange(store, asked);
  const optionsFor = (signal: AbortSignal): RevertOptions => ({
    revertPlantsMax,
    revertCharactersMax,
    signal,
    retry: (attempt) => retryWhileOverloaded(queueSecondsMax, attempt),
  });
  if (asked.dryRun === true) {
    // No idle timeout: reading a long journal may take longer.
    service.limitIdle(request, 0);
    const preview = await previewRange(store, range, optionsFor(request.signal));
    return answerText(exchange, formatJson(preview));
  }
  const lines = toStream(exchange, (signal) =>
    revertAll(exchange, range, batch, optionsFor(signal)),
  );
  return answer(200, lines, { "content-type": REVERT_TYPE });
}

async function* revertAll(
  exchange: Exchange,
  range: Range,
  batch: string,
  options: RevertOptions,
): AsyncGenerator<string> {
  const { service, requestId, token } = exchange;
  const counts = startCounts();
  const format = (more: object): string => formatLine({ ...counts, batch, ...more });
  const by = joinWriter(token?.name, batch);
  let end: object = { complete: true };
  let quietSinceMs = performance.now();
  try {
    const touched = readTouched(service.store, range, options);
    for await (const block of service.rates.pace(touched, token, options.signal)) {
      options.signal.throwIfAborted();
      if (service.readiness.isDraining) throw new Refusal("shutting_down");
      const left = await revertBlock(service.store, block, by, counts, options);
      const lines = left.map(({ id, refusal }) => formatLine({ id, ...describeRefusal(refusal) }));
      if (lines.length === 0 && performance.now() > quietSinceMs + QUIET_MS_MAX)
        lines.push(format({ complete: false }));
      if (lines.length === 0) continue;
      yield lines.join("");
      quietSinceMs = performance.now();
    }
  } catch (error) {
    const refusal = toRefusal(error);
    const { reason, cause } = refusal;
    service.log.info("revert_broken_off", { requestId, batch, reason, cause });
    end = { complete: false, ...describeRefusal(refusal) };
  }
  yield format(end);
}

const formatLine = (value: object): string => `${formatJson(value)}\n`;

const moment = (example: unknown, description: string): Shape => ({
  schema: { type: ["integer", "string"], description: `${description} Its number, or a time.` },
  example,
});
const RevertRequest = define(
  "RevertRequest",
  {
    from: moment(1_767_225_600_000_001, "The first change."),
    to: moment("2026-01-01T00:00:05.000Z", "The last change."),
    by: text("till", "Only changes by the token of this name."),
    batch: text("spring.csv 2026-01-01", "Only changes of this batch."),
    dryRun: flag(true, "Change nothing."),
  },
  { optional: ["from", "to", "by", "batch", "dryRun"] },
);

const definePreview = (id: Shape, plant: Shape): Shape =>
  define("RevertPreview", {
    plants: integer(2, "Plants that the changes concern."),
    revertible: integer(1, "Those that would get the state from before."),
    unchanged: integer(0, "Those that have it already."),
    changedSince: integer(1, "Those that would be left alone."),
    sample: list(
      object(
        {
          id,
          now: {
            ...explained(plant, "Left out if there is none now."),
            example: { name: "Monstera" },
          },
          before: { ...explained(plant, "Left out if it would be removed."), example: undefined },
        },
        { optional: ["now", "before"] },
      ),
      "Up to 20 that are revertible: what they are, and what they would be.",
    ),
  });

const REVERT_EXAMPLE =
  '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
  '{"plants":2,"reverted":1,"unchanged":0,"changedSince":1,"refused":0,"batch":"revert 2026-01-02T00:00:00.000Z","complete":true}\n';

export const describeRevert = (config: Config, id: Shape, plant: Shape): Endpoint =>
  operation("POST /changes/revert", "plants:write", revertChanges, {
    bodyTypes: [JSON_TYPE],
    summary: "Take changes back",
    description:
      "Takes back the changes that match everything given. Each plant that they concern gets the state from before them, " +
      "if it is still in the state that they left. Otherwise it was changed since, and is left alone. " +
      "Each plant is one write, in the journal by this token. Sent again, it continues. A revert can be reverted. " +
      `With \`dryRun\` nothing is changed: the answer is JSON, for at most ${config.revertPlantsMax} plants. ` +
      "Without it, each plant that was left alone is a line, with status 412 if it was changed since, else with the error of its write. " +
      "Lines with counts show progress; `complete` is true in the last one. If the revert was broken off, the last line has `complete: false`, a status and an error. " +
      "Also needs the scope `plants:read`.",
    query: {
      batch: explained(
        writeParameters.batch,
        "Names these writes in the journal; by default `revert` and the time.",
      ),
    },
    takes: json(RevertRequest),
    answers: ok("What was done, or would be.", {
      ...json(definePreview(id, plant)),
      [REVERT_TYPE]: text(REVERT_EXAMPLE),
    }),
    fails: ["BadBody", "ChangesGone", "RangeTooLarge"],
  });
