/** JSON laid out for reading, with every number and string as it was written: parsing would round the long ids. */

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

/** Undefined where the text is no JSON. */
export function layOutJson(text: string): string | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  let depth = 0;
  let laidOut = "";
  let previous = "";
  for (const [token] of text.matchAll(TOKEN)) {
    const isClosing = token === "}" || token === "]";
    if (isClosing) depth--;
    const wasOpening = previous === "{" || previous === "[";
    const breaks = previous === "," || (wasOpening ? !isClosing : isClosing);
    if (breaks) laidOut += `\n${"  ".repeat(depth)}`;
    laidOut += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth++;
    previous = token;
  }
  return laidOut;
}
