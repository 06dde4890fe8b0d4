/**
 * One writer for a store and a place. The lease is a part of the note, which is replaced only if it is still the one
 * that was read.
 */

import { randomBytes } from "node:crypto";
import { statSync } from "node:fs";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { nameNote, type Note, parseNote } from "./names.ts";
import type { Place, Source } from "./place.ts";
import { hasEnded, nameProcess, readBoot } from "./scratch.ts";

/** A writer that writes renews its lease this often, and loses it after three times as long. */
const RENEW_MS = 20_000;
const LOST_MS = 3 * RENEW_MS;
/** How often a note is replaced by others while this one takes the lease. */
const TAKES_MAX = 3;

/** The note as this writer knows it. */
interface Known {
  readonly text: string;
  readonly isOwn: boolean;
  /** When it was written by this writer, or first seen. */
  readonly sinceMs: number;
  /** When it was read last. */
  readonly readMs: number;
}

export class Lease {
  private readonly source: Source;
  private readonly place: Place;
  private readonly name: string;
  private known: Known | undefined;

  /** `before` is the one that this writer had in an earlier connection. */
  constructor(source: Source, place: Place, store: string, before: Lease | undefined) {
    this.source = source;
    this.place = place;
    this.name = nameNote(store);
    this.known = before?.known;
  }

  /** Call it before each write: rejects if another service has the lease by now. */
  async hold(): Promise<void> {
    const { known } = this;
    const freshMs = performance.now() - RENEW_MS;
    if (known?.isOwn === true && known.sinceMs > freshMs) {
      if (known.readMs > freshMs) return;
      // A server that ignores conditions lets another writer replace the note unseen.
      const readMs = performance.now();
      const text = await this.place.readNote(this.name);
      if (text === known.text) return void (this.known = { ...known, readMs });
    }
    await this.take();
  }

  /**
   * A copied store file has the same identity, so the holder is a file on a machine. A holder that is silent loses the
   * lease after a while, by our clock, or at once if its process has ended. A service that starts takes the lease of an
   * earlier one on the same file at once; if that one still runs, it gives way. A writer without anything to write is
   * silent, and asks again before it writes. Resolves to the note that it found.
   */
  async take(): Promise<Note> {
    const { place, known } = this;
    const nowMs = performance.now();
    const own = this.describeHolder();
    for (let tries = 0; tries < TAKES_MAX; tries++) {
      const text = await place.readNote(this.name);
      const note = parseNote(text);
      const isSameFile = note.holder === own.holder || note.file === own.file;
      const isFree =
        note.holder === undefined ||
        note.instance === own.instance ||
        (known === undefined && isSameFile) ||
        (note.process !== undefined && isOfMachine(note) && hasEnded(note.process) === true);
      if (!isFree) {
        const sinceMs = known?.text === text ? (known?.sinceMs ?? nowMs) : nowMs;
        this.known = { text: text ?? "", isOwn: false, sinceMs, readMs: nowMs };
        if (nowMs - sinceMs < LOST_MS)
          throw new StoreOpenError(
            `Another service writes the backups of this store to ${place.url}: ${note.holder}. This one writes none. If the other one is gone, this one takes over after ${LOST_MS / 1000} seconds.`,
          );
      }
      const taken = JSON.stringify({ ...note, ...own });
      if (await this.replace(text, taken, nowMs)) return note;
    }
    throw contested(place);
  }

  /** Writes what is in the place into the note. */
  note = (facts: Note): Promise<void> => this.write({ ...this.describeHolder(), ...facts });

  /** The same, and another service may write at once. */
  giveUp = (facts: Note): Promise<void> => this.write(facts);

  private async write(note: Note): Promise<void> {
    await this.hold();
    const text = JSON.stringify(note);
    if (await this.replace(this.known?.text, text)) return;
    // It was removed, or another service took the lease: then this throws.
    await this.take();
    if (!(await this.replace(this.known?.text, text))) throw contested(this.place);
  }

  private async replace(
    before: string | undefined,
    text: string,
    readMs = this.known?.readMs ?? Number.NEGATIVE_INFINITY,
  ): Promise<boolean> {
    const sinceMs = performance.now();
    if (!(await this.place.writeNote(this.name, text, before))) return false;
    this.known = { text, isOwn: true, sinceMs, readMs };
    return true;
  }

  private describeHolder() {
    const { from, instance } = this.source;
    const { ino, birthtimeNs } = statSync(from, { bigint: true });
    return {
      holder: `${hostname()}:${resolve(from)}`,
      // The same file may be seen under another name, as by a container that was created again.
      file: `${ino}-${birthtimeNs}`,
      instance,
      boot: readBoot(),
      process: nameProcess(),
      beat: randomBytes(6).toString("hex"),
    };
  }
}

/** A process of another machine cannot be seen, and its id says nothing here. */
const isOfMachine = ({ boot }: Note): boolean => boot !== undefined && boot === readBoot();

const contested = ({ url }: Place): StoreOpenError =>
  new StoreOpenError(`Another service takes the lease in ${url} at this moment.`);
