/** Builds the console. `npm run build` writes it to dist/console and checks its size. */

import { mkdir, rm } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const here = import.meta.dir;
export const workerEntry = `${here}/import/worker.ts`;

/** All scripts and styles together. */
const COMPRESSED_BYTES_MAX = 100_000;

interface File {
  readonly name: string;
  readonly text: string;
}

interface BuiltFile {
  readonly name: string;
  readonly bytes: number;
  readonly compressedBytes: number;
}

/** One file from one entry. Its name contains a hash of its content. */
export async function bundle(entry: string, name: string): Promise<File> {
  const { outputs } = await Bun.build({
    entrypoints: [entry],
    target: "browser",
    minify: true,
    naming: `${name}-[hash].[ext]`,
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const [output, ...others] = outputs;
  if (output === undefined || others.length > 0)
    throw new Error(`${entry}: expected one file, got ${outputs.length}`);
  return { name: output.path.replace(/^\.\//, ""), text: await output.text() };
}

/** Replaces the folder with the files that the service serves, each also compressed. */
export async function buildConsole(folder: string): Promise<BuiltFile[]> {
  const [script, style, worker, leaf, template] = await Promise.all([
    bundle(`${here}/main.tsx`, "console"),
    bundle(`${here}/css/style.css`, "console"),
    bundle(workerEntry, "import"),
    Bun.file(`${here}/leaf.svg`).text(),
    Bun.file(`${here}/index.html`).text(),
  ]);
  const icon = { name: `leaf-${Bun.hash(leaf).toString(36).slice(0, 8)}.svg`, text: leaf };
  const page = replaceEach(template, {
    "console/import.js": `console/${worker.name}`,
    "./main.tsx": `console/${script.name}`,
    "./css/style.css": `console/${style.name}`,
    "./leaf.svg": `console/${icon.name}`,
  });
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const files = [script, style, worker, icon, { name: "index.html", text: page }];
  return Promise.all(files.map((file) => write(folder, file)));
}

async function write(folder: string, { name, text }: File): Promise<BuiltFile> {
  const bytes = new TextEncoder().encode(text);
  const compressed = gzipSync(bytes, { level: 9 });
  await Bun.write(`${folder}/${name}`, bytes);
  await Bun.write(`${folder}/${name}.gz`, compressed);
  return { name, bytes: bytes.length, compressedBytes: compressed.length };
}

/** Throws unless each text occurs exactly once. */
function replaceEach(text: string, replacements: Readonly<Record<string, string>>): string {
  let replaced = text;
  for (const [from, to] of Object.entries(replacements)) {
    if (replaced.split(from).length !== 2) throw new Error(`index.html: expected ${from} once`);
    replaced = replaced.replace(from, to);
  }
  return replaced;
}

const kilobytes = (bytes: number): string => `${(bytes / 1000).toFixed(1)} kB`.padStart(9);

if (import.meta.main) {
  let total = 0;
  for (const file of await buildConsole(`${here}/../../dist/console`)) {
    const { name, bytes, compressedBytes } = file;
    if (/\.(js|css)$/.test(name)) total += compressedBytes;
    process.stdout.write(
      `${name.padEnd(24)} ${kilobytes(bytes)} ${kilobytes(compressedBytes)} compressed\n`,
    );
  }
  const isTooLarge = total > COMPRESSED_BYTES_MAX;
  process.stdout.write(
    `scripts and styles: ${kilobytes(total).trim()} compressed${isTooLarge ? ", too large" : ""}\n`,
  );
  process.exitCode = isTooLarge ? 1 : 0;
}
