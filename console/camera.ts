/** Reads barcodes from pictures, for browsers that don't. A separate bundle, loaded on demand. */

// The package's index would bundle all its formats.
import BinaryBitmap from "@zxing/library/esm/core/BinaryBitmap.js";
import HybridBinarizer from "@zxing/library/esm/core/common/HybridBinarizer.js";
import DecodeHintType from "@zxing/library/esm/core/DecodeHintType.js";
import Code128Reader from "@zxing/library/esm/core/oned/Code128Reader.js";
import EAN13Reader from "@zxing/library/esm/core/oned/EAN13Reader.js";
import QRCodeReader from "@zxing/library/esm/core/qrcode/QRCodeReader.js";
import type Reader from "@zxing/library/esm/core/Reader.js";
import RGBLuminanceSource from "@zxing/library/esm/core/RGBLuminanceSource.js";

const hints = new Map([[DecodeHintType.TRY_HARDER, true]]);
const readers: readonly Reader[] = [new QRCodeReader(), new EAN13Reader(), new Code128Reader()];

/** The text of a QR code, EAN-13 or Code 128 in the picture; undefined if there is none. */
export function readCode({ data, width, height }: ImageData): string | undefined {
  const luminances = new Uint8ClampedArray(width * height);
  for (let at = 0; at < luminances.length; at++) {
    const [red = 0, green = 0, blue = 0] = [data[at * 4], data[at * 4 + 1], data[at * 4 + 2]];
    luminances[at] = (red + 2 * green + blue) / 4;
  }
  const source = new RGBLuminanceSource(luminances, width, height);
  for (const reader of readers) {
    try {
      return reader.decode(new BinaryBitmap(new HybridBinarizer(source)), hints).getText();
    } catch {
      // It throws if it finds nothing.
      reader.reset();
    }
  }
  return undefined;
}
