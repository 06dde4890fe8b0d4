/**
 * The store's threads, and both ends of their message ports. The store thread only writes, so a slow sync delays
 * nothing else. The reader thread runs long reads.
 */

import { join } from "node:path";
import type { Writer } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import type { OnMigrate, StoreLimits } from "../../domain/store.ts";
import type { Create, Done, PlantWrite } from "../../domain/write.ts";
import {
  type Answer,
  createCaller,
  type Failed,
  fromFailed,
  onMessage,
  startThread,
  takeAll,
  toAnswer,
  toFailed,
} from "../../thread.ts";
import { fromShared, shareClock, toShared, within } from "../../tick.ts";
import { toExact } from "../journal.ts";
import type { CommitNotes } from "../write-queue.ts";
import {
  type Creates,
  isCreates,
  type Part,
  type SqliteWriter,
  toParts,
  type Write,
} from "./writer.ts";

export interface StoreLink {
  readonly writes: MessagePort;
  /**
   * Long reads, the journal and records, in the order in which they were asked for. With a port of its own a message may
   * wait behind dozens of another one: the runtime serves a busy port first.
   */
  readonly reads: MessagePort;
  readonly state: StoreState;
}

/** Shared by all threads. At DURABLE it is 1 once everything readable is on disk, at MOVED while the file is moved. */
type StoreState = Int32Array;
const DURABLE = 0;
export const MOVED = 1;
const STATE_LENGTH = 2;

export interface ThreadSetup {
  /** "open", "close", that of the clock, or the copy to make. The reader opens the store after the writer. */
  readonly orders: MessagePort;
  readonly path: string;
  readonly limits: StoreLimits;
  readonly ports: readonly MessagePort[];
  readonly state: StoreState;
}

/** `closeThreads` is for the thread that started them. */
export function callThreads(link: StoreLink, closeThreads?: () => Promise<void>) {
  const writes = createCaller(link.writes);
  const reads = createCaller(link.reads);
  return {
    async commit(
      group: readonly Write[],
      deadlineMs: number,
      notes?: CommitNotes,
    ): Promise<unknown[]> {
      const isNoted = notes !== undefined;
      const answered = await writes.ask(encodeGroup(group, deadlineMs, isNoted));
      if (!isNoted) return fromOutcomes(answered);
      const { outcomes, ...known } = answered as Noted;
      Object.assign(notes, known);
      return fromOutcomes(outcomes);
    },
    read: reads.ask,
    isMoved: (): boolean => Atomics.load(link.state, MOVED) === 1,
    get isDurable(): boolean {
      return Atomics.load(link.state, DURABLE) === 1;
    },
    close: () => {
      for (const caller of [writes, reads]) caller.close();
      return closeThreads?.();
    },
  };
}

/** Their number, if all were created: a list costs more to send. A single write of a commit may have failed. */
const toOutcomes = (outcomes: readonly unknown[]): unknown =>
  outcomes.every((outcome) => outcome === "created")
    ? outcomes.length
    : outcomes.map((outcome) => (outcome instanceof Error ? toFailed(outcome) : outcome));

const fromOutcomes = (sent: unknown): unknown[] =>
  typeof sent === "number"
    ? Array<Done>(sent).fill("created")
    : (sent as readonly unknown[]).map((outcome) =>
        typeof outcome === "object" && outcome !== null && "failure" in outcome
          ? fromFailed(outcome as Failed)
          : outcome,
      );

/** The answer to a group that asks for notes. */
type Noted = CommitNotes & { readonly outcomes: unknown };

/**
 * A line of JSON for the head and for each part: a fraction of the cost of objects. A part of creates is the text that
 * the journal keeps. The deadline is by the clock of this thread, and of the one that decodes it.
 */
export function encodeGroup(writes: readonly Write[], deadlineMs: number, isNoted = false): string {
  let text = JSON.stringify([toShared(deadlineMs), isNoted]);
  for (const part of toParts(writes)) {
    if (!isCreates(part)) text += `\n\n${JSON.stringify(part.map(createEncoder()))}`;
    else {
      const { count, characters, leased } = part;
      text += `\n${JSON.stringify([count, characters, leased])}\n${part.text}`;
    }
  }
  return text;
}

/** In place of the writer of the write before: those of a batch share one, which may be as long as the plant. */
const SAME = 0 as const;

/** JSON has no bigint, and one id is enough. */
function createEncoder() {
  let last: Writer | undefined;
  const plantToJson = (write: PlantWrite) => {
    const { id, plant } = write;
    const writer = write.writer !== undefined && write.writer === last ? SAME : write.writer;
    if (writer !== SAME && writer !== undefined) last = writer;
    const content = plant && { name: plant.name, tag: plant.tag };
    return { ...write, id: toExact(id), plant: content, writer };
  };
  return (write: Write) => {
    if (write.kind === "run") return write;
    if (write.kind === "atomic") return { ...write, writes: write.writes.map(plantToJson) };
    return plantToJson(write);
  };
}

type Encoded = ReturnType<ReturnType<typeof createEncoder>>;
type EncodedPlant = Extract<Encoded, { readonly id: unknown }>;

export function decodeGroup(text: string) {
  const [head = "", ...lines] = text.split("\n");
  const [deadlineMs, isNoted] = JSON.parse(head) as [number, boolean];
  const parts: Part[] = [];
  for (let at = 0; at < lines.length; at += 2) {
    const [facts = "", body = ""] = lines.slice(at, at + 2);
    if (facts === "") {
      parts.push((JSON.parse(body) as Encoded[]).map(createDecoder()) as Exclude<Write, Create>[]);
      continue;
    }
    const [count, characters, leased] = JSON.parse(facts) as [number, number, Writer | null];
    const values = JSON.parse(body) as Creates["values"];
    parts.push({ count, characters, leased: leased ?? undefined, values, text: body });
  }
  return { deadlineMs: fromShared(deadlineMs), isNoted, parts };
}

function createDecoder() {
  let last: Writer | undefined;
  const plantFromJson = (sent: EncodedPlant): PlantWrite => {
    const id = BigInt(sent.id);
    const writer = sent.writer === SAME ? last : sent.writer;
    last = writer ?? last;
    return { ...sent, id, writer, plant: sent.plant && { id, ...sent.plant } } as PlantWrite;
  };
  return (sent: Encoded): Write => {
    if (sent.kind === "run") return sent;
    if (sent.kind === "atomic") return { ...sent, writes: sent.writes.map(plantFromJson) };
    return plantFromJson(sent);
  };
}

/** On the store thread: drains all ports into one commit. */
export function serveWrites(writer: SqliteWriter, { ports, state }: ThreadSetup): void {
  const noteDurable = (): unknown => Atomics.store(state, DURABLE, writer.isDurable ? 1 : 0);
  noteDurable();
  for (const port of ports)
    onMessage(port, (first: string) => {
      const groups = [{ port, ...decodeGroup(first) }];
      // A caller has one request in flight, so its own port has no other.
      for (const from of ports.filter((other) => other !== port))
        for (const text of takeAll(from))
          groups.push({ port: from, ...decodeGroup(text as string) });
      const answers = commitTogether(writer, groups);
      noteDurable();
      for (const [index, group] of groups.entries()) group.port.postMessage(answers[index]);
    });
}

function commitTogether(
  writer: SqliteWriter,
  groups: readonly ReturnType<typeof decodeGroup>[],
): Answer[] {
  const committed = toAnswer(() => writer.commitAll(groups));
  if (!("value" in committed)) return groups.map(() => committed);
  const results = committed.value as ReturnType<SqliteWriter["commitAll"]>;
  return results.map((outcomes, index) => {
    if (outcomes === undefined) return toFailed(new Refusal("store_busy"));
    const value = toOutcomes(outcomes);
    if (!groups[index]?.isNoted) return { value };
    const writes = results.reduce((sum, each) => sum + (each?.length ?? 0), 0);
    return { value: { outcomes: value, writes, syncMs: writer.syncMs } };
  });
}

const CLOSE_MS_MAX = 2_000;

/** Resolves when the store is open, with a link for each HTTP thread. Rejects with a StoreOpenError. */
export async function startStoreThreads(
  path: string,
  limits: StoreLimits,
  httpThreads: number,
  onMigrate?: OnMigrate,
) {
  const bytes = STATE_LENGTH * Int32Array.BYTES_PER_ELEMENT;
  const state = new Int32Array(new SharedArrayBuffer(bytes));
  const start = (entry: string) => {
    const channels = Array.from({ length: httpThreads }, () => new MessageChannel());
    const ports = channels.map(({ port2 }) => port2);
    // A function cannot be sent to a thread.
    const plain = { ...limits, onCommit: undefined, tracing: undefined };
    const setup = { path, limits: plain, state, ports };
    // Asked before the service listens, and after it has stopped.
    const options = { isPolled: false, onMigrate };
    const thread = startThread(join(import.meta.dir, entry), setup, ports, options);
    return { ...thread, ports: channels.map(({ port1 }) => port1) };
  };
  // In parallel: starting a thread is slow.
  const writer = start("store-worker");
  const reader = start("reader-worker");
  let isClosing = false;
  try {
    await writer.ask("open");
    await shareClock(writer.ask);
    await reader.ask("open");
  } catch (error) {
    for (const thread of [reader, writer]) thread.end();
    throw error;
  }
  return {
    links: writer.ports.map((writes, index): StoreLink => ({
      writes,
      reads: reader.ports[index] as MessagePort,
      state,
    })),
    /** Calls back if a thread ends before it is closed. */
    onEnd: (fail: (error: unknown) => void): void => {
      for (const { ended } of [writer, reader]) ended.catch((error) => isClosing || fail(error));
    },
    /** Call it when no link is in use. The writer closes last, because the last connection checkpoints the WAL. */
    close: async (): Promise<void> => {
      isClosing = true;
      for (const thread of [reader, writer]) {
        await within(CLOSE_MS_MAX, thread.ask("close")).catch(() => undefined);
        thread.end();
      }
    },
  };
}
