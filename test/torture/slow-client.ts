/** Clients that never come to an end, and the ways in which they do not. */

import type { Socket } from "bun";
import { TEST_TOKEN } from "../support/service.ts";

const TRICKLE_MS = 250;

const CREDENTIALS = `Host: plants.example\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n`;
const POST = `POST /plants HTTP/1.1\r\n${CREDENTIALS}Content-Type: application/json\r\n`;

const EXPORT = `GET /plants HTTP/1.1\r\n${CREDENTIALS}Accept: application/x-ndjson\r\n\r\n`;

interface Habit {
  readonly name: string;
  /** Sent at once. */
  readonly start: string;
  /** Sent byte by byte, over and over. */
  readonly trickle: string;
  /** Reads for a moment each so many milliseconds. */
  readonly readsEveryMs?: number;
  /** As long as it takes something it may stay. */
  readonly mayStay?: true;
  /** What the last words to it must be; undefined where none are promised. */
  readonly farewell?: RegExp;
}

export const habits: readonly Habit[] = [
  { name: "a head that trickles", start: POST, trickle: "X-Slow: a\r\n" },
  { name: "a head that stops", start: POST, trickle: "" },
  { name: "nothing at all", start: "", trickle: "" },
  {
    name: "a body that trickles",
    start: `${POST}Content-Length: 500\r\n\r\n{"id":-1,"name":"`,
    trickle: "slow",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
  {
    name: "chunks that trickle",
    start: `${POST}Transfer-Encoding: chunked\r\n\r\n`,
    trickle: "1\r\n \r\n",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
  {
    name: "a body that stops",
    start: `${POST}Content-Length: 500\r\n\r\n{"id":-1,`,
    trickle: "",
    farewell: /^HTTP\/1\.1 408 [^]*"error":4008/,
  },
];

/** Fewer, because the buffers of each take megabytes of the system's. */
export const readers: readonly Habit[] = [
  {
    name: "an export that is hardly read",
    start: EXPORT,
    trickle: "",
    readsEveryMs: 2_000,
    mayStay: true,
  },
  { name: "an export that nobody reads", start: EXPORT, trickle: "", readsEveryMs: Infinity },
];

export interface SlowClient {
  readonly habit: Habit;
  readonly closed: Promise<void>;
  isOpen: boolean;
  /** The beginning of all that came. */
  text: string;
  abandon: () => void;
  readOn: () => void;
}

export async function openSlowly(
  url: string,
  count: number,
  among: readonly Habit[],
): Promise<SlowClient[]> {
  const { hostname, port } = new URL(url);
  const clients: SlowClient[] = [];
  for (let nth = 0; nth < count; nth++) {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const habit = among[nth % among.length] as Habit;
    const client: SlowClient = {
      habit,
      closed,
      isOpen: true,
      text: "",
      abandon: () => undefined,
      readOn: () => undefined,
    };
    let timer: Timer | undefined;
    let readsOn = false;
    const end = (): void => {
      clearInterval(timer);
      client.isOpen = false;
      resolve();
    };
    const socket: Socket = await Bun.connect({
      hostname,
      port: Number(port),
      socket: {
        data(reading, bytes) {
          if (client.text.length < 1_000) client.text += bytes.toString("latin1", 0, 1_000);
          if (habit.readsEveryMs !== undefined && !readsOn) reading.pause();
        },
        close: end,
        error: end,
      },
    });
    client.abandon = () => socket.terminate();
    client.readOn = () => {
      readsOn = true;
      socket.resume();
    };
    socket.write(habit.start);
    let at = 0;
    let ticks = 0;
    timer = setInterval(() => {
      if (habit.trickle !== "") socket.write(habit.trickle[at++ % habit.trickle.length] ?? "");
      if ((++ticks * TRICKLE_MS) % (habit.readsEveryMs ?? Infinity) === 0) socket.resume();
    }, TRICKLE_MS);
    clients.push(client);
  }
  return clients;
}
