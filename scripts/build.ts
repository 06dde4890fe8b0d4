/** npm run build: the service, the console and the API reference, as they are shipped. Checks the console's size. */

import { mkdir, rm } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { type BuildConfig, type BunPlugin, Glob } from "bun";

const root = `${import.meta.dir}/..`;
const source = `${root}/console`;
const docsSource = `${root}/reference`;
/** Scripts that the console loads on demand, by their paths. */
export const onDemand: Readonly<Record<string, string>> = {
  "console/camera.js": `${source}/camera.ts`,
  "console/import.js": `${source}/import/worker.ts`,
  "console/labels.js": `${source}/labels.ts`,
  "console/workbook.js": `${source}/workbook.ts`,
};

/** For the console's first view, without the scripts that load on demand. */
const COMPRESSED_BYTES_MAX = 92_000;

/** The texts of a language are taken out of the table, so that a page loads only its own. */
const oneLanguage: BunPlugin = {
  name: "texts",
  setup: (build) =>
    void build.onLoad({ filter: /\/console\/text\/(?:en|de|fr|es)\.ts$/ }, async ({ path }) => {
      const exported = Object.entries((await import(path)) as object);
      const lines = exported.map(
        ([name, value]) => `export const ${name} = ${JSON.stringify(value)};`,
      );
      return { contents: lines.join("\n"), loader: "js" };
    }),
};

const browserOptions = {
  plugins: [oneLanguage],
  target: "browser",
  minify: true,
  define: { "process.env.NODE_ENV": '"production"' },
} satisfies Partial<BuildConfig>;

/** Bundles an entry into one file. */
export async function bundle(entry: string): Promise<string> {
  const { outputs } = await Bun.build({ entrypoints: [entry], ...browserOptions });
  const [output, ...others] = outputs;
  if (output === undefined || others.length > 0)
    throw new Error(`${entry}: expected one file, got ${outputs.length}`);
  return output.text();
}

interface Part {
  /** How the page refers to it. */
  readonly reference: string;
  /** The path in the service, before the content hash is added. */
  readonly path: string;
  readonly text: string | Promise<string>;
}

/** A file that other scripts load by its name, which has a hash already. */
interface Chunk {
  readonly name: string;
  readonly text: string;
  /** The entry needs it at once. */
  readonly isNeeded: boolean;
}

/** Splits what an entry imports dynamically into chunks of their own, and what it shares with them. */
async function split(entry: string): Promise<{ text: string; chunks: readonly Chunk[] }> {
  const naming = { chunk: "[name]-[hash].[ext]" };
  const options = { ...browserOptions, entrypoints: [entry], splitting: true, naming };
  const { outputs } = await Bun.build(options);
  const files = await Promise.all(
    outputs.map(async (output) => ({
      name: output.path.replace(/^.*\//, ""),
      isEntry: output.kind === "entry-point",
      text: await output.text(),
    })),
  );
  const { text = "" } = files.find(({ isEntry }) => isEntry) ?? {};
  const needed = new Set<string>();
  const follow = (script: string, pattern = /(?:from|import)"\.\/([^"]+)"/g): void => {
    for (const [, name = ""] of script.matchAll(pattern)) {
      if (needed.has(name)) continue;
      needed.add(name);
      follow(files.find((file) => file.name === name)?.text ?? "");
    }
  };
  // What the entry itself imports dynamically is the page.
  follow(text, /(?:from|import\(?)"\.\/([^"]+)"/g);
  const chunks = files.filter(({ isEntry }) => !isEntry);
  return {
    text,
    chunks: chunks.map(({ name, text: script }) => ({
      name,
      text: script,
      isNeeded: needed.has(name),
    })),
  };
}

interface BuiltFile {
  readonly name: string;
  readonly bytes: number;
  readonly compressedBytes: number;
}

/** Empties the folder, then writes the page and its parts, each also gzipped. */
async function buildPage(
  folder: string,
  template: string,
  parts: readonly Part[],
  chunks: readonly Chunk[] = [],
): Promise<BuiltFile[]> {
  let page = await Bun.file(template).text();
  const texts = new Map(chunks.map(({ name, text }) => [name, text]));
  // Otherwise the browser would find it only when it has the entry.
  for (const needed of chunks.filter(({ isNeeded }) => isNeeded))
    page = page.replace(
      /^ *(?=<script)/m,
      (indent) => `${indent}<link rel="modulepreload" href="console/${needed.name}" />\n${indent}`,
    );
  for (const { reference, path, text } of parts) {
    const content = await text;
    const hash = Bun.hash(content).toString(36).padStart(13, "0").slice(0, 10);
    const hashed = path.replace(/\.(?=[a-z]+$)/, `-${hash}.`);
    if (!page.includes(`"${reference}"`)) throw new Error(`${template} does not use ${reference}`);
    page = page.replaceAll(`"${reference}"`, `"${hashed}"`);
    texts.set(hashed.replace(/^.*\//, ""), content);
  }
  texts.set("index.html", page);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const write = async ([name, text]: [string, string]): Promise<BuiltFile> => {
    const compressed = gzipSync(text, { level: 9 });
    const bytes = await Bun.write(`${folder}/${name}`, text);
    await Bun.write(`${folder}/${name}.gz`, compressed);
    return { name, bytes, compressedBytes: compressed.length };
  };
  return Promise.all([...texts].map(write));
}

const leaf = Bun.file(`${source}/leaf.svg`);

export async function buildConsole(folder: string): Promise<BuiltFile[]> {
  const { text, chunks } = await split(`${source}/main.tsx`);
  const parts = [
    { reference: "./main.tsx", path: "console/console.js", text },
    {
      reference: "./css/style.css",
      path: "console/console.css",
      text: bundle(`${source}/css/style.css`),
    },
    ...Object.entries(onDemand).map(([path, entry]) => ({
      reference: path,
      path,
      text: bundle(entry),
    })),
    { reference: "./leaf.svg", path: "console/leaf.svg", text: leaf.text() },
  ];
  return buildPage(folder, `${source}/index.html`, parts, chunks);
}

const buildDocs = (folder: string): Promise<BuiltFile[]> =>
  buildPage(
    folder,
    `${docsSource}/index.html`,
    Object.entries({
      "docs/docs.css": bundle(`${docsSource}/docs.css`),
      "docs/docs.js": bundle(`${docsSource}/docs.tsx`),
      "docs/leaf.svg": leaf.text(),
    }).map(([path, text]) => ({ reference: path, path, text })),
  );

/** Each worker thread has its own entry file. */
export const serviceEntries: readonly string[] = [
  `${root}/src/main.ts`,
  ...new Glob("src/**/*-worker.ts").scanSync({ cwd: root, absolute: true }),
];

/** With bytecode, which cuts the time to the first answer by a third. */
async function buildService(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await Bun.build({
    entrypoints: [...serviceEntries],
    naming: { entry: "[name].[ext]" },
    target: "bun",
    outdir: folder,
    bytecode: true,
    // Outside an executable, bytecode needs CommonJS. There `import.meta.dir` would be the folder of the source.
    format: "cjs",
    define: { "import.meta.dir": "module.path" },
  });
}

const kilobytes = (bytes: number): string => `${(bytes / 1000).toFixed(1)} kB`.padStart(9);

if (import.meta.main) {
  let total = 0;
  const files = await buildConsole(`${root}/dist/console`);
  const page = await Bun.file(`${root}/dist/console/index.html`).text();
  for (const { name, bytes, compressedBytes } of files) {
    const isFirst = ["src", "href"].some((way) => page.includes(` ${way}="console/${name}"`));
    if (isFirst && !name.endsWith(".svg")) total += compressedBytes;
    process.stdout.write(
      `${name.padEnd(24)} ${kilobytes(bytes)} ${kilobytes(compressedBytes)} compressed\n`,
    );
  }
  const isTooLarge = total > COMPRESSED_BYTES_MAX;
  process.stdout.write(
    `first view: ${kilobytes(total).trim()} compressed${isTooLarge ? ", too large" : ""}\n`,
  );
  process.exitCode = isTooLarge ? 1 : 0;
  await buildDocs(`${root}/dist/docs`);
  await buildService(`${root}/dist/service`);
}
