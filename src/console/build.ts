/** npm run build: the console, as dist/console has it, within its bound of size. */

import { buildConsole } from "./bundle.ts";

/** Script and style, compressed, all together. */
const COMPRESSED_BYTES_MAX = 100_000;

const say = (name: string, ...sizes: string[]): void =>
  void process.stdout.write(`${name.padEnd(24)} ${sizes.join(" ")}\n`);
const kilobytes = (bytes: number): string => `${(bytes / 1000).toFixed(1)} kB`.padStart(9);

const files = await buildConsole(`${import.meta.dir}/../../dist/console`);
for (const { name, bytes, compressedBytes } of files)
  say(name, kilobytes(bytes), kilobytes(compressedBytes), "compressed");

const total = files
  .filter(({ name }) => /\.(js|css)$/.test(name))
  .reduce((sum, { compressedBytes }) => sum + compressedBytes, 0);
say("script and style", "".padStart(9), kilobytes(total), "compressed");
if (total > COMPRESSED_BYTES_MAX) {
  say(`too large: at most ${kilobytes(COMPRESSED_BYTES_MAX).trim()}`);
  process.exit(1);
}
