/** Bytes sent on a connection of their own, and all the answers that come back. */

import type { Socket } from "bun";
import { type Answer, NotHttp, takeAnswer } from "./answer.ts";

export interface Expected {
  /** Of each request that should be answered, whether it is a HEAD. */
  readonly toHeads: readonly boolean[];
  /** Whether the connection is to be closed by the other side after that. */
  readonly isClosed: boolean;
}

export interface Exchange {
  readonly answers: readonly Answer[];
  /** By the service, and not by us. */
  readonly isClosed: boolean;
  /** What came and was no answer. */
  readonly nonsense: string | undefined;
}

/** Resolves when all that is expected has come, or when nothing has for a while. */
export async function exchangeBytes(
  address: { readonly hostname: string; readonly port: number },
  segments: readonly Uint8Array[],
  { toHeads, isClosed }: Expected,
  waitMsMax: { readonly forAnswer: number; readonly forEnd: number },
): Promise<Exchange> {
  const answers: Answer[] = [];
  const over = Promise.withResolvers<void>();
  let text = "";
  let hasEnded = false;
  let nonsense: string | undefined;
  let timer: Timer | undefined;
  const take = (): void => {
    try {
      for (;;) {
        const taken = takeAnswer(text, { toHead: toHeads[answers.length] ?? false, hasEnded });
        if (taken === undefined) break;
        answers.push(taken.answer);
        text = taken.rest;
      }
    } catch (error) {
      if (!(error instanceof NotHttp)) throw error;
      nonsense = error.message;
    }
    const isComplete = answers.length >= toHeads.length;
    if (hasEnded || nonsense !== undefined || (isComplete && !isClosed)) return over.resolve();
    clearTimeout(timer);
    timer = setTimeout(over.resolve, isComplete ? waitMsMax.forEnd : waitMsMax.forAnswer);
  };
  const end = (): void => {
    if (hasEnded) return;
    hasEnded = true;
    take();
  };
  const socket: Socket = await Bun.connect({
    ...address,
    socket: {
      data(_socket, bytes) {
        text += bytes.toString("latin1");
        take();
      },
      drain: (draining) => void (unsent = writeSome(draining, unsent)),
      close: end,
      error: end,
    },
  });
  let unsent: Uint8Array = new Uint8Array();
  for (const [index, segment] of segments.entries()) {
    if (index > 0) await Bun.sleep(0);
    if (hasEnded) break;
    unsent = unsent.length > 0 ? Buffer.concat([unsent, segment]) : writeSome(socket, segment);
  }
  if (!hasEnded) take();
  await over.promise;
  clearTimeout(timer);
  const wasClosed = hasEnded;
  if (!hasEnded) socket.terminate();
  return { answers, isClosed: wasClosed, nonsense };
}

/** What the system did not take yet. */
function writeSome(socket: Socket, bytes: Uint8Array): Uint8Array {
  return bytes.length === 0 ? bytes : bytes.subarray(Math.max(0, socket.write(bytes)));
}
