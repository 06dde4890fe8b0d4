/** Bytes in pieces, as the runtime may hand them out: in the same memory again and again. */

export async function* inPieces(bytes: Uint8Array, length: number): AsyncGenerator<Uint8Array> {
  const memory = new Uint8Array(length);
  for (let start = 0; start < bytes.length; start += length) {
    const piece = bytes.subarray(start, start + length);
    memory.set(piece);
    yield memory.subarray(0, piece.length);
  }
}
