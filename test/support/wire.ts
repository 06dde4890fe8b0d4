/** HTTP/1.1 as bytes over bare TCP: requests written by hand, answers taken apart without a client library. */

import type { Socket } from "bun";
import { expect } from "bun:test";
import { connect, type Socket as NodeSocket } from "node:net";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { TEST_TOKEN, type TestService } from "./service.ts";

export const HOST = "Host: plants.example";
export const CREDENTIALS = [
  `Authorization: Bearer ${TEST_TOKEN}`,
  "Content-Type: application/json",
];

/** The lines as they are: nothing is added, checked or counted. */
export const head = (...lines: readonly string[]): string => `${lines.join("\r\n")}\r\n\r\n`;

/** The head of a create that lacks nothing but what says how long its body is. */
export const createHead = (...lines: readonly string[]): string =>
  head("POST /plants HTTP/1.1", HOST, ...CREDENTIALS, ...lines);

/** The head of a batch of lines, which come in chunks. */
export const batchHead = (...lines: readonly string[]): string =>
  createHead("Transfer-Encoding: chunked", ...lines)
    .replace("/plants ", "/plants/batch ")
    .replace("application/json", "application/x-ndjson");

export const plantBody = (id: number): string => JSON.stringify({ id, name: `plant ${id}` });

export const createRequest = (id: number, ...lines: readonly string[]): string =>
  createHead(`Content-Length: ${plantBody(id).length}`, ...lines) + plantBody(id);

export const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

export const chunked = (text: string): string => `${chunk(text)}0\r\n\r\n`;

export interface WireAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Each byte a character. */
  readonly body: string;
}

class NotHttp extends Error {}

const STATUS_LINE = /^HTTP\/1\.1 [1-5]\d\d [^\r\n]*$/;
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/;

/**
 * The first answer in the text; undefined where it is not complete yet. Without a length it is complete where the
 * connection has ended. `toHead` says that a HEAD is answered.
 */
export function takeAnswer(
  text: string,
  { toHead = false, hasEnded = false } = {},
): { readonly answer: WireAnswer; readonly rest: string } | undefined {
  const headEnd = text.indexOf("\r\n\r\n");
  if (headEnd === -1 && (text === "" || "HTTP/1.1 ".startsWith(text.slice(0, 9)))) return undefined;
  const [statusLine = "", ...lines] = text.slice(0, headEnd).split("\r\n");
  if (headEnd === -1 || !STATUS_LINE.test(statusLine))
    throw new NotHttp(`not an answer: ${JSON.stringify(text.slice(0, 200))}`);
  const fields = lines.map((line): [string, string] => {
    const [, name, value = ""] = FIELD.exec(line) ?? [];
    if (name === undefined) throw new NotHttp(`not a field: ${JSON.stringify(line)}`);
    return [name, value];
  });
  const status = Number(statusLine.slice(9, 12));
  const headers = new Headers(fields);
  const rest = text.slice(headEnd + 4);
  const isBare = toHead || status < 200 || status === 204 || status === 304;
  const taken = isBare ? { body: "", rest } : takeBody(headers, rest, hasEnded);
  return taken && { answer: { status, headers, body: taken.body }, rest: taken.rest };
}

type Taken = Readonly<Record<"body" | "rest", string>>;

/** RFC 9112, section 6.3. */
function takeBody(headers: Headers, rest: string, hasEnded: boolean): Taken | undefined {
  const given = headers.get("content-length");
  const isChunked = headers.get("transfer-encoding") === "chunked";
  if ((given !== null && isChunked) || given?.includes(",")) throw new NotHttp("two lengths");
  if (isChunked) return takeChunks(rest);
  const length = Number(given ?? Infinity);
  if (rest.length >= length) return { body: rest.slice(0, length), rest: rest.slice(length) };
  return hasEnded && length === Infinity ? { body: rest, rest: "" } : undefined;
}

function takeChunks(rest: string): Taken | undefined {
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
    if (end === start) return { body: chunks.join(""), rest: rest.slice(end + 2) };
    chunks.push(rest.slice(start, end));
    at = end + 2;
  }
}

/** Everything that was received until the connection ended, answer by answer. Bytes that are none fail the test. */
export function parseAnswers(text: string): WireAnswer[] {
  const answers: WireAnswer[] = [];
  for (let rest = text; rest !== "";) {
    const taken = takeAnswer(rest, { hasEnded: true });
    if (taken === undefined) throw new NotHttp(`cut off: ${JSON.stringify(rest.slice(0, 500))}`);
    answers.push(taken.answer);
    rest = taken.rest;
  }
  return answers;
}

/** Sends the bytes in one piece, and waits until the service has closed the connection. */
export async function exchange(url: string, bytes: string | Uint8Array): Promise<WireAnswer[]> {
  const connection = await connectRaw(url);
  connection.send(bytes);
  return parseAnswers(await connection.closed);
}

/** The service's own refusal, and not one of the runtime's. */
export function expectOwnRefusal(answer: WireAnswer | undefined, reason: ErrorName): void {
  const { code, status } = catalogue[reason];
  expect(answer?.status).toBe(status);
  expect(answer?.headers.get("content-type")).toBe("application/json");
  expect(JSON.parse(answer?.body ?? "")).toEqual({
    error: code,
    message: expect.stringMatching(/./),
  });
}

const WITNESS_ID = 1;

/**
 * Creates the witness, or finds it created: the service is well. Whatever a connection before had
 * it store has been begun by then, because writes are begun in the order in which they came; and
 * a process that gets the lock has waited until the writes under way were over.
 */
export async function expectStored(service: TestService, ids: readonly number[]): Promise<void> {
  expect((await service.create(plantBody(WITNESS_ID))).status).toBe(200);
  await (await service.database.holdWrites()).release();
  expect(await service.readPlants()).toEqual(
    [WITNESS_ID, ...ids].map((id) => ({ id: BigInt(id), name: `plant ${id}`, tag: null })),
  );
}

/** The service is well, and of all that was sent to it nothing has been stored. */
export const expectNothingStored = (service: TestService): Promise<void> =>
  expectStored(service, []);

export type RawConnection = Awaited<ReturnType<typeof connectRaw>>;

export async function connectRaw(url: string, tls?: { readonly ca: string }) {
  const { hostname, port } = new URL(url);
  let text = "";
  let unsent: Uint8Array = Buffer.alloc(0);
  let isOpen = true;
  /** Resolves at the next bytes, or at the end. */
  let news = Promise.withResolvers<void>();
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<string>();
  const ready = Promise.withResolvers<void>();
  const write = (to: Socket): void => {
    unsent = unsent.subarray(Math.max(0, to.write(unsent)));
  };
  const tell = (): void => {
    news.resolve();
    news = Promise.withResolvers();
  };
  const end = (): void => {
    isOpen = false;
    onClosed(text);
    tell();
  };
  const socket: Socket = await Bun.connect({
    hostname,
    port: Number(port),
    ...(tls !== undefined && { tls }),
    socket: {
      data(_socket, bytes) {
        text += bytes.toString("latin1");
        tell();
      },
      drain: write,
      handshake: () => ready.resolve(),
      close: end,
      error: end,
    },
  });
  if (tls !== undefined) await ready.promise;
  const send = (bytes: string | Uint8Array): void => {
    unsent = Buffer.concat([unsent, Buffer.from(bytes)]);
    write(socket);
  };
  const take = (toHead: boolean): WireAnswer | undefined => {
    const taken = takeAnswer(text, { toHead, hasEnded: !isOpen });
    if (taken === undefined) return undefined;
    text = taken.rest;
    // 100 Continue.
    return taken.answer.status < 200 ? take(toHead) : taken.answer;
  };
  /** Undefined if the connection ends before. */
  const find = async <Found>(look: () => Found | undefined): Promise<Found | undefined> => {
    for (;;) {
      const found = look();
      if (found !== undefined || !isOpen) return found;
      await news.promise;
    }
  };
  return {
    send,
    /** Takes the answer off what is received; undefined if the connection ends before. One request at a time. */
    ask: async (request: string | Uint8Array): Promise<WireAnswer | undefined> => {
      if (!isOpen) return undefined;
      const toHead = Buffer.from(request).toString("latin1", 0, 5) === "HEAD ";
      send(request);
      return find(() => take(toHead));
    },
    isOpen: () => isOpen,
    /** Everything received so far. */
    received: () => text,
    /** Resolves to everything received, when the other side has closed the connection. */
    closed,
    /** Resolves when the text received matches; rejects if the connection ends before. */
    receive: async (pattern: RegExp): Promise<string> => {
      const found = await find(() => (pattern.test(text) ? text : undefined));
      if (found === undefined) throw new Error(`closed before ${pattern} came: ${text}`);
      return found;
    },
    /** Ends without a goodbye, as a client that crashed. */
    abort: () => socket.terminate(),
  };
}

/** A request with a good token; its body is JSON unless `lines` say otherwise. */
export function formatRequest(
  method: string,
  target: string,
  body?: string,
  lines = "Content-Type: application/json\r\n",
): string {
  const top = `${method} ${target} HTTP/1.1\r\n${HOST}\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n`;
  if (body === undefined) return `${top}\r\n`;
  return `${top}${lines}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** The text of a body, which is UTF-8. */
export const readBody = ({ body }: WireAnswer): string =>
  Buffer.from(body, "latin1").toString("utf8");

/** The head of a GET with the token of the tests. */
export const getHead = (path: string, ...lines: readonly string[]): string =>
  head(`GET ${path} HTTP/1.1`, HOST, `Authorization: Bearer ${TEST_TOKEN}`, ...lines);

/** A client that sends this, and reads nothing until it is resumed. */
export function sendDeaf(url: string, text: string): NodeSocket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).pause();
  socket.on("error", () => undefined);
  socket.write(text);
  return socket;
}
