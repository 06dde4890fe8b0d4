/** Answers taken from the bytes of a connection as they come, by RFC 9112 and without mercy. */

export interface Answer {
  readonly status: number;
  /** Status line and fields, as they came. */
  readonly head: string;
  /** Each byte a character. */
  readonly body: string;
  readonly endsConnection: boolean;
}

export class NotHttp extends Error {}

interface Taken {
  readonly answer: Answer;
  readonly rest: string;
}

const HEAD_END = "\r\n\r\n";
const STATUS_LINE = /^HTTP\/1\.1 [1-5]\d\d [^\r\n]*$/;
const FIELD = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*[\t\x20-\x7e\x80-\xff]*$/;

/**
 * The first final answer in the text; undefined where it is not complete yet. Without a length it
 * is complete where the connection has ended. `toHead` says that a HEAD is answered.
 */
export function takeAnswer(
  text: string,
  { toHead = false, hasEnded = false } = {},
): Taken | undefined {
  const headEnd = text.indexOf(HEAD_END);
  if (headEnd === -1) {
    if (text !== "" && !"HTTP/1.1 ".startsWith(text.slice(0, 9)))
      throw new NotHttp(`not an answer: ${JSON.stringify(text.slice(0, 200))}`);
    return undefined;
  }
  const head = text.slice(0, headEnd);
  const rest = text.slice(headEnd + HEAD_END.length);
  const status = parseStatus(head);
  if (status < 200) return takeAnswer(rest, { toHead, hasEnded });
  const body = takeBody(head, status, rest, { toHead, hasEnded });
  if (body === undefined) return undefined;
  const endsConnection = /^connection: *close$/im.test(head);
  return { answer: { status, head, body: body.text, endsConnection }, rest: body.rest };
}

function parseStatus(head: string): number {
  const [statusLine = "", ...fields] = head.split("\r\n");
  const wrong = STATUS_LINE.test(statusLine)
    ? fields.find((field) => !FIELD.test(field))
    : statusLine;
  if (wrong !== undefined) throw new NotHttp(`not a head: ${JSON.stringify(wrong)}`);
  return Number(statusLine.slice(9, 12));
}

interface Body {
  readonly text: string;
  readonly rest: string;
}

/** RFC 9112, section 6.3. */
function takeBody(
  head: string,
  status: number,
  rest: string,
  { toHead, hasEnded }: { toHead: boolean; hasEnded: boolean },
): Body | undefined {
  if (toHead || status === 204 || status === 304) return { text: "", rest };
  const lengths = [...head.matchAll(/^content-length: *(\d+)$/gim)];
  const isChunked = /^transfer-encoding: *chunked$/im.test(head);
  if (lengths.length + (isChunked ? 1 : 0) > 1)
    throw new NotHttp(`two lengths: ${JSON.stringify(head)}`);
  if (isChunked) return takeChunks(rest);
  const length = Number(lengths[0]?.[1] ?? Infinity);
  if (rest.length >= length) return { text: rest.slice(0, length), rest: rest.slice(length) };
  return hasEnded && length === Infinity ? { text: rest, rest: "" } : undefined;
}

function takeChunks(rest: string): Body | undefined {
  const chunks: string[] = [];
  for (let at = 0; ;) {
    const lineEnd = rest.indexOf("\r\n", at);
    if (lineEnd === -1) return undefined;
    const size = rest.slice(at, lineEnd);
    if (!/^[0-9a-f]+$/i.test(size)) throw new NotHttp(`not a chunk: ${JSON.stringify(size)}`);
    const start = lineEnd + 2;
    const end = start + Number.parseInt(size, 16);
    if (rest.length < end + 2) return undefined;
    if (rest.slice(end, end + 2) !== "\r\n") throw new NotHttp("a chunk without an end");
    if (end === start) return { text: chunks.join(""), rest: rest.slice(end + 2) };
    chunks.push(rest.slice(start, end));
    at = end + 2;
  }
}

/** The text of a body, which is UTF-8. */
export const readBody = ({ body }: Answer): string => Buffer.from(body, "latin1").toString("utf8");
