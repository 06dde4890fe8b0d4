/** Answers of other services. */

/** What has arrived by then. The rest of a long or slow answer is not read, and its connection closes. */
export async function readStart(
  { body }: Response,
  bytesMax: number,
  msMax: number,
): Promise<string> {
  const reader = (body as ReadableStream<Uint8Array> | null)?.getReader();
  if (reader === undefined) return "";
  const decoder = new TextDecoder();
  // Ends a pending read, and closes the connection unless all was read.
  const stop = (): void => void reader.cancel().catch(() => undefined);
  const timer = setTimeout(stop, msMax);
  let text = "";
  for (let bytes = 0; bytes < bytesMax;) {
    const { value } = await reader.read().catch(() => ({ value: undefined }));
    if (value === undefined) break;
    text += decoder.decode(value.subarray(0, bytesMax), { stream: true });
    bytes += value.length;
  }
  clearTimeout(timer);
  stop();
  return text;
}

/** Undefined if it is longer than that. */
export async function readWhole(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  bytesMax: number,
): Promise<Buffer | undefined> {
  const read: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > bytesMax) return undefined;
    read.push(chunk);
  }
  return Buffer.concat(read);
}
