/** A camera of the test browser, which shows what a test holds before it: Chromium reads a video (YUV4MPEG2). */

import { makeTemporaryFolder } from "./folder.ts";
import { guardFolder } from "./processes.ts";
import { drawCode128, drawQr } from "../../console/labels.ts";

const folder = makeTemporaryFolder().path;
guardFolder(folder);
const VIDEO = `${folder}/camera.y4m`;

export const cameraFlags: readonly string[] = [
  // The headless shell has nothing else that could allow a camera.
  "--use-fake-ui-for-media-stream",
  "--use-fake-device-for-media-stream",
  `--use-file-for-fake-video-capture=${VIDEO}`,
];

const [WIDTH, HEIGHT] = [640, 480];
const [DARK, LIGHT, GREY] = [16, 235, 128];

/** Dark modules: whether the one at this place is dark. */
type Picture = (x: number, y: number) => boolean;

/** A path as our labels have it: rectangles with their corner, width and height. */
function rasterize(path: string): Picture {
  const dark = new Set<string>();
  for (const [, x, y, width] of path.matchAll(/M(\d+) (\d+)h(\d+)/g))
    for (let at = 0; at < Number(width); at++) dark.add(`${Number(x) + at} ${y}`);
  return (x, y) => dark.has(`${x} ${y}`);
}

const EAN_LEFT =
  "0001101 0011001 0010011 0111101 0100011 0110001 0101111 0111011 0110111 0001011".split(" ");
/** Which of the six left digits have the other parity, by the first digit. */
const EAN_FIRST = "LLLLLL LLGLGG LLGGLG LLGGGL LGLLGG LGGLLG LGGGLL LGLGLG LGLGGL LGGLGL".split(
  " ",
);
const turn = (bits: string): string =>
  Array.from(bits, (bit) => (bit === "1" ? "0" : "1")).join("");

function encodeEan13(code: string): string {
  const digits = Array.from(code, Number);
  const bitsOf = (digit: number | undefined): string => EAN_LEFT[digit ?? 0] ?? "";
  const parity = EAN_FIRST[digits[0] ?? 0] ?? "";
  const left = digits.slice(1, 7).map((digit, at) => {
    const bits = bitsOf(digit);
    return parity[at] === "L" ? bits : Array.from(turn(bits)).toReversed().join("");
  });
  const right = digits.slice(7).map((digit) => turn(bitsOf(digit)));
  return `101${left.join("")}01010${right.join("")}101`;
}

const kinds = {
  "QR code": (text: string) => {
    const { width, height, path } = drawQr(text);
    return { width, height, isDark: rasterize(path) };
  },
  "Code 128": (text: string) => {
    const { width, path } = drawCode128(text);
    const isDark = rasterize(path);
    return { width, height: 40, isDark: (x: number) => isDark(x, 0) };
  },
  "EAN-13": (text: string) => {
    const bits = encodeEan13(text);
    const quiet = 10;
    const isDark: Picture = (x) => bits[x - quiet] === "1";
    return { width: bits.length + 2 * quiet, height: 40, isDark };
  },
} as const;

type CodeKind = keyof typeof kinds;

/** From now on a camera that is opened sees this code, in the middle of a light desk. */
export async function holdBeforeCamera(kind: CodeKind, text: string): Promise<void> {
  const { width, height, isDark } = kinds[kind](text);
  const scale = Math.floor(Math.min((WIDTH * 0.8) / width, (HEIGHT * 0.8) / height));
  const [left, top] = [(WIDTH - width * scale) >> 1, (HEIGHT - height * scale) >> 1];
  const bright = Buffer.alloc(WIDTH * HEIGHT, LIGHT);
  for (let y = 0; y < height * scale; y++)
    for (let x = 0; x < width * scale; x++)
      if (isDark(Math.floor(x / scale), Math.floor(y / scale)))
        bright[(top + y) * WIDTH + left + x] = DARK;
  const colour = Buffer.alloc((WIDTH * HEIGHT) / 2, GREY);
  const frame = Buffer.concat([Buffer.from("FRAME\n"), bright, colour]);
  const head = Buffer.from(`YUV4MPEG2 W${WIDTH} H${HEIGHT} F10:1 Ip A1:1 C420jpeg\n`);
  await Bun.write(VIDEO, Buffer.concat([head, frame, frame]));
}
