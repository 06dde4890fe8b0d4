/** A store that cannot be opened, in words for the person who wants to. */

export class StoreOpenError extends Error {
  override readonly name = "StoreOpenError";
}
