/** plantstore import: plants out of a file, into the store or a running service; safe to run again. */

import { closeSync, fstatSync, openSync } from "node:fs";
import type { RetryOptions } from "../client/retry.ts";
import type { Config } from "../config.ts";
import { readPlants } from "../format/plants.ts";
import { readDescriptor } from "./descriptor.ts";
import { CommandError, UsageError } from "./failure.ts";
import { type FormatOptions, parseFormat } from "./file-format.ts";
import { concludeImport } from "./import-conclusion.ts";
import { importRecords, type Tally } from "./import-records.ts";
import { type ImportTarget, targetService, targetStore } from "./import-target.ts";
import { untilInterrupted } from "./interrupt.ts";
import { Progress } from "./progress.ts";
import { rejectToFile, rejectToPerson } from "./rejects.ts";
import { describeRetry } from "./quantity.ts";
import { parseRemote } from "./remote.ts";
import { isFileOfDescriptor, isSameFile, requireOutsideStore } from "./same-file.ts";
import { withStore } from "./with-store.ts";

/** What an exported record may have more than the request that stored it: an id in full. */
const RECORD_BYTES_MORE = 64;

export interface ImportOptions extends FormatOptions {
  readonly url?: string;
  readonly databaseUrl?: string;
  readonly rejects?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export async function importPlants(
  config: Config,
  path: string,
  options: ImportOptions,
): Promise<void> {
  const format = parseFormat(path, options);
  const remote = parseRemote(options, config);
  if (options.rejects !== undefined) {
    requireOtherFile(options.rejects, path);
    if (remote === undefined) requireOutsideStore("--rejects", options.rejects, config.databaseUrl);
  }
  using source = openSource(path);
  const startedAtMs = performance.now();
  const tally: Tally = { created: 0, replayed: 0, refused: 0 };

  const run = async (signal: AbortSignal): Promise<void> => {
    const progress = new Progress(
      () => ({
        plants: tally.created + tally.replayed,
        refused: tally.refused,
        done: source.bytesRead,
      }),
      { isQuiet: options.quiet === true, total: source.bytesTotal },
    );
    const print = (line: string): void => progress.print(line);
    const into = async (target: ImportTarget): Promise<void> => {
      const rejects =
        options.rejects === undefined ? rejectToPerson(print) : rejectToFile(options.rejects);
      const blocks = readPlants(source.read(signal), format, {
        recordBytesMax: config.bodyBytesMax + RECORD_BYTES_MORE,
        blockLengthMax: target.blockLengthMax,
      });
      try {
        await importRecords({ blocks, target, rejects, tally, signal });
      } finally {
        rejects.close();
      }
    };
    const retrying: RetryOptions = {
      signal,
      onRetry: ({ message }, waitMs) => print(describeRetry(message, waitMs)),
    };
    try {
      await (remote === undefined
        ? withStore(config, (store) => into(targetStore(store, config.queueLengthMax, retrying)))
        : into(targetService(remote, retrying)));
    } finally {
      progress.close();
    }
  };

  const failure = await untilInterrupted(run).then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  const seconds = (performance.now() - startedAtMs) / 1000;
  await concludeImport({ ...tally, seconds, failure, isJson: options.json === true });
}

class Source implements Disposable {
  readonly bytesTotal: number | undefined;
  bytesRead = 0;
  private readonly descriptor: number;

  constructor(descriptor: number, bytesTotal: number | undefined) {
    this.descriptor = descriptor;
    this.bytesTotal = bytesTotal;
  }

  async *read(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    for await (const chunk of readDescriptor(this.descriptor, signal)) {
      this.bytesRead += chunk.length;
      yield chunk;
    }
  }

  [Symbol.dispose](): void {
    if (this.descriptor !== STANDARD_INPUT) closeSync(this.descriptor);
  }
}

const STANDARD_INPUT = 0;

/** The file to read would be emptied before its first line has been. */
function requireOtherFile(rejects: string, source: string): void {
  const isSource =
    source === "-" ? isFileOfDescriptor(rejects, STANDARD_INPUT) : isSameFile(rejects, source);
  if (isSource) throw new UsageError(`--rejects: ${rejects} is the file to import`);
}

function openSource(path: string): Source {
  if (path === "-") return new Source(STANDARD_INPUT, undefined);
  const descriptor = openSync(path, "r");
  const found = fstatSync(descriptor);
  if (found.isDirectory()) throw new CommandError(`${path} is a folder, and not a file.`);
  // A pipe has no size.
  return new Source(descriptor, found.isFile() ? found.size : undefined);
}
