/** Builds the API reference in dist/docs. The file names contain a hash of their content. */

import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const source = import.meta.dir;
const root = join(source, "../..");
const target = join(root, "dist/docs");

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });

const contents: Readonly<Record<string, string>> = {
  "swagger-ui-bundle.js": await withoutSourceMap(
    import.meta.resolve("swagger-ui-dist/swagger-ui-bundle.js"),
  ),
  "docs.css": await bundle("docs.css"),
  "docs.js": await bundle("docs.ts"),
  "leaf.svg": await Bun.file(join(root, "src/console/leaf.svg")).text(),
};

let page = await Bun.file(join(source, "index.html")).text();
for (const [name, content] of Object.entries(contents)) {
  const hash = Bun.hash(content).toString(36).padStart(13, "0").slice(0, 10);
  const hashedName = name.replace(/\.(?=[a-z]+$)/, `-${hash}.`);
  if (!page.includes(`"docs/${name}"`)) throw new Error(`index.html does not use ${name}`);
  page = page.replaceAll(`"docs/${name}"`, `"docs/${hashedName}"`);
  await write(hashedName, content);
}
await write("index.html", page);

async function write(name: string, content: string): Promise<void> {
  await Bun.write(join(target, name), content);
  await Bun.write(join(target, `${name}.gz`), Bun.gzipSync(content, { level: 9 }));
}

/** The map is not served, so a browser's request for it would fail. */
async function withoutSourceMap(url: string): Promise<string> {
  const text = await Bun.file(fileURLToPath(url)).text();
  return text.replace(/(\/\*|\/\/)# sourceMappingURL=[^\n]*\n?$/, "");
}

async function bundle(name: string): Promise<string> {
  const { outputs } = await Bun.build({
    entrypoints: [join(source, name)],
    minify: true,
    target: "browser",
  });
  const [output] = outputs;
  if (output === undefined) throw new Error(`${name}: no output`);
  return output.text();
}
