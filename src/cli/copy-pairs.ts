/** Two stores walked in step: for each id that either of them has, what both have under it. */

import type { Plant } from "../domain/plant.ts";
import type { Side } from "./copy-side.ts";

export type Pair = { readonly id: bigint } & (
  | { readonly from: Plant; readonly to: Plant | undefined }
  | { readonly from: undefined; readonly to: Plant }
);

/** In the order of ids, and in blocks that hold no more than a page of each. */
export async function* pairUp(from: Side, to: Side): AsyncGenerator<readonly Pair[]> {
  const [ours, theirs] = [new Walk(from), new Walk(to)];
  for (;;) {
    await Promise.all([ours.getReady(), theirs.getReady()]);
    if (ours.current === undefined && theirs.current === undefined) return;
    yield takePairs(ours, theirs);
  }
}

/** Ends where either of them has to turn a page. */
function takePairs(ours: Walk, theirs: Walk): Pair[] {
  const pairs: Pair[] = [];
  while (!ours.isPageOver && !theirs.isPageOver) {
    const [from, to] = [ours.current, theirs.current];
    if (from !== undefined && (to === undefined || from.id <= to.id)) {
      const isBoth = from.id === to?.id;
      pairs.push({ id: from.id, from, to: isBoth ? to : undefined });
      ours.advance();
      if (isBoth) theirs.advance();
    } else if (to !== undefined) {
      pairs.push({ id: to.id, from: undefined, to });
      theirs.advance();
    } else break;
  }
  return pairs;
}

class Walk {
  private readonly side: Side;
  private plants: readonly Plant[] = [];
  private position = 0;
  private after: bigint | undefined;
  private hasMore = true;

  constructor(side: Side) {
    this.side = side;
  }

  /** Undefined where the page, or all, is over. */
  get current(): Plant | undefined {
    return this.plants[this.position];
  }

  /** There is a page to turn. */
  get isPageOver(): boolean {
    return this.current === undefined && this.hasMore;
  }

  advance(): void {
    this.position++;
  }

  async getReady(): Promise<void> {
    while (this.isPageOver) {
      const { plants, next } = await this.side.readPage(this.after);
      [this.plants, this.position] = [plants, 0];
      this.after = next;
      this.hasMore = next !== undefined;
    }
  }
}
