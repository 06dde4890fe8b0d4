/** Answers that are made while they are sent. */

import { Refusal, toRefusal } from "../domain/errors.ts";
import type { PlantQuery } from "../domain/page.ts";
import { requireOpen } from "./body.ts";
import { answer, type Exchange, type Service } from "./handle.ts";

/** The system takes an answer of this size from us even if the client does not read it. */
const SMALL_CHARACTERS_MAX = 65_536;

const encoder = new TextEncoder();

/**
 * A text to answer with. A large one counts as held memory until the client has taken it. It goes out in small slices,
 * because the runtime does not tell when the last one has left.
 */
export function answerText(
  exchange: Exchange,
  text: string,
  headers?: Readonly<Record<string, string>>,
): Response {
  if (text.length <= SMALL_CHARACTERS_MAX) return answer(200, text, headers);
  const { memory } = exchange.service;
  const bytes = encoder.encode(text);
  memory.noteText(bytes.length);
  exchange.release = memory.reserve(bytes.length);
  const slices = async function* (): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += SMALL_CHARACTERS_MAX)
      yield bytes.subarray(at, at + SMALL_CHARACTERS_MAX);
  };
  return answer(200, toStream(exchange, slices, { bytesKept: bytes.length }), headers);
}

/** Throws a Refusal if the answer is large and half of the memory is taken. */
export function requireRoomToAnswer({ memory }: Service, characters: number): void {
  if (characters <= SMALL_CHARACTERS_MAX) return;
  memory.noteText(characters);
  memory.requireHalf();
}

/** Reads what is sent next. Looks twice for room: others may have read meanwhile. */
export async function readWithinHalf<Page>(
  exchange: Exchange,
  read: () => Promise<Page>,
  countCharacters: (page: Page) => number,
): Promise<Page> {
  const { memory } = exchange.service;
  memory.requireHalf(exchange.bytesHeld);
  const page = await read();
  memory.noteText(countCharacters(page));
  memory.requireHalf(exchange.bytesHeld);
  return page;
}

/** While large answers are refused, a page ends early and is small, unless a plant is large. Decided when it is read. */
export const shortenPage = ({ memory }: Service, query: PlantQuery): PlantQuery => ({
  ...query,
  get charactersMax() {
    return memory.isHalfTaken ? SMALL_CHARACTERS_MAX / 2 : undefined;
  },
});

/**
 * Writes a plant that is also the answer. A large one is refused before it is stored if its answer could not be sent.
 * While it is being stored it counts as held memory.
 */
export function writeText<Result>(
  { request, service: { memory } }: Exchange,
  { length }: string,
  write: () => Promise<Result>,
): Promise<Result> {
  if (length <= SMALL_CHARACTERS_MAX) return write();
  memory.requireHalf();
  memory.hold(length);
  return requireOpen(request)
    .then(write)
    .finally(() => memory.hold(-length));
}

/** Makes the pieces of an answer. It ends when the signal aborts, for the reason of the signal. */
export type MakePieces = (signal: AbortSignal) => AsyncGenerator<string | Uint8Array>;

/**
 * A body of these pieces. The next piece is made when the last one has left for the client, so a slow client
 * holds up the maker and does not fill our memory. When the client goes away, or its token is no longer good,
 * the maker ends. `bytesKept` is what the maker holds to its end. A feed waits for what is to come, so the last piece
 * has left long before the next one is made.
 */
export function toStream(
  exchange: Exchange,
  make: MakePieces,
  { bytesKept = 0, isFeed = false } = {},
): ReadableStream<Uint8Array> {
  const { request, service } = exchange;
  const ending = new AbortController();
  const pieces = make(ending.signal);
  let watch: Timer | undefined;
  let bytesLast = 0;
  let secondsMax = service.config.idleSecondsMax;
  const hold = (bytes: number): void => {
    service.memory.hold(bytes - exchange.bytesHeld);
    exchange.bytesHeld = bytes;
  };
  const end = (): void => {
    clearInterval(watch);
    hold(0);
  };
  const source = {
    async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
      exchange.release?.();
      // The runtime asks for a piece while it may still hold the last one.
      hold(bytesKept + bytesLast);
      watch ??= watchToken(exchange, (refusal) => {
        if (ending.signal.aborted) return;
        clearInterval(watch);
        ending.abort(refusal);
        // A client that takes nothing would not see the end. To one that does, the last piece has left by then.
        watch = setTimeout(() => {
          secondsMax = CUT_SECONDS;
          service.limitIdle(request, secondsMax);
        }, LAST_PIECE_MS);
      });
      // Making a piece may take long. A client that does not take it is cut off, like any other.
      service.limitIdle(request, 0);
      try {
        const { done, value } = await pieces.next();
        exchange.release?.();
        service.limitIdle(request, secondsMax);
        if (!done) {
          const bytes = typeof value === "string" ? encoder.encode(value) : value;
          hold(bytesKept + bytesLast + bytes.length);
          if (!isFeed) bytesLast = bytes.length;
          return controller.enqueue(bytes);
        }
      } catch (error) {
        end();
        const { requestId } = exchange;
        const { reason, cause } = toRefusal(error);
        // `cancel` logs that the client has gone.
        if (reason !== "body_incomplete")
          service.log.warn("export_broken_off", { requestId, reason, cause });
        // The answer has begun: it is cut off, so a client cannot take it for the whole.
        throw error;
      }
      end();
      controller.close();
    },
    async cancel(): Promise<void> {
      end();
      // Set if the service has cut it off, because the token is no longer good.
      const refusal = ending.signal.reason as Refusal | undefined;
      ending.abort(new Refusal("body_incomplete"));
      service.log.info("answer_cut_off", {
        requestId: exchange.requestId,
        reason: refusal?.reason,
        durationMs: Math.round(performance.now() - exchange.startedAtMs),
      });
      await pieces.return(undefined);
    },
  };
  // Without a queue of its own: the runtime has one.
  return new ReadableStream(source, { highWaterMark: 0 });
}

/** The least that the runtime has. It looks at its idle timer every four seconds, so a cut takes up to four. */
const CUT_SECONDS = 1;
const LAST_PIECE_MS = 250;
/** So a revocation ends a stream within the promised 5 seconds, also if its client takes nothing. */
const TOKEN_CHECK_MS = 500;
/** The streams of one token share a look-up. */
const TOKEN_AGE_MS_MAX = 100;

function watchToken({ request, service }: Exchange, onInvalid: (refusal: Refusal) => void): Timer {
  const authorization = request.headers.get("authorization");
  const check = async (): Promise<void> => {
    try {
      await service.authenticator.authenticate(authorization, TOKEN_AGE_MS_MAX);
    } catch (error) {
      const refusal = toRefusal(error);
      // A store that cannot be asked says nothing about the token.
      if (refusal.reason === "token_invalid" || refusal.reason === "token_expired")
        onInvalid(refusal);
    }
  };
  return setInterval(() => void check(), TOKEN_CHECK_MS).unref();
}
