/** A bare TCP connection: what a client library would never send, byte by byte. */

import type { Socket } from "bun";

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
