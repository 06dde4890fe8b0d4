/**
 * Words faults in the user's language: on the page, and in the worker of an import, which is bundled alone. The reader of
 * files and the rules about a plant name faults by their keys, and word them in English themselves.
 */

import type { ErrorName } from "../../client/client.ts";
import type { Fault } from "../../src/domain/errors.ts";
import { type FaultName, fillFault } from "../../src/domain/faults.ts";
import type { Texts } from "../text/take.ts";

type Reason = keyof Texts["imports"]["reasons"];

/** The page sends them to the worker. */
export interface ReasonTexts {
  readonly reasons: Readonly<Record<Reason, string>>;
  /** Undefined in English. */
  readonly others:
    | {
        readonly faults: Readonly<Record<FaultName, string>>;
        /** What the errors of the API mean. */
        readonly errors: Readonly<Record<ErrorName, string>>;
        /** How the page calls the fields of a plant. */
        readonly fields: Readonly<Record<string, string>>;
      }
    | undefined;
}

/** A Refusal, or the error of a file. */
interface Faulty {
  readonly message: string;
  readonly faults: readonly Fault[];
  readonly reason?: ErrorName;
}

export type Wording = ReturnType<typeof createWording>;

export function createWording({ reasons, others }: ReasonTexts) {
  const wordFault = ({ name, values }: Fault): string => {
    const { field = "" } = values;
    const { faults, fields } = others as NonNullable<typeof others>;
    return fillFault(faults[name as FaultName], { ...values, field: fields[field] ?? field });
  };
  /** What the service says: what its code means and, in English, its message, which may say more. */
  const wordError = (name: ErrorName | undefined, message: string): string => {
    const meaning = name && others?.errors[name];
    return meaning === undefined ? message : `${meaning} (${message})`;
  };
  return {
    say: (reason: Reason, values: Readonly<Record<string, string>> = {}): string =>
      fillFault(reasons[reason], values),
    word: ({ message, faults, reason }: Faulty): string => {
      if (others === undefined) return message;
      return faults.length === 0 ? wordError(reason, message) : faults.map(wordFault).join(" ");
    },
    wordError,
  };
}
