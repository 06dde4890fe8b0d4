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

/** Of a batch of lines, which come in chunks. */
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
  readonly body: string;
}

/** Everything that was received, answer by answer. Bytes that are none fail the test. */
export function parseAnswers(text: string): WireAnswer[] {
  const answers: WireAnswer[] = [];
  for (let rest = text; rest !== "";) {
    const [top = "", statusLine = "", fields = ""] =
      /^(HTTP\/1\.1 \d{3} [^\r\n]*)\r\n((?:[^\r\n]+\r\n)*)\r\n/.exec(rest) ?? [];
    expect(statusLine, `not an answer: ${JSON.stringify(rest)}`).not.toBe("");
    const headers = new Headers(
      fields.split("\r\n").flatMap((line): [string, string][] => {
        const colon = line.indexOf(":");
        return colon === -1 ? [] : [[line.slice(0, colon), line.slice(colon + 1).trim()]];
      }),
    );
    const status = Number(statusLine.slice(9, 12));
    const [body, behind] = takeBody(status, headers, rest.slice(top.length));
    answers.push({ status, headers, body });
    rest = behind;
  }
  return answers;
}

/** RFC 9112, section 6.3: without a length, the body is everything until the connection ends. */
function takeBody(status: number, headers: Headers, rest: string): [body: string, behind: string] {
  if (status < 200 || status === 204) return ["", rest];
  if (headers.get("transfer-encoding") === "chunked") return takeChunks(rest);
  const length = Number(headers.get("content-length") ?? Infinity);
  return [rest.slice(0, length), rest.slice(length)];
}

function takeChunks(rest: string): [body: string, behind: string] {
  const [line = "", size = ""] = /^([0-9A-Fa-f]+)\r\n/.exec(rest) ?? [];
  const length = Number.parseInt(size, 16);
  const end = line.length + length;
  expect(rest.slice(end, end + 2), `not a chunk: ${JSON.stringify(rest)}`).toBe("\r\n");
  if (length === 0) return ["", rest.slice(end + 2)];
  const [body, behind] = takeChunks(rest.slice(end + 2));
  return [rest.slice(line.length, end) + body, behind];
}

/** Sends the bytes in one piece, and waits until the service has closed the connection. */
export async function exchange(url: string, bytes: string | Uint8Array): Promise<WireAnswer[]> {
  const connection = await connectRaw(url);
  connection.send(bytes);
  return parseAnswers(await connection.closed);
}

/** Waits until that much has been received; fails where the connection ends before. */
export async function receive(connection: RawConnection, pattern: RegExp): Promise<string> {
  return Promise.race([
    connection.receive(pattern),
    connection.closed.then((text) => {
      if (pattern.test(text)) return text;
      throw new Error(`closed before ${pattern} came: ${JSON.stringify(text)}`);
    }),
  ]);
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

export interface RawConnection {
  readonly send: (bytes: string | Uint8Array) => void;
  /** Everything received so far. */
  readonly received: () => string;
  /** Resolves to everything received, when the other side has closed the connection. */
  readonly closed: Promise<string>;
  /** Resolves when the text received matches. */
  readonly receive: (pattern: RegExp) => Promise<string>;
  /** Ends without a goodbye, as a client that crashed. */
  readonly abort: () => void;
}

export async function connectRaw(url: string): Promise<RawConnection> {
  const { hostname, port } = new URL(url);
  let text = "";
  const waiting = new Set<() => void>();
  const { promise: closed, resolve: onClosed } = Promise.withResolvers<string>();
  const socket: Socket = await Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      data(_socket, bytes) {
        text += bytes.toString("latin1");
        for (const check of waiting) check();
      },
      close: () => onClosed(text),
      error: () => onClosed(text),
    },
  });
  return {
    send: (bytes) => void socket.write(bytes),
    received: () => text,
    closed,
    receive: (pattern) =>
      new Promise((resolve) => {
        const check = (): void => {
          if (!pattern.test(text)) return;
          waiting.delete(check);
          resolve(text);
        };
        waiting.add(check);
        check();
      }),
    abort: () => socket.terminate(),
  };
}

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
