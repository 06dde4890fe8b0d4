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
