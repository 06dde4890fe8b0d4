/** Bytes put together from pieces, however small: what is kept costs what it holds, and not an object a piece. */

const CAPACITY_MIN = 1024;

export class Bytes {
  private only: Uint8Array | undefined;
  private buffer = new Uint8Array();
  private used = 0;

  get length(): number {
    return this.only?.length ?? this.used;
  }

  /** Keeps a first piece itself, which must not change until all is taken; copies what comes behind it. */
  add(piece: Uint8Array): void {
    if (piece.length === 0) return;
    if (this.length === 0) {
      this.only = piece;
      return;
    }
    if (this.only !== undefined) {
      const first = this.only;
      this.only = undefined;
      this.append(first);
    }
    this.append(piece);
  }

  /** All of it; the next begins. */
  take(): Uint8Array {
    const taken = this.only ?? this.buffer.subarray(0, this.used);
    this.clear();
    return taken;
  }

  clear(): void {
    this.only = undefined;
    this.buffer = new Uint8Array();
    this.used = 0;
  }

  private append(piece: Uint8Array): void {
    const needed = this.used + piece.length;
    if (needed > this.buffer.length) {
      const grown = new Uint8Array(Math.max(needed, 2 * this.buffer.length, CAPACITY_MIN));
      grown.set(this.buffer.subarray(0, this.used));
      this.buffer = grown;
    }
    this.buffer.set(piece, this.used);
    this.used = needed;
  }
}
