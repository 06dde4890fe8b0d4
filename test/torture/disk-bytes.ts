/** The content of a file that is written to in place. */

export class Bytes {
  private buffer: Buffer;
  private used: number;

  constructor(content: Buffer) {
    this.buffer = Buffer.from(content);
    this.used = content.length;
  }

  get length(): number {
    return this.used;
  }

  /** Past the end, what lies between is zero, as in any file. */
  write(offset: number, data: Uint8Array): void {
    this.reserve(offset + data.length);
    this.buffer.set(data, offset);
    this.used = Math.max(this.used, offset + data.length);
  }

  truncate(length: number): void {
    this.reserve(length);
    this.buffer.fill(0, Math.min(length, this.used), this.used);
    this.used = length;
  }

  clone(): Bytes {
    return new Bytes(this.buffer.subarray(0, this.used));
  }

  toBuffer(): Buffer {
    return this.buffer.subarray(0, this.used);
  }

  /** Whatever is behind the end is zero. */
  private reserve(length: number): void {
    if (length <= this.buffer.length) return;
    const larger = Buffer.alloc(Math.max(length, this.buffer.length * 2));
    this.buffer.copy(larger, 0, 0, this.used);
    this.buffer = larger;
  }
}
