/** What becomes of refused records: all of them into a file, or the first few before a person's eyes. */

import { closeSync, openSync } from "node:fs";
import type { PlantRecord } from "../format/plants.ts";
import { writeDescriptor } from "./descriptor.ts";
import type { Refused } from "../client/client.ts";

const PRINTED_MAX = 10;

type Rejected = Pick<PlantRecord, "line" | "text"> & Refused;

export interface Rejects {
  /** Takes those of one block, and resolves when they need no memory any more. */
  readonly add: (rejected: readonly Rejected[]) => Promise<void>;
  readonly close: () => void;
}

/** One JSON object a line: {"line","error","message","text"}, without the text where it is too large, or none. */
export function rejectToFile(path: string): Rejects {
  const descriptor = openSync(path, "w");
  return {
    add: (rejected) =>
      writeDescriptor(
        descriptor,
        rejected
          .map(
            ({ line, code, message, text }) =>
              `${JSON.stringify({ line, error: code, message, text })}\n`,
          )
          .join(""),
      ),
    close: () => closeSync(descriptor),
  };
}

export function rejectToPerson(print: (line: string) => void): Rejects {
  let count = 0;
  return {
    add: async (rejected) => {
      for (const { line, code, message } of rejected.slice(0, Math.max(0, PRINTED_MAX - count)))
        print(`line ${line}: ${message} (error ${code})`);
      count += rejected.length;
    },
    close: () => {
      if (count > PRINTED_MAX)
        print(`… and ${count - PRINTED_MAX} more; --rejects <file> keeps them all.`);
    },
  };
}
