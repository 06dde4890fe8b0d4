/** The reader thread: searches, counts, large pages, exports, tags, the journal, tokens, webhooks, file sizes. */

import type { PageText } from "../../domain/page.ts";
import { watchFile } from "./database.ts";
import { type ReaderOrder, SqliteReader, WATCH_MS } from "./reader.ts";
import { MOVED, type ThreadSetup } from "./thread.ts";
import { onMessage, runThread, takeAll, toAnswer } from "../../thread.ts";

const encoder = new TextEncoder();

runThread(({ orders, path, limits, ports, state }: ThreadSetup) => {
  let reader: SqliteReader | undefined;
  const perform = (order: "open" | "close"): unknown => {
    if (order === "close") return reader?.close();
    const opened = (reader = new SqliteReader(path, limits));
    for (const port of ports)
      onMessage(port, (read: ReaderOrder) => {
        answer(port, opened, read);
        // The runtime may serve one busy port many times before another. Afterwards, because most come meanwhile.
        for (const other of ports.filter((one) => one !== port))
          for (const waiting of takeAll(other)) answer(other, opened, waiting as ReaderOrder);
      });
    const assertNotMoved = watchFile(path);
    // For the HTTP threads, which must not touch the disk.
    setInterval(() => {
      const isMoved = "failure" in toAnswer(assertNotMoved);
      Atomics.store(state, MOVED, isMoved ? 1 : 0);
    }, WATCH_MS);
    return undefined;
  };
  onMessage(orders, (order: Parameters<typeof perform>[0]) =>
    orders.postMessage(toAnswer(() => perform(order))),
  );
});

/** Page text is sent as bytes, which are transferred, not copied. */
function answer(port: MessagePort, opened: SqliteReader, order: ReaderOrder): void {
  const result = toAnswer(() => opened.perform(order));
  if (order.kind !== "plants" || !("value" in result)) return port.postMessage(result);
  const page = result.value as PageText;
  const text = encoder.encode(page.text as string);
  port.postMessage({ value: { ...page, text } }, [text.buffer]);
}
