/** POST /plants/batch: many plants in, one result a line out, both as streams and in constant memory. */

import { catalogue, Refusal } from "../domain/errors.ts";
import { parseNewPlant } from "../domain/plant.ts";
import type { Log } from "../observe/log.ts";
import { type Line, readLines } from "../format/records.ts";
import { patiently } from "./patience.ts";
import { requireNdjson } from "./media-type.ts";
import { toRefusal } from "./respond.ts";
import type { Answer, Service } from "./service.ts";
import { toStream } from "./stream.ts";

/** Lines that are with the store at one time, for one request: room enough to fill a commit. */
const BLOCK_LENGTH_MAX = 512;
/** Room for an id: the largest replacement that PUT takes, exported with its id, is still a line that we take. */
const ID_BYTES_MAX = 64;

export const lineBytesMax = ({ bodyBytesMax }: Service["config"]): number =>
  bodyBytesMax + ID_BYTES_MAX;

export function createPlants(request: Request, service: Service, requestId: string): Answer {
  requireNdjson(request.headers);
  const { idleSecondsMax } = service.config;
  return {
    status: 200,
    body: toStream(judgeLines(request, service, requestId), {
      // A batch may take as long as its lines need: what bounds it is the time between two pieces.
      onMake: () => service.limitIdle(request, 0),
      // A reader that takes nothing of the results is cut off, as any other is.
      onSend: () => service.limitIdle(request, idleSecondsMax),
    }),
    headers: { "content-type": "application/x-ndjson" },
  };
}

async function* judgeLines(
  request: Request,
  service: Service,
  requestId: string,
): AsyncGenerator<string> {
  const { readSecondsMax } = service.config;
  let lastLine = 0;
  try {
    const chunks = readChunks(request.body, readSecondsMax);
    for await (const lines of readLines(chunks, lineBytesMax(service.config), BLOCK_LENGTH_MAX)) {
      lastLine = lines.at(-1)?.number ?? lastLine;
      // All at once: they share a commit, and are judged in their order.
      const failures = new Failures();
      const results = await Promise.all(lines.map((line) => judgeLine(line, service, failures)));
      failures.log(service.log, requestId);
      await turn();
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
    // The answer has begun, so that the failure to read on is a result like any other, and the last.
    yield formatFailure(lastLine + 1, refusal);
  }
}

async function judgeLine(
  { number, text }: Line,
  service: Service,
  failures: Failures,
): Promise<string> {
  const startedAtMs = performance.now();
  try {
    if (typeof text !== "string") throw text;
    const plant = parseNewPlant(text);
    // A full queue holds the sender up rather than failing the line.
    const outcome = await patiently(service.config.queueSecondsMax, () =>
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

/** Our own failures of a block, logged once a reason: a disk that is full needs no line for every line. */
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

/** Lines that never reach the store, and chunks that have arrived, come without a turn of the event loop. */
const turn = (): Promise<unknown> => new Promise(setImmediate);

/** The chunks of a body, with a bound on the time until the next. */
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
      await turn();
      yield value;
    }
  } finally {
    // The sender has gone, or is too slow: what may still come is not wanted.
    await reader.cancel().catch(() => undefined);
  }
}

async function inTime<Result>(read: Promise<Result>, secondsMax: number): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Refusal("body_too_slow")), secondsMax * 1000);
  try {
    return await Promise.race([read, late]);
  } catch (error) {
    throw error instanceof Error && error.name === "AbortError"
      ? new Refusal("body_incomplete")
      : error;
  } finally {
    clearTimeout(timer);
  }
}
