/** Answers that are made while they are sent. */

interface StreamHooks {
  /** A piece is being made, or waited for. */
  readonly onMake: () => void;
  /** A piece is on its way to the client. */
  readonly onSend: () => void;
}

/**
 * A body of these pieces. A piece is asked for when the last one has left for the client, so that a slow
 * reader holds up the maker and not our memory; when the client goes away, the maker is ended.
 */
export function toStream(
  pieces: AsyncGenerator<string>,
  hooks?: StreamHooks,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      hooks?.onMake();
      const { done, value } = await pieces.next();
      hooks?.onSend();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}
