/** Exact 64-bit integers: from the text of a JSON number to a bigint, with nothing rounded on the way. */

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

const DIGITS_MAX = 19;
const JSON_NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/**
 * The int64 that a JSON number denotes, or undefined where it denotes a fraction or something out of range.
 * By JSON Schema `1.0` and `1e2` are integers, so the value decides and not the notation.
 *
 * The work is linear in the length of the text whatever the exponent says: digits are only
 * written out once it is known that no more than 19 of them come.
 */
export function findInt64(jsonNumber: string): bigint | undefined {
  const match = JSON_NUMBER.exec(jsonNumber);
  if (match === null) return undefined;
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;

  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits === "") return 0n;
  const significant = trimTrailingZeros(digits);
  const zerosAfter = Number(exponent) - fraction.length + (digits.length - significant.length);
  if (zerosAfter < 0 || significant.length + zerosAfter > DIGITS_MAX) return undefined;

  const value = BigInt(sign + significant + "0".repeat(zerosAfter));
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}

/** A regular expression for this is quadratic in runs of zeros that do not end the text. */
function trimTrailingZeros(digits: string): string {
  let end = digits.length;
  while (digits.charCodeAt(end - 1) === 48) end--;
  return digits.slice(0, end);
}
