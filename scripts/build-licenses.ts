/** dist/LICENSES.txt: the licences of the packages whose code the builds contain. */

import { join } from "node:path";
import { Glob } from "bun";

/** Packages that the built service and pages contain. In package.json they are devDependencies. */
export const bundled: readonly string[] = [
  "@preact/signals",
  "@preact/signals-core",
  "@zxing/library",
  "commander",
  "fflate",
  "hucre",
  "jose",
  "preact",
  "ts-custom-error",
  "uqr",
];

const RUNTIME = `The executables contain the runtime Bun, under the MIT licence, with JavaScriptCore, under the LGPL 2, and other
libraries. https://bun.com/docs/project/licensing names them and their sources.
`;

if (import.meta.main) {
  const root = join(import.meta.dir, "..");
  const parts: string[] = [];
  for (const name of bundled) {
    const folder = join(root, "node_modules", name);
    const files = new Glob("{LICENSE,LICENSE.md,NOTICE}").scanSync(folder);
    const texts = await Promise.all(
      [...files].toSorted().map((file) => Bun.file(join(folder, file)).text()),
    );
    if (texts.length === 0) throw new Error(`${name} has no licence`);
    parts.push(`==== ${name} ====\n\n${texts.join("\n")}`);
  }
  await Bun.write(join(root, "dist/LICENSES.txt"), [...parts, RUNTIME].join("\n"));
}
