/** The store thread: the only one that writes. */

import { onMessage, runThread, toAnswer } from "../../thread.ts";
import { answerClock, type ClockOrder } from "../../tick.ts";
import { serveWrites, type ThreadSetup } from "./thread.ts";
import { SqliteWriter } from "./writer.ts";

runThread((setup: ThreadSetup) => {
  const { orders, path, limits } = setup;
  let writer: SqliteWriter | undefined;
  const perform = (order: "open" | "close" | ClockOrder): unknown => {
    if (typeof order === "object") return answerClock(order);
    if (order === "close") return writer?.close();
    writer = new SqliteWriter(path, limits, (migrates) => orders.postMessage({ migrates }));
    serveWrites(writer, setup);
    return undefined;
  };
  onMessage(orders, (order: Parameters<typeof perform>[0]) =>
    orders.postMessage(toAnswer(() => perform(order))),
  );
});
