/** Connections of clients that write requests by hand. */

import type { Socket } from "bun";
import { TEST_TOKEN } from "../support/service.ts";
import { takeAnswer, type WireAnswer } from "../support/wire.ts";

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
  #settle: ((answer: WireAnswer | undefined) => void) | undefined;
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
  ask(request: string | Uint8Array): Promise<WireAnswer | undefined> {
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
      let taken = takeAnswer(this.#text, { toHead: this.#toHead, hasEnded });
      // 100 Continue.
      while (taken !== undefined && taken.answer.status < 200)
        taken = takeAnswer(taken.rest, { toHead: this.#toHead, hasEnded });
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

/** The text of a body, which is UTF-8. */
export const readBody = ({ body }: WireAnswer): string =>
  Buffer.from(body, "latin1").toString("utf8");

export const endsConnection = ({ headers }: WireAnswer): boolean =>
  headers.get("connection") === "close";
