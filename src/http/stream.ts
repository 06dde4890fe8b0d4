/** Streamed answers. */

import { Refusal, toRefusal } from "../domain/errors.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import type { Exchange } from "./exchange.ts";

const encoder = new TextEncoder();

/** The text of a page, and the cursor of the next. */
type PageText<Place> = Readonly<{ text: string | Uint8Array; next: Place | undefined }>;

/** Packs the chunks of a stream. */
export interface Packer {
  readonly pack: (make: Make) => Make;
  /** Whether its memory counts. */
  readonly hold: (isNeeded: boolean) => void;
}

/** Must end when the signal aborts, with the signal's reason. */
export type Make = (signal: AbortSignal) => AsyncGenerator<string | Uint8Array>;

/**
 * Streams all pages from `start`. The first is read before anything is sent, so a failure gets its own status. A read
 * takes `bytesToRead` of memory.
 */
export async function streamPages<Place>(
  exchange: Exchange,
  start: Place,
  read: (place: Place, signal: AbortSignal) => Promise<PageText<Place>>,
  {
    heading = "",
    packer,
    bytesToRead = 0,
  }: { heading?: string; packer?: Packer | undefined; bytesToRead?: number } = {},
): Promise<ReadableStream<Uint8Array>> {
  const readNext = async (place: Place, signal: AbortSignal): Promise<PageText<Place>> => {
    exchange.reserve(0, ANSWERS_SHARE);
    // Separately: if there is no room yet, nothing worth a GC was dropped.
    if (bytesToRead > 0) exchange.reserve(bytesToRead);
    const page = await read(place, signal);
    // Again: other requests may have reserved memory during the read.
    exchange.reserve(page.text.length, ANSWERS_SHARE);
    return page;
  };
  let page: PageText<Place> | undefined;
  try {
    page = await readNext(start, exchange.request.signal);
  } catch (error) {
    packer?.hold(false);
    throw error;
  }
  const make = async function* (signal: AbortSignal): AsyncGenerator<string | Uint8Array> {
    if (heading !== "") yield heading;
    while (page !== undefined) {
      const { text, next }: PageText<Place> = page;
      // Frees the page before the next is requested.
      page = undefined;
      exchange.hold(0);
      if (text.length > 0) yield text;
      if (next === undefined) return;
      page = await retryWhileOverloaded(exchange.service.config.queueSecondsMax, () => {
        signal.throwIfAborted();
        return readNext(next, signal);
      });
    }
  };
  return toStream(exchange, make, { packer });
}

/** Retries every 20 ms, for at most `secondsMax`. */
export async function retryWhileOverloaded<Result>(
  secondsMax: number,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const deadlineMs = performance.now() + secondsMax * 1000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const isOverload = error instanceof Refusal && error.reason === "overloaded";
      if (!isOverload || performance.now() > deadlineMs) throw error;
      await Bun.sleep(20);
    }
  }
}

/** Frees the memory of a client that left before its stream began: the runtime does not report it. */
const UNBEGUN_MS_MAX = 1_000;
/** Share of the idle timeout after which a client counts as not reading: the runtime's timer may fire early. */
const UNREAD_SHARE = 0.5;
/** The runtime's minimum. It checks its idle timer every four seconds, so a cut takes up to four. */
const CUT_SECONDS = 1;

/**
 * Streams these chunks with backpressure: the next is made when the last has left for the client. The generator ends
 * when the client disconnects or its token becomes invalid; the exchange holds its memory until then. With `isFeed`,
 * the last chunk has left long before the next is made. With `onUnread`, the generator does not stall on a client that
 * stops reading: the generator learns of it, and makes one last chunk.
 */
export function toStream(
  exchange: Exchange,
  make: Make,
  {
    isFeed = false,
    onUnread,
    packer,
  }: { isFeed?: boolean; onUnread?: () => void; packer?: Packer | undefined } = {},
): ReadableStream<Uint8Array> {
  const { request, service, bytesKept } = exchange;
  const ending = new AbortController();
  const chunks = (packer?.pack(make) ?? make)(ending.signal);
  let unwatch: (() => void) | undefined;
  let bytesLast = 0;
  let isGone = false;
  let isMaking = false;
  let unread: ReturnType<typeof setTimeout> | undefined;
  let madeAhead: ReturnType<typeof makeNext> | undefined;
  exchange.isStreamed = true;
  const unbegun = setTimeout(() => {
    exchange.hold(0);
    packer?.hold(false);
    exchange.span?.end();
  }, UNBEGUN_MS_MAX);
  const begin = (): void => {
    clearTimeout(unbegun);
    exchange.hold(bytesKept);
    packer?.hold(true);
    const onInvalid = (refusal: Refusal): void => {
      // Called again if the stream has not ended. A client that does not read is cut off. One that is waiting still
      // gets the last chunk.
      if (ending.signal.aborted && !isMaking) service.limitIdle(request, CUT_SECONDS);
      ending.abort(refusal);
    };
    unwatch = service.authenticator.watch({ header: exchange.authorization, onInvalid });
  };
  const end = (failure?: string): void => {
    clearTimeout(unread);
    unwatch?.();
    exchange.hold(0, 0);
    packer?.hold(false);
    exchange.span?.end(failure);
  };
  const makeNext = async (): ReturnType<typeof chunks.next> => {
    // No idle timeout while a chunk is made. A client that does not take it is cut off, like any other.
    service.limitIdle(request, 0);
    isMaking = true;
    try {
      return await chunks.next();
    } finally {
      isMaking = false;
      // The client left while the chunk was made.
      if (isGone) end();
      else service.limitIdle(request, service.config.idleSecondsMax);
    }
  };
  const makeAhead = (): void => {
    onUnread?.();
    madeAhead = makeNext();
    // Handled when the client takes the chunk. An unhandled rejection ends the process.
    madeAhead.catch(() => undefined);
  };
  const source = {
    async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
      clearTimeout(unread);
      if (unwatch === undefined) begin();
      // The runtime pulls while it may still hold the last chunk.
      exchange.hold(exchange.bytesKept, bytesLast);
      try {
        const making = madeAhead ?? makeNext();
        madeAhead = undefined;
        const { done, value } = await making;
        if (isGone) return;
        if (!done) {
          if (onUnread !== undefined)
            unread = setTimeout(makeAhead, service.config.idleSecondsMax * 1000 * UNREAD_SHARE);
          const bytes = typeof value === "string" ? encoder.encode(value) : value;
          exchange.hold(exchange.bytesKept, bytesLast + bytes.length);
          if (!isFeed) bytesLast = bytes.length;
          return controller.enqueue(bytes);
        }
      } catch (error) {
        const { reason, cause } = toRefusal(error);
        end(reason);
        if (reason !== "body_incomplete")
          service.log.warn("export_broken_off", { ...exchange.ids, reason, cause });
        // The answer has begun, so it is cut off: a client cannot take it for complete.
        throw error;
      }
      end();
      controller.close();
    },
    async cancel(): Promise<void> {
      isGone = true;
      end();
      // Set if the service cut the stream off because the token became invalid.
      const refusal = ending.signal.reason as Refusal | undefined;
      ending.abort(new Refusal("body_incomplete"));
      service.log.info("answer_cut_off", {
        ...exchange.ids,
        reason: refusal?.reason,
        durationMs: Math.round(performance.now() - exchange.startedAtMs),
      });
      await chunks.return(undefined);
    },
  };
  return new ReadableStream(source, { highWaterMark: 0 });
}
