/** The rules of the house that no linter knows. */

import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const list = (pattern: string): string[] => [...new Glob(pattern).scanSync(root)].toSorted();
const read = (file: string): string => readFileSync(join(root, file), "utf8");

const sources = [...list("client/*.ts"), ...list("{src,console,reference}/**/*.{ts,tsx}")];
const tests = list("test/**/*.ts");
const neutral = list("test/{contract,http}/*.test.ts");

/** The files of the project that a file imports, types included; an import on demand is none. */
const listImports = (file: string): string[] =>
  [...read(file).matchAll(/^(?:import|export) [^;]*?from "(\.[^"]+)";/gm)].map(([, path = ""]) =>
    join(dirname(file), path),
  );

/** Which folders a folder may import from. `.` is src itself: config.ts and main.ts. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  domain: [],
  observe: ["domain", "."],
  store: ["format", "domain"],
  backup: ["store", "domain", "observe", "."],
  auth: ["domain"],
  format: ["domain"],
  webhooks: ["auth", "domain", "observe"],
  http: ["webhooks", "auth", "format", "domain", "observe", "."],
  client: [],
  console: ["client", "domain", "format"],
  reference: ["console"],
  workers: ["http", "auth", "store", "domain", "observe", "."],
  cli: "client workers http webhooks backup auth store format domain observe .".split(" "),
};

/** The client, the console and the reference are programs of their own, beside src. */
const folderOf = (path: string): string =>
  /^(?:src\/)?([^/]+)\/[^/]/.exec(path)?.[1]?.replace(/^src$/, ".") ?? ".";

describe("every source file", () => {
  test("exists, and so does each folder in the table of layers", () => {
    expect(sources.length).toBeGreaterThan(20);
    expect(neutral.length).toBeGreaterThan(10);
    const folders = new Set(sources.map(folderOf).filter((folder) => folder !== "."));
    expect([...folders].toSorted()).toEqual(Object.keys(mayImport).toSorted());
  });

  test.each(sources.filter((file) => folderOf(file) !== "."))(
    "%s imports only downwards",
    (file) => {
      const folder = folderOf(file);
      const targets = listImports(file).filter((path) =>
        /^(src|client|console)\/(?!(?:tick|thread|descriptor|address|answer|store-url)\.ts$)/.test(
          path,
        ),
      );
      for (const path of targets.filter((target) => folderOf(target) !== folder))
        expect(mayImport[folder]).toContain(folderOf(path));
    },
  );
});

test("docs/architecture.md begins with every folder of src, each behind those that it imports", () => {
  const [, line = ""] = /one way: `([^`]+)`/.exec(read("docs/architecture.md")) ?? [];
  const floors = line.replace("config", ".").split(" ← ");
  const floorOf = (folder: string): number =>
    floors.findIndex((names) => names.split(", ").includes(folder));
  const folders = Object.keys(mayImport).filter((name) => existsSync(join(root, "src", name)));
  expect([...folders, "."].filter((folder) => floorOf(folder) < 0)).toEqual([]);
  const upwards = folders.flatMap((folder) =>
    (mayImport[folder] ?? [])
      .filter((target) => floorOf(target) >= floorOf(folder))
      .map((target) => `${folder} imports ${target}`),
  );
  expect(upwards).toEqual([]);
});

test.each([...sources, ...tests])("%s has a plain name", (file) => {
  expect(file).toMatch(/^([a-z0-9]+(-[a-z0-9]+)*\/)*[a-z0-9]+(-[a-z0-9]+)*(\.test)?\.tsx?$/);
  expect(file).not.toMatch(/utils|helpers|common|manager/);
});

test("what every folder may import imports the domain at most, and so does config.ts", () => {
  for (const file of ["tick", "thread", "descriptor", "address", "store-url", "config"])
    for (const path of listImports(`src/${file}.ts`))
      expect(path).toMatch(/^src\/(domain\/|tick\.ts|address\.ts|store-url\.ts)/);
});

test("no file imports itself through others", () => {
  const done = new Set<string>();
  const findCycle = (file: string, path: readonly string[]): string | undefined => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file].join(" → ");
    if (done.has(file) || !/\.tsx?$/.test(file)) return undefined;
    const cycle = listImports(file)
      .map((target) => findCycle(target, [...path, file]))
      .find((found) => found !== undefined);
    done.add(file);
    return cycle;
  };
  expect([...sources, ...tests].flatMap((file) => findCycle(file, []) ?? [])).toEqual([]);
});

test("no test blocks its process on a command without a time limit", () => {
  const blocks = (file: string): boolean => /\b(?:spawn|exec|execFile)Sync\(/.test(read(file));
  expect(tests.filter(blocks)).toEqual(["test/support/processes.ts"]);
});

test.each(neutral)("%s runs over every engine, and knows none of them", (file) => {
  const text = read(file);
  const imports = [...text.matchAll(/from "([^"]+)"/g)].map(([, path = ""]) => path);
  expect(imports.filter((path) => /sqlite|postgres/.test(path))).toEqual([]);
  expect(text).not.toMatch(/(sqlite|postgres(ql)?):/);
  expect(imports.join("\n")).toMatch(/support\/(database|service)\.ts$/m);
});

test.each([...list("docs/*.md"), "README.md", "CONTRIBUTING.md", "SECURITY.md"])(
  "%s names no file of the project that does not exist",
  (file) => {
    const named = read(file).matchAll(/`((?:src|client|test|bench|scripts|ops|bin)\/[\w./-]*)`/g);
    const paths = [...named].map(([, path = ""]) => path);
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  },
);
