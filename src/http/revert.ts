/** POST /changes/revert: a preview as JSON, or lines about what was left alone, while plants are reverted. */

import { joinWriter } from "../domain/change.ts";
import { catalogue, Refusal, toRefusal } from "../domain/errors.ts";
import { formatJson, parseJson } from "../domain/json.ts";
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
import { ANSWERS_SHARE, readText, requireOpen, requireType } from "./body.ts";
import { answer, type Exchange, LacksScope } from "./handle.ts";
import { parseQuery, writeParameters } from "./query.ts";
import { JSON_TYPE, NDJSON_TYPES } from "./request-headers.ts";
import { answerText, retryWhileOverloaded, toStream } from "./stream.ts";

export const [REVERT_TYPE] = NDJSON_TYPES;

/** What a plant of a pass takes besides its text. */
const PLANT_BYTES = 400;
/** Proxies close a silent connection after a minute. */
const QUIET_MS_MAX = 10_000;

export async function revertChanges(exchange: Exchange): Promise<Response> {
  const { request, service, token } = exchange;
  const { config, store, rates } = service;
  if (token?.scopes.includes("plants:read") !== true) throw new LacksScope("plants:read");
  rates.requireBatch(token);
  const { batch = `revert ${new Date().toISOString()}` } = parseQuery(request.url, writeParameters);
  requireType(request.headers, JSON_TYPE);
  const order = parseRevert(parseJson(await readText(exchange)));
  const { revertPlantsMax, revertCharactersMax, queueSecondsMax } = config;
  exchange.reserve(revertPlantsMax * PLANT_BYTES + 2 * revertCharactersMax, ANSWERS_SHARE);
  await requireOpen(request);
  const range = await openRange(store, order);
  const optionsFor = (signal: AbortSignal): RevertOptions => ({
    revertPlantsMax,
    revertCharactersMax,
    signal,
    retry: (attempt) => retryWhileOverloaded(queueSecondsMax, attempt),
  });
  if (order.dryRun === true) {
    // A long journal takes longer to read than a connection may be idle.
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
      const lines = left.map(({ id, refusal }) => formatLine({ id, ...describe(refusal) }));
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
    end = { complete: false, ...describe(refusal) };
  }
  yield format(end);
}

const formatLine = (value: object): string => `${formatJson(value)}\n`;

const describe = ({ reason, message }: Refusal): object => {
  const { code, status } = catalogue[reason];
  return { status, error: code, message };
};
