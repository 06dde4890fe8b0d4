/** The rules about a plant, as this service has them, and faults in the user's language. */

import type { Fault } from "../../src/domain/errors.ts";
import { type PlantLimits, sayFault } from "../../src/domain/faults.ts";
import { readData } from "../api/page.ts";
import { createWording, type ReasonTexts } from "../import/reasons.ts";
import { errors, faults, t } from "../text/text.ts";

/** Undefined in front of `npm run dev`: then the service alone knows them. */
export function findLimits(): PlantLimits | undefined {
  const written = readData("limits");
  return written === "" ? undefined : (JSON.parse(written) as PlantLimits);
}

export const texts: ReasonTexts = {
  reasons: t.imports.reasons,
  others: errors &&
    faults && {
      errors,
      faults,
      fields: { id: t.shared.id, name: t.shared.name, tag: t.shared.tag },
    },
};

const wording = createWording(texts);

export const explainError = wording.wordError;

export const explainFault = (fault: Fault): string =>
  wording.word({ message: sayFault(fault), faults: [fault] });
