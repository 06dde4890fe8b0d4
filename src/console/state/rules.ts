/** The rules of the interface, for a form to show before anything is sent: the same code judges there. */

import { findInt64, INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isStorable } from "../../domain/plant.ts";

export const ID_RULE = `A whole number from ${INT64_MIN} to ${INT64_MAX}. It never changes.`;
export const NAME_RULE = "Any text; it may be empty.";
export const TAG_RULE = "One word or a few that say what kind it is.";

/** Undefined where nothing can be said against it. */
export function findIdFault(text: string): string | undefined {
  const written = text.trim();
  if (written === "") return "An id is needed.";
  if (findInt64(written) !== undefined) return undefined;
  if (!/^-?[\d.eE+-]+$/.test(written))
    return "Only digits, with a minus in front where it is negative.";
  const digits = /^(-?)\d+$/.exec(written);
  if (digits === null) return "It has to be a whole number.";
  return digits[1] === "-"
    ? `Too small: the smallest is ${INT64_MIN}.`
    : `Too large: the largest is ${INT64_MAX}.`;
}

export function findTextFault(text: string): string | undefined {
  return isStorable(text)
    ? undefined
    : "It has a character that cannot be stored (U+0000, or half of a pair).";
}

export function findTextNote(text: string): string | undefined {
  if (text === "") return undefined;
  return text.trim() === text ? undefined : "It begins or ends with a space.";
}
