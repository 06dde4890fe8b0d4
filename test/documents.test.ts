/** The documents: their links lead somewhere, their tables agree with the code, and their commands run. */

import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import packageJson from "../package.json";
import { fillTables, generated } from "../scripts/tables.ts";
import { settings } from "../src/config.ts";
import { catalogue } from "../src/domain/errors.ts";
import { launcher, runScript } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { startShared, TEST_TOKEN } from "./support/service.ts";

const root = join(import.meta.dir, "..");
const read = (file: string): Promise<string> => Bun.file(join(root, file)).text();
const documents = ["*.md", "docs/*.md", "bench/*.md"].flatMap((pattern) =>
  Array.from(new Glob(pattern).scanSync(root)),
);

test.each(generated)("%s has the tables of the code", async (page) => {
  const text = await read(page);
  expect(await fillTables(text), "stale: npm run format writes it").toBe(text);
});

test("each table is in one document", async () => {
  const all = (await Promise.all(documents.map(read))).join("");
  const tables = [...all.matchAll(/<!-- table: (\w+) -->/g)].map(([, name = ""]) => name);
  const due = "changeParts commands errors limits methods metrics operations settings tools";
  expect(tables.toSorted().join(" ")).toBe(due);
});

test("each setting is explained in a document, besides its row in the table", async () => {
  const texts = await Promise.all(documents.filter((name) => name.startsWith("docs/")).map(read));
  const text = texts.join("\n").replaceAll(/<!-- table: [^]*?<!-- end -->/g, "");
  const groups = [...text.matchAll(/\b(?!PLANTSTORE_…)([A-Z_]+_)…/g)].map(([, one = ""]) => one);
  expect(texts.length).toBeGreaterThan(5);
  const missing = Object.values(settings).filter(
    ({ env, flag = env }) =>
      !text.includes(env) && !text.includes(flag) && !groups.some((one) => env.startsWith(one)),
  );
  expect(missing.map(({ env }) => env)).toEqual([]);
});

test("docs/api.md has every status of the catalogue in the order of checks", async () => {
  const [, after = ""] = (await read("docs/api.md")).split("\n### The order of checks\n");
  const [section = ""] = after.split(/^#/m);
  const statuses = new Set(Object.values(catalogue).map(({ status }) => String(status)));
  expect([...statuses].filter((status) => !section.includes(status))).toEqual([]);
});

describe("every link, anchor and npm script exists:", () => {
  const withoutCode = (text: string): string => text.replaceAll(/```[\s\S]*?```|`[^`\n]*`/g, "");

  /** Anchors as GitHub makes them of headings, and those that a page sets itself. */
  const anchorsOf = (text: string): string[] => [
    ...[...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
    ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id = ""]) => id),
  ];

  test.each(documents)("%s", async (document) => {
    const text = await read(document);
    const links = [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)];
    for (const [, link = ""] of links.filter(([, target]) => !target?.startsWith("http"))) {
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? document : join(dirname(document), path);
      expect([link, existsSync(join(root, target))]).toEqual([link, true]);
      if (anchor !== undefined) expect(anchorsOf(await read(target))).toContain(anchor);
    }
    const named = [...text.matchAll(/\bnpm run ([a-z][\w:-]*)/g)].map(([, name = ""]) => name);
    expect(named.filter((name) => !(name in packageJson.scripts))).toEqual([]);
  });
});

test("docs/operations.md says for every alert what to look at and what to do", async () => {
  const [, page = ""] = (await read("docs/operations.md")).split("\n## ");
  expect(page).toStartWith("When something is wrong\n");
  const rows = page.split("\n").filter((line) => line.split(" | ").length === 3);
  const alerts = [...(await read("ops/prometheus-rules.yml")).matchAll(/- alert: (\w+)/g)];
  expect(alerts.length).toBeGreaterThan(20);
  for (const [, alert = ""] of alerts)
    expect([alert, rows.filter((row) => row.includes(`\`${alert}\``)).length]).toEqual([alert, 1]);
});

test("docs/architecture.md names every folder of src, and the dependencies that there are", async () => {
  const text = await read("docs/architecture.md");
  const folders = [...new Glob("src/*/").scanSync({ cwd: root, onlyFiles: false })];
  expect(folders.filter((folder) => !text.includes(`\`${folder}/\``))).toEqual([]);
  const tables = text.split("## Dependencies\n")[1] ?? "";
  const cells = [...tables.matchAll(/^\| (`.*?) \|/gm)].map(([, cell = ""]) => cell);
  const named = cells.flatMap((cell) => cell.replaceAll("`", "").trim().split(", "));
  const { optionalDependencies, devDependencies } = packageJson;
  expect(packageJson).not.toHaveProperty("dependencies");
  const installed = Object.keys({ ...optionalDependencies, ...devDependencies });
  expect(named.toSorted()).toEqual(installed.toSorted());
});

describe("CONTRIBUTING.md leads to what there is:", () => {
  const section = async (document: string, heading: string): Promise<string> =>
    (await read(document)).split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const namesIn = (text: string): string[] =>
    [...text.matchAll(/`([^`\s]+)`/g)].map(([, name = ""]) => name);

  test("a request goes through files that a create enters", async () => {
    const steps =
      (await section("CONTRIBUTING.md", "Your first change")).match(/^\d\. .*$/gm) ?? [];
    expect(steps).toHaveLength(7);
    const entered = namesIn(await section("docs/architecture.md", "One create"));
    const begun = ["src/http/server.ts", "src/http/operations.ts"];
    const named = namesIn(steps.join("\n")).filter((name) => name.endsWith(".ts"));
    expect(named.filter((name) => ![...entered, ...begun].includes(name))).toEqual([]);
  });

  const files = [...new Glob("{src,client,console,scripts,test}/**/*.{ts,tsx}").scanSync(root)];
  const recipes = readFileSync(join(root, "CONTRIBUTING.md"), "utf8")
    .split("\n## Recipes\n")[1]
    ?.split("\n## ")[0]
    ?.split(/^\*\*(?=.*\*\*$)/m)
    .slice(1)
    .map((recipe) => [recipe.split("**")[0] ?? "", recipe] as const);

  test.each(recipes ?? [])("%s", async (_title, recipe) => {
    const names = namesIn(recipe);
    const paths = names.filter((name) => /\.(tsx?|md)$|\/$/.test(name));
    const folders = new Set(paths.map((path) => (path.endsWith("/") ? path : dirname(path))));
    // A bare name stands beside a file that is named with its folder.
    const isThere = (path: string): boolean =>
      [".", ...folders].some((folder) => existsSync(join(root, folder, path)));
    expect(paths.filter((path) => !isThere(path))).toEqual([]);
    for (const [part, kind] of [
      ["a source", /^(src|client|console)\//],
      ["a test", /^test\//],
      ["a document, or what generates it", /^(docs|console\/text)\/|npm run format/],
    ] as const)
      expect([part, kind.test(recipe) || paths.some((path) => kind.test(path))]).toEqual([
        part,
        true,
      ]);
    // What a recipe says to change is in a file that it names.
    const sources = files.filter((file) =>
      paths.some((path) => (path.endsWith("/") ? file.startsWith(path) : file.endsWith(path))),
    );
    const text = (await Promise.all(sources.map(read))).join("\n");
    const words = names.filter((name) => /^[a-z]+[A-Z]\w*$/.test(name));
    expect(words.filter((word) => !text.includes(word))).toEqual([]);
  });
});

test("docs/architecture.md names every file of src/backup at one backup", async () => {
  const [, after = ""] = (await read("docs/architecture.md")).split("\n## One backup\n");
  const [section = ""] = after.split("\n## ");
  const named = [...section.matchAll(/`(src\/backup\/[^`]+\.ts)`/g)].map(([, name = ""]) => name);
  expect(named.toSorted()).toEqual([...new Glob("src/backup/*.ts").scanSync(root)].toSorted());
});

describe("docs/architecture.md names the files of src that a create enters, and no other:", () => {
  /** More often than any other line of src runs at a start. */
  const CREATES = 1_000;

  test.each([
    ["On SQLite:", "sqlite"],
    ["On PostgreSQL,", "postgres"],
  ])("%s", async (heading, engine) => {
    using reports = makeTemporaryFolder();
    const coverage = ["--coverage", "--coverage-reporter=lcov", `--coverage-dir=${reports.path}`];
    const counted = Bun.spawn(
      [process.execPath, "test", ...coverage, "--timeout=300000", "./test/support/creates.ts"],
      {
        cwd: root,
        env: { ...process.env, PLANTSTORE_TEST_ENGINE: engine, TEST_CREATES: String(CREATES) },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    const output = await counted.stderr.text();
    expect([await counted.exited, output]).toEqual([0, expect.anything()]);
    const report = await Bun.file(join(reports.path, "lcov.info")).text();
    const entered = report.split("end_of_record").flatMap((file) => {
      const [, name = ""] = /^SF:(src\/.*)$/m.exec(file) ?? [];
      const counts = [...file.matchAll(/^DA:\d+,(\d+)/gm)].map(([, count]) => Number(count));
      return name !== "" && Math.max(...counts) >= CREATES ? [name] : [];
    });
    const [, section = ""] = (await read("docs/architecture.md")).split("\n## One create\n");
    const [shared = "", ...engines] = (section.split("\n## ")[0] ?? "").split(/^(?=On \w*SQL)/m);
    const own = engines.find((text) => text.startsWith(heading)) ?? "";
    const named = [...(shared + own).matchAll(/`(src\/[^`]*\.ts)`/g)].map(([, name = ""]) => name);
    const failures = "src/domain/errors.ts";
    expect([...new Set(named)].filter((name) => name !== failures).toSorted()).toEqual(
      entered.toSorted(),
    );
  });
});

test.each([
  ["postgres://a:b@c/d", "postgres://a:b@c/d"],
  ["postgres://a@c/d?prepare=true", "postgres://a@c/d"],
  ["postgres://a@c/d?prepare=false&sslmode=require", "postgres://a@c/d?sslmode=require"],
  ["postgres://a@c/d?sslmode=require&prepare=true", "postgres://a@c/d?sslmode=require"],
  ["postgres://a@b,c/d?host=/x&prepare=true&sslkey=y", "postgres://a@b,c/d?host=/x&sslkey=y"],
])("docs/operations.md: pg_dump is given for %s a URL that libpq takes", async (url, expected) => {
  const [line] = /URL=\$\(.*\)/.exec(await read("docs/operations.md")) ?? [];
  const { stdout } = await runScript(`${line}; printf %s "$URL"`, { DATABASE_URL: url });
  expect(stdout).toBe(expected);
});

test("docs/reliability.md has every scenario of the torture, and no other", async () => {
  const [, list = ""] =
    /const scenarios[^{]*\{\n([^}]*)\}/.exec(await read("test/torture/main.ts")) ?? [];
  const names = [...list.matchAll(/^ *"?([a-z-]+)"?[:,]/gm)].map(([, name = ""]) => name);
  expect(names.length).toBeGreaterThan(10);
  const [, table = ""] =
    /\| promise \| scenario \|\n([^]*?)\n\n/.exec(await read("docs/reliability.md")) ?? [];
  const documented = [...table.matchAll(/`([a-z-]+)`/g)].map(([, name = ""]) => name);
  expect([...new Set(documented)].toSorted()).toEqual(names.toSorted());
});

interface Sample {
  readonly document: string;
  readonly command: string;
  readonly shown: string | undefined;
}

/** Blocks of shell, with the block of output that follows at once. Those that need another machine are left out. */
const samplesOf = async (document: string): Promise<Sample[]> =>
  [...(await read(document)).matchAll(/^ *```sh\n([\s\S]*?)```(?:\n+ *```\n([\s\S]*?)```)?/gm)]
    .map(([, command = "", shown]) => ({ document, command, shown }))
    .filter(({ command }) => /^ *(curl|npx plantstore|printf|export TOKEN=|mkdir)/.test(command))
    .filter(({ command }) => !/DATABASE_URL|--follow|webhook test|plants\.lan/.test(command));

const tried = ["README.md", "docs/api.md", "docs/operations.md", "docs/changes.md"];
const samples = (await Promise.all(tried.map(samplesOf))).flat();
const service = await startShared();
const folder = makeTemporaryFolder();
afterAll(() => folder[Symbol.dispose]());

describe("the commands run, and print what the document shows:", () => {
  test("there are commands", () => expect(samples.length).toBeGreaterThan(10));

  test.each(samples)("$document: $command", async ({ command, shown }) => {
    const script = command
      .replaceAll("http://127.0.0.1:8080", service.url)
      .replaceAll("npx plantstore", launcher)
      .replace(/^export TOKEN=pst_….*$/m, "");
    const token = { TOKEN: TEST_TOKEN };
    const printed = await runScript(`set -euo pipefail\n${script}`, token, folder.path);
    expect([script, printed]).toEqual([script, expect.objectContaining({ exitCode: 0 })]);
    if (shown !== undefined)
      expect(withoutFigures(printed.stdout).trim()).toMatch(toPattern(withoutFigures(shown)));
  });

  /** `…` stands for anything. */
  function toPattern(shown: string): RegExp {
    const literal = shown.trim().replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
    return new RegExp(`^${literal.replaceAll("…", String.raw`[\s\S]*`)}$`);
  }

  /** Folders are the machine's, and so are the figures of its store: on these lines, and on no other. */
  function withoutFigures(text: string): string {
    return text
      .replaceAll("\r", "")
      .replaceAll(/(?<= )\/\S+/g, "/path")
      .replaceAll(/^ *(plants|ids|tags|tokens|size|time) .*$/gim, (line) =>
        line.replaceAll(/\d[\d.,]*( [kM]?B| bytes)?/g, "0"),
      );
  }
});
