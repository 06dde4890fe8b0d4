/** The rules of the house that no linter knows. */

import { describe, expect, test } from "bun:test";
import { Glob } from "bun";

const root = `${import.meta.dir}/..`;
const files = [...new Glob("src/**/*.{ts,tsx}").scanSync(root)].toSorted();
const read = (file: string): Promise<string> => Bun.file(`${root}/${file}`).text();

/** Which folders a folder may import from; `domain` is free of all the others. */
const mayImport: Record<string, readonly string[]> = {
  domain: ["domain"],
  observe: ["observe", "."],
  store: ["store", "domain"],
  auth: ["auth", "domain"],
  format: ["format", "domain"],
  http: ["http", "auth", "format", "store", "domain", "observe", "."],
  client: ["client", "domain"],
  console: ["console", "client", "domain", "format"],
  "docs-page": ["docs-page"],
  workers: ["workers", "http", "auth", "store", "domain", "observe", "."],
  cli: ["cli", "client", "workers", "http", "auth", "store", "format", "domain", "observe", "."],
};

/** "." is src itself: main, config and settings. */
const folderOf = (path: string): string => /^src\/([^/]+)\//.exec(path)?.[1] ?? ".";

describe("every source file", () => {
  test("exists", () => expect(files.length).toBeGreaterThan(20));

  test.each(files)("%s is one thing with a name", async (file) => {
    const text = await read(file);
    expect(text.split("\n").length).toBeLessThanOrEqual(450);
    expect(file).toMatch(/^src\/([a-z0-9]+(-[a-z0-9]+)*\/)*[a-z0-9]+(-[a-z0-9]+)*\.tsx?$/);
    expect(file).not.toMatch(/utils|helpers|common|manager/);
  });

  test.each(files.filter((file) => folderOf(file) !== "."))(
    "%s imports only downwards",
    async (file) => {
      const imports = [...(await read(file)).matchAll(/from "(\.[^"]+)"/g)];
      for (const [, path = ""] of imports) {
        const target = new URL(path, `file:///${file}`).pathname.slice(1);
        if (target === "package.json") continue;
        expect(mayImport[folderOf(file)]).toContain(folderOf(target));
      }
    },
  );
});

describe("a test that runs over every engine", () => {
  const neutral = [...new Glob("test/{contract,http}/*.test.ts").scanSync(root)].toSorted();

  test("exists", () => expect(neutral.length).toBeGreaterThan(10));

  test.each(neutral)("%s knows none of them", async (file) => {
    const text = await read(file);
    const imports = [...text.matchAll(/from "([^"]+)"/g)].map(([, path = ""]) => path);
    expect(imports.filter((path) => /sqlite|postgres/.test(path))).toEqual([]);
    expect(text).not.toMatch(/(sqlite|postgres(ql)?):/);
    expect(imports.join("\n")).toMatch(/support\/(database|service)\.ts$/m);
  });
});
