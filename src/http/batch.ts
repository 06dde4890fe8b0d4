/** POST /plants/batch: many plants in, one result a line out, both as streams and in constant memory. */

import { catalogue, Refusal } from "../domain/error.ts";
import { parseNewPlant } from "../domain/plant.ts";
import { type Line, readLines } from "../format/lines.ts";
import { requireNdjson } from "./media-type.ts";
import { toRefusal } from "./respond.ts";
import type { Answer, Service } from "./service.ts";
import { toStream } from "./stream.ts";

/** Lines that are with the store at one time, for one request: room enough to fill a commit. */
const BLOCK_LENGTH_MAX = 512;
const OVERLOAD_RETRY_MS = 20;
/** Room for an id: the largest replacement that PUT takes, exported with its id, is still a line that we take. */
const ID_BYTES_MAX = 64;

export const lineBytesMax = ({ bodyBytesMax }: Service["config"]): number =>
  bodyBytesMax + ID_BYTES_MAX;

export function createPlants(request: Request, service: Service): Answer {
  requireNdjson(request.headers);
  // The time between two pieces is bounded instead: a batch may take as long as its lines need.
  service.keepOpen(request);
  return {
    status: 200,
    body: toStream(judgeLines(request, service)),
    headers: { "content-type": "application/x-ndjson" },
  };
}

async function* judgeLines(request: Request, service: Service): AsyncGenerator<string> {
  const { readSecondsMax } = service.config;
  let lastLine = 0;
  try {
    const chunks = readChunks(request.body, readSecondsMax);
    for await (const lines of readLines(chunks, lineBytesMax(service.config), BLOCK_LENGTH_MAX)) {
      lastLine = lines.at(-1)?.number ?? lastLine;
      // All at once: they share a commit, and are judged in their order.
      const results = await Promise.all(lines.map((line) => judgeLine(line, service)));
      yield results.join("");
    }
  } catch (error) {
    const refusal = toRefusal(error);
    service.log.info("batch_broken_off", {
      lastLine,
      reason: refusal.reason,
      cause: refusal.cause,
    });
    // The answer has begun, so that the failure to read on is a result like any other, and the last.
    yield formatFailure(lastLine + 1, refusal, service);
  }
}

async function judgeLine({ number, text }: Line, service: Service): Promise<string> {
  try {
    if (typeof text !== "string") throw text;
    const outcome = await createPatiently(parseNewPlant(text), service);
    return outcome === "created"
      ? `{"line":${number},"status":200}\n`
      : `{"line":${number},"status":200,"replayed":true}\n`;
  } catch (error) {
    return formatFailure(number, error, service);
  }
}

/** A full queue holds the sender up rather than failing the line; for no longer than a write may wait. */
async function createPatiently(
  plant: ReturnType<typeof parseNewPlant>,
  { store, config }: Service,
): Promise<"created" | "replayed"> {
  const deadlineMs = performance.now() + config.queueSecondsMax * 1000;
  for (;;) {
    try {
      return await store.createPlant(plant);
    } catch (error) {
      const isOverload = error instanceof Refusal && error.reason === "overloaded";
      if (!isOverload || performance.now() > deadlineMs) throw error;
      await Bun.sleep(OVERLOAD_RETRY_MS);
    }
  }
}

function formatFailure(line: number, error: unknown, { log }: Service): string {
  const refusal = toRefusal(error);
  const { code, status } = catalogue[refusal.reason];
  if (status >= 500) log.warn("batch_line", { line, reason: refusal.reason, cause: refusal.cause });
  return `${JSON.stringify({ line, status, error: code, message: refusal.message })}\n`;
}

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
