/** The service with the limits of a test, whose threads end one after another as it gets SIGUSR2: first the store's. */

import type { Worker } from "node:worker_threads";

const threads: Pick<Worker, "terminate">[] = [];
process.on("worker", (thread) => threads.push(thread));
process.on("SIGUSR2", () => void threads.shift()?.terminate());

await import("./main.ts");
