/** Files that cannot be read to their end, or not at all, whatever their single records are like. */

export class MalformedFile extends Error {
  override readonly name = "MalformedFile";
}

/** A table whose heading lacks a column that was asked for. */
export class MissingColumn extends Error {
  override readonly name = "MissingColumn";
}
