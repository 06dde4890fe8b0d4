/** POST /plants/batch: many plants in, one result a line out. Both are streams, in constant memory. */

import { catalogue, Refusal, toRefusal } from "../domain/errors.ts";
import { parseNewPlant } from "../domain/plant.ts";
import { type Line, readLines } from "../format/records.ts";
import type { Log } from "../observe/log.ts";
import { isAbort, requireType } from "./body.ts";
import { answer, type Exchange, type Service } from "./handle.ts";
import { retryWhileOverloaded, toStream } from "./stream.ts";

/** Lines of one request that are with the store at one time: enough to fill a commit. */
const BLOCK_LENGTH_MAX = 512;
/** Room for an id: the largest plant that PUT takes is, exported with its id, still a line that a batch takes. */
const ID_BYTES_MAX = 64;

export const lineBytesMax = ({ bodyBytesMax }: Service["config"]): number =>
  bodyBytesMax + ID_BYTES_MAX;

export function createPlants(exchange: Exchange): Response {
  const { request, service } = exchange;
  requireType(request.headers, "application/x-ndjson", "application/ndjson", "application/jsonl");
  const { idleSecondsMax } = service.config;
  const results = toStream(createLines(exchange), {
    // A batch may take as long as its lines need. The time between two pieces is bounded.
    onMake: () => service.limitIdle(request, 0),
    // A client that takes no results is cut off, like any other.
    onSend: () => service.limitIdle(request, idleSecondsMax),
  });
  return answer(200, results, { "content-type": "application/x-ndjson" });
}

async function* createLines({ request, service, requestId }: Exchange): AsyncGenerator<string> {
  const { readSecondsMax } = service.config;
  let lastLine = 0;
  try {
    const chunks = readChunks(request.body, readSecondsMax);
    for await (const lines of readLines(chunks, lineBytesMax(service.config), BLOCK_LENGTH_MAX)) {
      lastLine = lines.at(-1)?.number ?? lastLine;
      // All at once, so they share a commit. The store keeps their order.
      const failures = new Failures();
      const results = await Promise.all(lines.map((line) => createLine(line, service, failures)));
      failures.log(service.log, requestId);
      await nextTick();
      yield results.join("");
    }
  } catch (error) {
    const refusal = toRefusal(error);
    service.log.info("batch_broken_off", {
      requestId,
      lastLine,
      reason: refusal.reason,
      cause: refusal.cause,
    });
    // The answer has begun, so the failure to read on is its last result.
    yield formatFailure(lastLine + 1, refusal);
  }
}

async function createLine(
  { number, text }: Line,
  service: Service,
  failures: Failures,
): Promise<string> {
  const startedAtMs = performance.now();
  try {
    if (typeof text !== "string") throw text;
    const plant = parseNewPlant(text);
    // A full queue holds up the client and does not fail the line.
    const outcome = await retryWhileOverloaded(service.config.queueSecondsMax, () =>
      service.store.createPlant(plant),
    );
    if (outcome === "replayed") return `{"line":${number},"status":200,"replayed":true}\n`;
    service.metrics.countCreate(performance.now() - startedAtMs);
    return `{"line":${number},"status":200}\n`;
  } catch (error) {
    const refusal = toRefusal(error);
    failures.add(refusal);
    return formatFailure(number, refusal);
  }
}

/** Our own failures in a block, logged once a reason: a full disk needs no log line for every line. */
class Failures {
  private readonly byReason = new Map<string, { count: number; cause: unknown }>();

  add({ reason, cause }: Refusal): void {
    if (catalogue[reason].status < 500) return;
    const known = this.byReason.get(reason) ?? { count: 0, cause };
    known.count++;
    this.byReason.set(reason, known);
  }

  log(log: Log, requestId: string): void {
    for (const [reason, { count, cause }] of this.byReason)
      log.warn("batch_lines_failed", { requestId, reason, count, cause });
  }
}

function formatFailure(line: number, { reason, message }: Refusal): string {
  const { code, status } = catalogue[reason];
  return `${JSON.stringify({ line, status, error: code, message })}\n`;
}

/** Refused lines and chunks that have arrived need no event, so without this other requests would wait. */
const nextTick = (): Promise<unknown> => new Promise(setImmediate);

/** The chunks of a body, with a bound on the time until the next one. */
async function* readChunks(
  body: ReadableStream<Uint8Array> | null,
  readSecondsMax: number,
): AsyncGenerator<Uint8Array> {
  if (body === null) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await inTime(reader.read(), readSecondsMax);
      if (done) return;
      await nextTick();
      yield value;
    }
  } finally {
    // The client is gone or too slow: the service does not want the rest.
    await reader.cancel().catch(() => undefined);
  }
}

async function inTime<Result>(read: Promise<Result>, secondsMax: number): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Refusal("body_too_slow")), secondsMax * 1000);
  try {
    return await Promise.race([read, late]);
  } catch (error) {
    throw isAbort(error) ? new Refusal("body_incomplete") : error;
  } finally {
    clearTimeout(timer);
  }
}
