/** Tells a barcode scanner from a person: a scanner types the whole code within a fraction of a second. */

/** A key as the browser reports it. Times come from the event, so a busy page does not stretch them. */
export interface TypedKey {
  readonly key: string;
  readonly atMs: number;
  /** The key is held down. */
  readonly isRepeat?: boolean;
  /** Ctrl, Alt or Meta is held down. */
  readonly isModified?: boolean;
}

/** `part`: perhaps of a scan. `end`: another key that ends the scan before it, as Enter and then a line feed. */
type Reading =
  | { readonly kind: "other" | "end" }
  | { readonly kind: "part"; readonly isFirst: boolean }
  | { readonly kind: "scan"; readonly code: string };

/** Scanners need 2 to 30 ms for a key, by Bluetooth the most. The fastest typists need 60 ms for a digit. */
const GAP_MS_MAX = 50;
/** Two or three keys may be struck almost at once, so a short code has to come faster. */
const SHORT_GAP_MS_MAX = 30;
const SHORT_DIGITS_MAX = 5;
/** A shorter code is text. Outside of fields it is searched for, and Enter opens it. */
const DIGITS_MIN = 3;
/** Some scanners end a code twice. */
const END_MS_MAX = 150;

/** Before the digits, some scanners send the kind of the code (AIM, as in "]E0") or up to three other characters. */
const SCAN = /^(?:\][A-Za-z]\d|[^\d-]{1,3})?(-?\d+)$/;

/** Whether the text of a code may be an id, as the camera reads it. */
export const isScan = (text: string): boolean => /^-?\d+$/.test(text);

const isHeld = (key: string): boolean =>
  ["Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock", "NumLock"].includes(key);

/** Enter or Tab, or the line feed that follows Enter on some scanners. */
const isEnd = ({ key, isModified = false }: TypedKey): boolean =>
  isModified ? /^[jm]$/i.test(key) : key === "Enter" || key === "Tab";

export class ScanReader {
  /** What was typed without a pause. */
  #text = "";
  #widestGapMs = 0;
  #lastMs = Number.NEGATIVE_INFINITY;
  #scannedMs = Number.NEGATIVE_INFINITY;
  /** Since the last pause there was a key that no scanner sends. */
  #isPerson = false;

  read(typed: TypedKey): Reading {
    const { key, atMs, isRepeat = false, isModified = false } = typed;
    if (isHeld(key)) return { kind: "other" };
    const gapMs = atMs - this.#lastMs;
    this.#lastMs = atMs;
    if (isEnd(typed)) return this.#finish(gapMs, atMs);
    if (gapMs > GAP_MS_MAX) this.#forget();
    this.#isPerson ||= isRepeat || isModified || key.length !== 1;
    if (this.#isPerson) return { kind: "other" };
    return this.#add(key, gapMs);
  }

  /** Scanners built into phones insert the whole code at once, without keys. */
  insert(text: string, atMs: number): Reading {
    this.#lastMs = atMs;
    this.#forget();
    return this.#add(text, 0);
  }

  /** The next key starts from nothing. */
  interrupt(): void {
    this.#forget();
    this.#isPerson = true;
  }

  #add(text: string, gapMs: number): Reading {
    const isFirst = this.#text === "";
    this.#text += text;
    if (!isFirst) this.#widestGapMs = Math.max(this.#widestGapMs, gapMs);
    return { kind: "part", isFirst };
  }

  #finish(gapMs: number, atMs: number): Reading {
    const [, code = ""] = SCAN.exec(this.#text) ?? [];
    const digits = code.replace("-", "").length;
    const gapMsMax = digits > SHORT_DIGITS_MAX ? GAP_MS_MAX : SHORT_GAP_MS_MAX;
    const isScanner = !this.#isPerson && Math.max(this.#widestGapMs, gapMs) <= gapMsMax;
    const isNothing = this.#text === "" && !this.#isPerson;
    this.#forget();
    if (digits >= DIGITS_MIN && isScanner) {
      this.#scannedMs = atMs;
      return { kind: "scan", code };
    }
    return { kind: isNothing && atMs - this.#scannedMs <= END_MS_MAX ? "end" : "other" };
  }

  #forget(): void {
    this.#text = "";
    this.#widestGapMs = 0;
    this.#isPerson = false;
  }
}
