/** Arrays as PostgreSQL reads them: one parameter for a column of any number of rows. */

export const int64Array = (values: readonly bigint[]): string => `{${values.join(",")}}`;

/** Quoted, always: bare words such as NULL and signs such as { mean something. */
export function textArray(values: readonly (string | undefined)[]): string {
  let text = "{";
  for (const [index, value] of values.entries()) {
    if (index > 0) text += ",";
    text += value === undefined ? "NULL" : `"${escape(value)}"`;
  }
  return `${text}}`;
}

const SIGNS = /["\\]/;
const EVERY_SIGN = /["\\]/g;

const escape = (text: string): string =>
  SIGNS.test(text) ? text.replace(EVERY_SIGN, "\\$&") : text;
