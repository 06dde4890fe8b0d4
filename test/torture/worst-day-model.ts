/**
 * All timelines of a store, as a tree of moments, and what the files of its backups prove of them. It knows what was
 * written into each file, and reads which of it is still there. It uses nothing of the code that restores.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface Timeline {
  readonly number: number;
  readonly id: string;
  readonly after: number;
}

/** The store after a change. */
export interface Moment {
  readonly change: number;
  readonly parent: Moment | undefined;
  /** Several if changes were made without a journal. */
  readonly plants: string[];
  /** At the change, and then until the next. */
  readonly tokens: string[];
  readonly webhooks: string[];
  /** An append ended while it was the newest. */
  isAppended: boolean;
  readonly atMs: number;
}

/** A copy, or a segment: a file of one timeline. */
interface Piece {
  readonly timeline: string;
  readonly serial: number;
  /** All that was written into it. */
  readonly moments: Set<Moment>;
  /** Of a copy. */
  readonly hash?: bigint | number;
}

/** A record of a segment: the moments that follow a moment. */
interface Link {
  readonly piece: Piece;
  readonly after: Moment;
  readonly moments: readonly Moment[];
}

/** What is in the folder. */
interface Evidence {
  /** Whole ones. */
  readonly copies: readonly Piece[];
  readonly links: readonly Link[];
  /** Pieces of any state, with what they are known to have held. */
  readonly present: readonly { readonly piece: Piece; readonly held: ReadonlySet<Moment> }[];
  /** The numbers of timelines with a piece, and of timelines with a piece whose history can be read. */
  readonly numbers: ReadonlySet<number>;
  readonly readable: ReadonlySet<number>;
}

const NAME = /^plants-([0-9a-f]{16})-t(\d+)-s(\d+)-(\d{16})-(.+)\.(db|changes)(\.zst)?$/;
const HASHED_AT = 9;

export const nameParts = (name: string) => {
  const [, store, number, serial, change, rest = "", ending] = NAME.exec(name) ?? [];
  return store === undefined
    ? undefined
    : {
        store,
        number: Number(number),
        serial: Number(serial),
        change: Number(change),
        rest,
        ending,
      };
};

/** A checksum covers what the name says, up to the first change. */
const isWholeLine = (line: string, name: string): boolean => {
  const [sealed = ""] = /(?<=^plants)(-[0-9a-z]+){4}/.exec(name) ?? [];
  const crc = Bun.hash.crc32(sealed + line.slice(HASHED_AT));
  return `${crc.toString(16).padStart(8, "0")} ` === line.slice(0, HASHED_AT);
};

export function* ancestors(moment: Moment | undefined): Generator<Moment> {
  for (let one = moment; one !== undefined; one = one.parent) yield one;
}

export class Timelines {
  readonly place: string;
  store = "";
  /** The newest moment in the backups, by the id of its timeline. */
  readonly tips = new Map<string, Moment>();
  /** Every moment that was ever in the backups of a timeline. */
  readonly known = new Map<string, Set<Moment>>();
  readonly histories = new Map<string, readonly Timeline[]>();
  private readonly pieces = new Map<string, Piece>();
  private readonly links = new Map<string, Link>();
  private readonly headers = new Map<string, Piece>();
  private readonly sizes = new Map<string, number>();

  /** Where the last append ended. */
  noted: { readonly timeline: string; readonly moment: Moment } | undefined;

  constructor(place: string) {
    this.place = place;
  }

  /** A segment keeps its key when it is closed. */
  private keyOf(name: string): string {
    const key = /^.*-s\d+-\d{16}(?=-.*\.changes(\.zst)?$)/.exec(name)?.[0];
    return key ?? name;
  }

  /** Unpacked; nothing if that fails. */
  private readText(name: string): string {
    const bytes = readFileSync(join(this.place, name));
    try {
      return Buffer.from(name.endsWith(".zst") ? Bun.zstdDecompressSync(bytes) : bytes).toString();
    } catch {
      return "";
    }
  }

  findPiece(name: string): Piece | undefined {
    return this.pieces.get(this.keyOf(name));
  }

  private extend(timeline: string, tip: Moment): void {
    const known = this.known.get(timeline) ?? new Set();
    this.known.set(timeline, known);
    for (const moment of ancestors(tip)) known.add(moment);
    this.tips.set(timeline, tip);
  }

  noteCopy(name: string, history: readonly Timeline[], moment: Moment): void {
    const timeline = history.at(-1)?.id ?? "";
    const hash = Bun.hash(readFileSync(join(this.place, name)));
    const serial = nameParts(name)?.serial ?? 0;
    this.pieces.set(name, { timeline, serial, moments: new Set([moment]), hash });
    this.extend(timeline, moment);
  }

  /** A whole copy under another time is the same copy. */
  noteDouble(name: string, double: string): void {
    const piece = this.findPiece(name);
    const [one, other] = [name, double].map((each) => each.replace(/\d{8}T\d{6}Z/, ""));
    if (piece?.hash !== undefined && one === other) this.pieces.set(double, piece);
  }

  /** Reads what was written since the last time, by a store that is at this moment. */
  noteSegments(history: readonly Timeline[], tip: Moment): void {
    const timeline = history.at(-1)?.id ?? "";
    for (const name of readdirSync(this.place)) {
      if (!/\.changes(\.zst)?$/.test(name) || nameParts(name)?.store !== this.store) continue;
      const bytes = readFileSync(join(this.place, name));
      if (this.sizes.get(name) === bytes.length) continue;
      this.sizes.set(name, bytes.length);
      const key = this.keyOf(name);
      const lines = this.readText(name).split("\n");
      // Segments that are joined may be of an older timeline. The name of a lost one may be given again.
      const owner = this.findOwner(lines, name);
      const known = this.pieces.get(key);
      const isKnown = owner === undefined || known?.timeline === owner;
      const piece = (isKnown ? known : undefined) ?? {
        timeline: owner ?? timeline,
        serial: nameParts(name)?.serial ?? 0,
        moments: new Set(),
      };
      this.pieces.set(key, piece);
      const newest = piece.timeline === timeline ? tip : this.tips.get(piece.timeline);
      const byChange = new Map([...ancestors(newest)].map((one) => [one.change, one]));
      for (const line of lines) {
        const id = `${piece.timeline} ${line}`;
        if (this.links.has(id) || this.headers.has(id) || !isWholeLine(line, name)) continue;
        const record = JSON.parse(line.slice(HASHED_AT)) as Record<string, unknown>;
        if ("segment" in record) this.headers.set(id, piece);
        const after = byChange.get(Number(record["after"]));
        if (after !== undefined && !this.tips.has(timeline)) this.extend(timeline, after);
        if (!("entries" in record) || after === undefined) continue;
        const last = byChange.get(Number(record["last"]));
        const moments = [...ancestors(last)].filter(({ change }) => change > after.change);
        this.links.set(id, { piece, after, moments: moments.toReversed() });
        for (const moment of moments) piece.moments.add(moment);
        // A store that was rolled back gives numbers again, and continues if what had them is unreadable.
        const chain = ancestors(this.tips.get(piece.timeline));
        if (last !== undefined && !chain.some((one) => one === last))
          this.extend(piece.timeline, last);
      }
    }
  }

  /** The id of the timeline that the header names. */
  private findOwner([line = ""]: readonly string[], name: string): string | undefined {
    if (!isWholeLine(line, name)) return undefined;
    const header = JSON.parse(line.slice(HASHED_AT)) as { timelines?: readonly Timeline[] };
    return header.timelines?.at(-1)?.id;
  }

  /** The files were changed by hand: what is in them now was not written by the store. */
  noteDamage(): void {
    this.sizes.clear();
    for (const name of readdirSync(this.place))
      this.sizes.set(name, readFileSync(join(this.place, name)).length);
  }

  examine(): Evidence {
    const copies: Piece[] = [];
    const links: Link[] = [];
    const present: { piece: Piece; held: ReadonlySet<Moment> }[] = [];
    const [numbers, readable] = [new Set<number>(), new Set<number>()];
    for (const name of readdirSync(this.place)) {
      const parts = nameParts(name);
      if (parts?.store !== this.store) continue;
      numbers.add(parts.number);
      const piece = this.findPiece(name);
      if (piece === undefined) continue;
      const bytes = readFileSync(join(this.place, name));
      if (piece.hash !== undefined) {
        present.push({ piece, held: piece.moments });
        if (Bun.hash(bytes) !== piece.hash) continue;
        readable.add(parts.number);
        copies.push(piece);
        continue;
      }
      const lines = this.readText(name).split("\n");
      const found = lines
        .map((line) => this.links.get(`${piece.timeline} ${line}`))
        .flatMap((link) => (link?.piece === piece ? [link] : []));
      links.push(...found);
      if (lines.some((line) => this.headers.get(`${piece.timeline} ${line}`) === piece))
        readable.add(parts.number);
      // A file that grows, cut between two records, looks as if it had never had more than what is left.
      const isCutClean =
        parts.rest === "open" &&
        bytes.length > 0 &&
        lines.at(-1) === "" &&
        lines.slice(0, -1).every((line) => isWholeLine(line, name));
      const left = new Set(found.flatMap(({ moments }) => moments));
      present.push({ piece, held: isCutClean ? left : piece.moments });
    }
    return { copies, links, present, numbers, readable };
  }

  chainOf(timeline: string): readonly Moment[] {
    return [...ancestors(this.tips.get(timeline))].toReversed();
  }

  /** The last change that the timeline at this place of a history shares with all after it. */
  private endOf(history: readonly Timeline[], index: number): number {
    return Math.min(...history.slice(index + 1).map(({ after }) => after), Infinity);
  }

  private findEnd(history: readonly Timeline[], piece: Piece): number {
    const index = history.findIndex(({ id }) => id === piece.timeline);
    return index === -1 ? -1 : this.endOf(history, index);
  }

  /** The moments of a timeline that whole pieces lead to, in order. */
  findProvable(timeline: string, evidence: Evidence): readonly Moment[] {
    const history = this.histories.get(timeline) ?? [];
    const chain = this.chainOf(timeline);
    const onChain = new Set(chain);
    const proven = new Set<Moment>();
    for (const piece of evidence.copies)
      for (const moment of piece.moments)
        if (onChain.has(moment) && moment.change <= this.findEnd(history, piece))
          proven.add(moment);
    const links = evidence.links.map((link) => ({
      ...link,
      end: this.findEnd(history, link.piece),
    }));
    for (const moment of chain) {
      if (!proven.has(moment)) continue;
      // A moment inside a record is a start too: what comes before it is known.
      for (const { after, moments, end } of links) {
        if (after !== moment && !moments.includes(moment)) continue;
        for (const one of moments) {
          if (one.change <= moment.change) continue;
          if (!onChain.has(one) || one.change > end) break;
          proven.add(one);
        }
      }
    }
    return chain.filter((moment) => proven.has(moment));
  }

  /** The last change up to `target` that a piece in the folder is known to have held, or that the writer noted. */
  findEvidenced(timeline: string, { present }: Evidence, target: number): number {
    const history = this.histories.get(timeline) ?? [];
    const onChain = new Set(this.chainOf(timeline));
    let furthest = 0;
    const note = (moment: Moment, end: number): void => {
      if (onChain.has(moment) && moment.change <= end) furthest = Math.max(furthest, moment.change);
    };
    for (const { piece, held } of present) {
      const end = Math.min(target, this.findEnd(history, piece));
      for (const moment of held) note(moment, end);
    }
    if (this.noted?.timeline === timeline) note(this.noted.moment, target);
    return furthest;
  }
}
