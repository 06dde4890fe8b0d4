/** Connections of clients that write requests by hand, and a strict parser of the answers. */

import type { Socket } from "bun";
import { TEST_TOKEN } from "../support/service.ts";

const CREDENTIALS = `Host: plants.example\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n`;

/** A request with a good token; its body is JSON unless `lines` say otherwise. */
export function formatRequest(
  method: string,
  target: string,
  body?: string,
  lines = "Content-Type: application/json\r\n",
): string {
  const top = `${method} ${target} HTTP/1.1\r\n${CREDENTIALS}`;
  if (body === undefined) return `${top}\r\n`;
  return `${top}${lines}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

export class Connection {
  readonly closed: Promise<void>;
  isOpen = true;
  readonly #socket: Socket<Connection>;
  readonly #onClosed: () => void;
  #text = "";
  #toHead = false;
  #unsent: Uint8Array | undefined;
  #settle: ((answer: Answer | undefined) => void) | undefined;
  #fail: ((error: unknown) => void) | undefined;

  private constructor(socket: Socket<Connection>) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#onClosed = resolve;
    this.#socket = socket;
    socket.data = this;
  }

  static async open(url: string): Promise<Connection> {
    const { hostname, port } = new URL(url);
    const socket = await Bun.connect<Connection>({
      hostname,
      port: Number(port),
      data: undefined as unknown as Connection,
      socket: {
        data: ({ data: connection }, bytes) => connection.#receive(bytes.toString("latin1")),
        drain: ({ data: connection }) => connection.#drain(),
        close: ({ data: connection }) => connection.#end(),
        error: ({ data: connection }) => connection.#end(),
      },
    });
    return new Connection(socket);
  }

  /** The answer; undefined where the connection ends before. One request at a time. */
  ask(request: string | Uint8Array): Promise<Answer | undefined> {
    if (!this.isOpen) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      this.#settle = resolve;
      this.#fail = reject;
      const start = typeof request === "string" ? request : Buffer.from(request.subarray(0, 5));
      this.#toHead = start.toString().startsWith("HEAD ");
      this.send(request);
    });
  }

  /** Without waiting for anything. */
  send(bytes: string | Uint8Array): void {
    const written = this.#socket.write(bytes);
    const whole = typeof bytes === "string" ? Buffer.byteLength(bytes) : bytes.length;
    if (written < 0 || written >= whole) return;
    const all = typeof bytes === "string" ? Buffer.from(bytes) : bytes;
    this.#unsent = all.subarray(written);
  }

  /** Ends without a goodbye, as a client that crashed. */
  abort(): void {
    this.#socket.terminate();
  }

  #drain(): void {
    if (this.#unsent === undefined) return;
    const written = this.#socket.write(this.#unsent);
    this.#unsent =
      written >= this.#unsent.length ? undefined : this.#unsent.subarray(Math.max(0, written));
  }

  #receive(text: string): void {
    this.#text += text;
    if (this.#settle !== undefined) this.#take(false);
  }

  #take(hasEnded: boolean): void {
    try {
      const taken = takeAnswer(this.#text, { toHead: this.#toHead, hasEnded });
      if (taken === undefined) return;
      this.#text = taken.rest;
      this.#settle?.(taken.answer);
    } catch (error) {
      this.#fail?.(error);
    }
    this.#settle = undefined;
  }

  #end(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    if (this.#settle !== undefined) this.#take(true);
    this.#settle?.(undefined);
    this.#onClosed();
  }
}

export interface Answer {
  readonly status: number;
  /** Status line and fields, as they came. */
  readonly head: string;
  /** Each byte a character. */
  readonly body: string;
  readonly endsConnection: boolean;
}

class NotHttp extends Error {}

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
function takeAnswer(text: string, { toHead = false, hasEnded = false } = {}): Taken | undefined {
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

export interface Expected {
  /** Of each request that should be answered, whether it is a HEAD. */
  readonly toHeads: readonly boolean[];
  /** Whether the connection is to be closed by the other side after that. */
  readonly isClosed: boolean;
}

export interface Exchange {
  readonly answers: readonly Answer[];
  /** By the service, and not by us. */
  readonly isClosed: boolean;
  /** What came and was no answer. */
  readonly nonsense: string | undefined;
}

/** Resolves when all that is expected has come, or when nothing has for a while. */
export async function exchangeBytes(
  address: { readonly hostname: string; readonly port: number },
  segments: readonly Uint8Array[],
  { toHeads, isClosed }: Expected,
  waitMsMax: { readonly forAnswer: number; readonly forEnd: number },
): Promise<Exchange> {
  const answers: Answer[] = [];
  const over = Promise.withResolvers<void>();
  let text = "";
  let hasEnded = false;
  let nonsense: string | undefined;
  let timer: Timer | undefined;
  const take = (): void => {
    try {
      for (;;) {
        const taken = takeAnswer(text, { toHead: toHeads[answers.length] ?? false, hasEnded });
        if (taken === undefined) break;
        answers.push(taken.answer);
        text = taken.rest;
      }
    } catch (error) {
      if (!(error instanceof NotHttp)) throw error;
      nonsense = error.message;
    }
    const isComplete = answers.length >= toHeads.length;
    if (hasEnded || nonsense !== undefined || (isComplete && !isClosed)) return over.resolve();
    clearTimeout(timer);
    timer = setTimeout(over.resolve, isComplete ? waitMsMax.forEnd : waitMsMax.forAnswer);
  };
  const end = (): void => {
    if (hasEnded) return;
    hasEnded = true;
    take();
  };
  const socket: Socket = await Bun.connect({
    ...address,
    socket: {
      data(_socket, bytes) {
        text += bytes.toString("latin1");
        take();
      },
      drain: (draining) => void (unsent = writeSome(draining, unsent)),
      close: end,
      error: end,
    },
  });
  let unsent: Uint8Array = new Uint8Array();
  for (const [index, segment] of segments.entries()) {
    if (index > 0) await Bun.sleep(0);
    if (hasEnded) break;
    unsent = unsent.length > 0 ? Buffer.concat([unsent, segment]) : writeSome(socket, segment);
  }
  if (!hasEnded) take();
  await over.promise;
  clearTimeout(timer);
  const wasClosed = hasEnded;
  if (!hasEnded) socket.terminate();
  return { answers, isClosed: wasClosed, nonsense };
}

/** What the system did not take yet. */
function writeSome(socket: Socket, bytes: Uint8Array): Uint8Array {
  return bytes.length === 0 ? bytes : bytes.subarray(Math.max(0, socket.write(bytes)));
}
