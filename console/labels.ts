/** Codes for printed labels, as SVG paths. A separate bundle, loaded on demand. */

import { encode } from "uqr";

/** In modules, the smallest unit of a code, with the quiet zone that scanners need. */
export interface Code {
  readonly width: number;
  readonly height: number;
  readonly path: string;
}

const QR_QUIET = 4;

/** A QR code that still reads with 15 % of it damaged. */
export function drawQr(text: string): Code {
  const { data, size } = encode(text, { ecc: "M", border: QR_QUIET });
  const rows = data.map((row, y) =>
    row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : "")).join(""),
  );
  return { width: size, height: size, path: rows.join("") };
}

/** Widths of bars and spaces, by value. The last is the stop. */
const CODE_128 =
  "212222 222122 222221 121223 121322 131222 122213 122312 132212 221213 221312 231212 112232 122132 122231 113222 " +
  "123122 123221 223211 221132 221231 213212 223112 312131 311222 321122 321221 312212 322112 322211 212123 212321 " +
  "232121 111323 131123 131321 112313 132113 132311 211313 231113 231311 112133 112331 132131 113123 113321 133121 " +
  "313121 211331 231131 213113 213311 213131 311123 311321 331121 312113 312311 332111 314111 221411 431111 111224 " +
  "111422 121124 121421 141122 141221 112214 112412 122114 122411 142112 142211 241211 221114 413111 241112 134111 " +
  "111242 121142 121241 114212 124112 124211 411212 421112 421211 212141 214121 412121 111143 111341 131141 114113 " +
  "114311 411113 411311 113141 114131 311141 411131 211412 211214 211232 2331112";
const patterns = CODE_128.split(" ");
const [TO_C, START_B, START_C, STOP] = [99, 104, 105, 106];
const CODE_128_QUIET = 10;

/** Code 128 of an integer: pairs of digits in set C, after a sign or an odd digit in set B. */
function encodeCode128(integer: string): number[] {
  const [, head = "", pairs = ""] = /^(-?\d?)((?:\d\d)*)$/.exec(integer) ?? [];
  const values =
    head === "" ? [START_C] : [START_B, ...Array.from(head, (each) => each.charCodeAt(0) - 32)];
  if (head !== "" && pairs !== "") values.push(TO_C);
  for (const [pair] of pairs.matchAll(/\d\d/g)) values.push(Number(pair));
  const sum = values.reduce((total, value, at) => total + value * Math.max(1, at), 0);
  return [...values, sum % 103, STOP];
}

/** The height is one module; the label stretches it. */
export function drawCode128(integer: string): Code {
  let x = CODE_128_QUIET;
  let path = "";
  const widths = encodeCode128(integer).flatMap((value) =>
    Array.from(patterns[value] ?? "", Number),
  );
  for (const [at, width] of widths.entries()) {
    if (at % 2 === 0) path += `M${x} 0h${width}v1h-${width}z`;
    x += width;
  }
  return { width: x + CODE_128_QUIET, height: 1, path };
}
