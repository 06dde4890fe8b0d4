/** Which bodies we read: JSON, or lines of it, in UTF-8, not compressed. */

import { Refusal } from "../domain/errors.ts";

/** A parameter of a media type, RFC 9110 section 5.6.6: a token or a quoted string. */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)|"((?:[^"\\]|\\.)*)")[ \t]*$/;

export function requireJson(headers: Headers): void {
  requireType(headers, ["application/json"]);
}

export function requireNdjson(headers: Headers): void {
  requireType(headers, ["application/x-ndjson", "application/ndjson", "application/jsonl"]);
}

function requireType(headers: Headers, allowed: readonly [string, ...string[]]): void {
  const contentType = headers.get("content-type");
  if (contentType !== allowed[0] && !isInUtf8(contentType ?? "", allowed))
    throw new Refusal(
      "unsupported_media_type",
      `The body must be declared as ${allowed[0]} in UTF-8.`,
    );
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.trim().toLowerCase() !== "identity")
    throw new Refusal("unsupported_encoding");
}

function isInUtf8(contentType: string, allowed: readonly string[]): boolean {
  const [type = "", ...parameters] = contentType.split(";");
  if (!allowed.includes(type.trim().toLowerCase())) return false;
  return parameters.every((parameter) => {
    // An empty parameter, as in "application/json;", is allowed by the grammar.
    if (parameter.trim() === "") return true;
    const match = PARAMETER.exec(parameter);
    if (match === null) return false;
    const [, name = "", token, quoted] = match;
    return name.toLowerCase() !== "charset" || (token ?? quoted)?.toLowerCase() === "utf-8";
  });
}
