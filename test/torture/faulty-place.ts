/** A folder of backups that is full, hangs, or sees the end of the service, at any operation. */

import { appendFileSync, existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type GrowingFile, openPlace, type Place } from "../../src/backup/place.ts";
import type { Random } from "../support/random.ts";

type Kind = "full" | "kill" | "hang";

/** Part of a write, before it, or after it. */
type When = "before" | "during" | "after";

const NO_SPACE = Object.assign(new Error("ENOSPC: no space left on device, write"), {
  code: "ENOSPC",
});

/** What happens to the operations of one thread in its place. */
export class Trouble {
  /** The service was killed: nothing it does has an effect. */
  isDead = false;
  /** What it left behind is less than a whole record, or a file without its header. */
  hasTorn = false;
  /** What was done last, for the log. */
  last = "";
  private readonly random: Random;
  /** A bucket has whole objects only. */
  private readonly isBucket: boolean;
  private pending: { readonly kind: Kind; left: number; times: number } | undefined;
  private readonly staged: string[] = [];
  private hung = Promise.withResolvers<void>();
  private released = Promise.withResolvers<void>();

  constructor(random: Random, isBucket: boolean) {
    this.random = random;
    this.isBucket = isBucket;
  }

  /** Strikes at one of the next operations. A full disk stays full for some. */
  arm(kind: Kind): void {
    const times = kind === "full" ? 1 + this.random.below(3) : 1;
    this.pending = { kind, left: this.random.below(kind === "hang" ? 6 : 10), times };
    this.hung = Promise.withResolvers();
    this.released = Promise.withResolvers();
  }

  disarm(): void {
    this.pending = undefined;
    this.released.resolve();
  }

  /** Resolves when an operation hangs, until `disarm`. */
  get whenHung(): Promise<void> {
    return this.hung.promise;
  }

  /** A killed service removes nothing. */
  leaveStaged(): void {
    for (const path of this.staged)
      if (existsSync(dirname(path))) writeFileSync(path, "left behind");
    this.staged.length = 0;
  }

  readonly open = async (url: string, scratch: string): Promise<Place> => {
    const place = await openPlace(url, scratch);
    const { grow, ...rest } = place;
    const asked = async <Result>(
      name: string,
      isWrite: boolean,
      perform: () => Promise<Result>,
    ) => {
      const when = await this.strike(name, isWrite);
      if (when === undefined) return perform();
      if (when === "after") await perform();
      throw this.failure();
    };
    return {
      ...rest,
      list: () => asked("list", false, () => place.list()),
      fetch: (name) => asked("fetch", false, () => place.fetch(name)),
      stage: (prefix) => {
        this.refuseDead();
        const path = place.stage(prefix);
        this.staged.push(path);
        return path;
      },
      keep: (staged, name) =>
        asked("keep", true, async () => {
          const bytes = await place.keep(staged, name);
          // A killed service may leave it beside the piece.
          if (!this.isDead || this.isBucket || this.random.chance(50)) this.staged.length = 0;
          return bytes;
        }).catch((error: unknown) => {
          // A bucket's own file is not left behind, unless its process is killed.
          if (this.isBucket) rmSync(staged, { force: true });
          throw error;
        }),
      remove: (name) => asked("remove", false, () => place.remove(name)),
      sweep: (prefix, except) => asked("sweep", false, () => place.sweep(prefix, except)),
      readNote: (name) => asked("readNote", false, () => place.readNote(name)),
      writeNote: (name, ...texts) =>
        asked("writeNote", true, () => place.writeNote(name, ...texts)).catch((error: unknown) => {
          if (this.isDead && !this.isBucket) this.staged.push(join(url, `${name}.left.tmp`));
          throw error;
        }),
      ...(grow !== undefined &&
        !this.isBucket && {
          grow: (name: string) => this.growIn(url, name, () => grow(name)),
        }),
    };
  };

  private failure(): Error {
    return this.isDead ? new Error("killed") : NO_SPACE;
  }

  private refuseDead(): void {
    if (this.isDead) throw this.failure();
  }

  private take(name: string, isWrite: boolean): Kind | undefined {
    this.refuseDead();
    const { pending } = this;
    if (pending === undefined || (pending.kind === "full" && !isWrite) || pending.left-- > 0)
      return undefined;
    if (--pending.times === 0) this.pending = undefined;
    this.last = `${pending.kind} at ${name}`;
    return pending.kind;
  }

  private async strike(name: string, isWrite: boolean): Promise<When | undefined> {
    const kind = this.take(name, isWrite);
    if (kind === undefined) return undefined;
    if (kind === "hang") {
      this.hung.resolve();
      await this.released.promise;
      this.refuseDead();
      return undefined;
    }
    if (kind === "full") return "before";
    this.isDead = true;
    return this.random.pick(["before", "after"] as const);
  }

  /** These operations are synchronous, so they cannot hang here. */
  private strikeNow(name: string): When | undefined {
    const kind = this.pending?.kind === "hang" ? undefined : this.take(name, true);
    if (kind === undefined) return undefined;
    if (kind === "kill") this.isDead = true;
    return kind === "full" ? "during" : this.random.pick(["before", "during", "after"] as const);
  }

  private growIn(folder: string, name: string, grow: () => GrowingFile): GrowingFile {
    const when = this.strikeNow("grow");
    if (when !== undefined) {
      // Its header is written next.
      this.hasTorn ||= when !== "before";
      if (when !== "before") grow().close();
      throw this.failure();
    }
    const file = grow();
    let isEmpty = true;
    return {
      path: file.path,
      append: (text) => {
        const moment = this.strikeNow("append");
        this.hasTorn ||= isEmpty && moment !== undefined;
        isEmpty = false;
        if (moment === "during" && text !== "") {
          const bytes = Buffer.from(text);
          appendFileSync(join(folder, name), bytes.subarray(0, this.random.below(bytes.length)));
          this.hasTorn = true;
        }
        if (moment === undefined || moment === "after") file.append(text);
        if (moment !== undefined) throw this.failure();
      },
      close: () => file.close(),
    };
  }
}
