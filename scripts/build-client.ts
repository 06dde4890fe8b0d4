/** npm run build:client: the client as one script with its types, in client/dist. */

import { join } from "node:path";

const root = join(import.meta.dir, "..");

export async function buildClient(folder: string): Promise<void> {
  await Bun.build({
    entrypoints: [join(root, "client/client.ts")],
    target: "browser",
    outdir: folder,
    naming: "client.js",
    // Identifiers are kept, so people can read the script.
    minify: { whitespace: true, syntax: true },
  });
  const tsc = join(root, "node_modules/.bin/tsc");
  const { exitCode, stdout } = Bun.spawnSync([tsc, "-p", join(root, "client"), "--outDir", folder]);
  if (exitCode !== 0) throw new Error(`tsc failed:\n${stdout.toString()}`);
}

if (import.meta.main) {
  const folder = join(root, "client/dist");
  await buildClient(folder);
  const packed = Bun.gzipSync(await Bun.file(join(folder, "client.js")).bytes());
  process.stdout.write(`client.js: ${(packed.length / 1000).toFixed(1)} kB compressed\n`);
}
