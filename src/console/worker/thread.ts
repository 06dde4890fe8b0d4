/** The import's thread as the page has it: made when it is needed, and anew after it was ended. */

import { baseUrl } from "../api/service.ts";
import type { FromWorker, ToWorker } from "./messages.ts";

export class ImportThread {
  private readonly hear: (message: FromWorker) => void;
  private worker: Worker | undefined;

  constructor(hear: (message: FromWorker) => void) {
    this.hear = hear;
  }

  tell(message: ToWorker): void {
    this.worker ??= this.start();
    this.worker.postMessage(message);
  }

  end(): void {
    this.worker?.terminate();
    this.worker = undefined;
  }

  private start(): Worker {
    const path = document.documentElement.dataset["importWorker"] ?? "";
    const started = new Worker(new URL(path, baseUrl), { type: "module" });
    // One that was ended may have said something before.
    const pass = (message: FromWorker): void => {
      if (started === this.worker) this.hear(message);
    };
    started.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => pass(data));
    started.addEventListener("error", () => pass({ is: "broken" }));
    return started;
  }
}
