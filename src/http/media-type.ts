/** Which bodies we read: JSON in UTF-8, not compressed. */

import { Refusal } from "../domain/error.ts";

/** A parameter of a media type, RFC 9110 section 5.6.6: a token or a quoted string. */
const PARAMETER =
  /^[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)|"((?:[^"\\]|\\.)*)")[ \t]*$/;

export function requireJson(headers: Headers): void {
  const contentType = headers.get("content-type");
  if (contentType !== "application/json" && !isJsonInUtf8(contentType ?? ""))
    throw new Refusal("unsupported_media_type");
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.trim().toLowerCase() !== "identity")
    throw new Refusal("unsupported_encoding");
}

function isJsonInUtf8(contentType: string): boolean {
  const [type = "", ...parameters] = contentType.split(";");
  if (type.trim().toLowerCase() !== "application/json") return false;
  return parameters.every((parameter) => {
    // An empty parameter, as in "application/json;", is allowed by the grammar.
    if (parameter.trim() === "") return true;
    const match = PARAMETER.exec(parameter);
    if (match === null) return false;
    const [, name = "", token, quoted] = match;
    return name.toLowerCase() !== "charset" || (token ?? quoted)?.toLowerCase() === "utf-8";
  });
}
