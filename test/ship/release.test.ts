/** npm run release: a dry run in a repository of its own makes a whole release, and changes nothing in it. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import packageJson from "../../package.json";
import { findOwnTarget } from "../../scripts/build-executable.ts";
import { bundled } from "../../scripts/build-licenses.ts";
import { copySources, fail, run } from "../support/shipped.ts";

const repository = copySources();
const identity = {
  GIT_AUTHOR_NAME: "Tester",
  GIT_AUTHOR_EMAIL: "tester@example.com",
  GIT_COMMITTER_NAME: "Tester",
  GIT_COMMITTER_EMAIL: "tester@example.com",
};
const options = { cwd: repository.path, env: identity };
const git = (...args: string[]): Promise<string> => run(["git", ...args], options);
const command = [process.execPath, "scripts/release.ts"];
const read = (file: string): string => readFileSync(join(repository.path, "release", file), "utf8");

beforeAll(async () => {
  const changelog = join(repository.path, "CHANGELOG.md");
  writeFileSync(changelog, "# Changelog\n\n## 9.9.9\n\nNew.\n\n## 1.0.0\n\nThe first version.\n");
  await git("init", "--quiet");
  await git("add", "--all");
  await git("commit", "--quiet", "--message", "all");
});
afterAll(() => repository[Symbol.dispose]());

describe("a dry run", () => {
  let before = "";
  let printed = "";

  beforeAll(async () => {
    before = await git("rev-parse", "HEAD");
    printed = await run([...command, "9.9.9", "--quick"], options);
  });

  test("changes neither the branch nor the tags nor the files", async () => {
    expect(await git("rev-parse", "HEAD")).toBe(before);
    expect(await git("tag")).toBe("");
    expect(await git("status", "--porcelain")).toBe("");
    expect(printed).toContain("Dry run: nothing was committed or tagged in this repository.");
    expect(printed).toContain("release: 9.9.9");
  });

  test("makes the packages, the executable, the list of what is inside, and checksums of all", async () => {
    const names = [
      "LICENSES.txt",
      `plantstore-9.9.9-${findOwnTarget()}`,
      "plantstore-9.9.9.cdx.json",
      "plantstore-9.9.9.tgz",
      "plantstore-client-9.9.9.tgz",
    ];
    const folder = join(repository.path, "release");
    expect(readdirSync(folder).toSorted()).toEqual(["SHA256SUMS", ...names].toSorted());
    const checked = await run(["sha256sum", "--check", "SHA256SUMS"], { cwd: folder });
    const sound = names.map((name) => `${name}: OK`);
    expect(checked.trim().split("\n").toSorted()).toEqual(sound.toSorted());
    const executable = join(folder, names[1] as string);
    expect(await run([executable, "version"], { cwd: folder })).toBe("9.9.9\n");
  });

  test("has the version in package.json alone, and the changelog under it", async () => {
    expect(printed).toMatch(/^\+## 9\.9\.9 \(\d{4}-\d\d-\d\d\)$/m);
    const changed = [...printed.matchAll(/^\+.*"9\.9\.9".*$/gm)].map(([line]) => line);
    expect(changed).toEqual(['+  "version": "9.9.9",', '+  "version": "9.9.9",']);
    const packed = ["tar", "-xzOf", "release/plantstore-9.9.9.tgz", "package/package.json"];
    expect(JSON.parse(await run(packed, options))).toMatchObject({ version: "9.9.9" });
  });

  test("lists every package that is in the artefacts, with its licence, and no other", () => {
    const { metadata, components, dependencies } = JSON.parse(
      read("plantstore-9.9.9.cdx.json"),
    ) as {
      metadata: { component: object };
      components: { name: string; version: string; licenses: object[]; hashes?: object[] }[];
      dependencies: { ref: string; dependsOn?: string[] }[];
    };
    expect(metadata.component).toMatchObject({ name: "plantstore", version: "9.9.9" });
    const inside = [...Object.keys(packageJson.optionalDependencies), ...bundled];
    const inRuntime = ["BoringSSL", "JavaScriptCore", "SQLite"];
    const names = components.map(({ name }) => name);
    expect(names.toSorted()).toEqual([...inside, ...inRuntime].toSorted());
    for (const { name, version, licenses, hashes } of components) {
      expect(version).toMatch(/^[\w.-]+$/);
      expect(licenses.length).toBeGreaterThan(0);
      if (!inRuntime.includes(name)) expect(hashes?.length).toBeGreaterThan(0);
    }
    for (const { ref, dependsOn } of dependencies)
      if (ref.startsWith("@oven/bun-"))
        expect(dependsOn?.map((part) => part.split("@")[0]).toSorted()).toEqual(inRuntime);
  });
});

test("the list of packages in the builds has every one that the sources import", () => {
  const sources = [
    ...new Glob("{src,client,console,reference}/**/*.{ts,tsx,css}").scanSync(repository.path),
  ];
  expect(sources.length).toBeGreaterThan(100);
  const imported = sources.flatMap((file) => {
    const text = readFileSync(join(repository.path, file), "utf8");
    const named = text.matchAll(/(?: from |^import |resolve\()"((?:@[^/"]+\/)?[^."/@][^"/]*)/gm);
    return [...named]
      .map(([, name = ""]) => name)
      .filter((name) => !/^(node:.*|bun(:.*)?)$/.test(name));
  });
  expect([...new Set(imported)].filter((name) => !bundled.includes(name))).toEqual([]);
});

describe("a release is refused", () => {
  test.each([
    [["1.0"], "exited with 1:\n", "is not a version"],
    [["0.0.1"], "exited with 1:\n", `is lower than ${packageJson.version}`],
    [["9.9.10"], "exited with 1:\n", "CHANGELOG.md has nothing under 9.9.10"],
    [[], "exited with 2:\n", "usage:"],
    [["9.9.9", "9.9.8"], "exited with 2:\n", "usage:"],
    [["9.9.9", "--quick", "--tag"], "exited with 2:\n", "usage:"],
  ])("of the arguments %j", async (args, exited, says) => {
    const failure = await fail([...command, ...args], options);
    expect(failure).toContain(exited);
    expect(failure).toContain(says);
  });

  const empty = "# Changelog\\n\\n## 9.9.9\\n\\n## 1.0.0\\n\\nThe first version.\\n";
  test.each([
    ["whose tag exists", "git tag v9.9.9", "git tag --delete v9.9.9", "the tag v9.9.9 exists"],
    ["while work is not committed", "touch draft", "rm draft", "not committed"],
    [
      "that has nothing to tell",
      `printf '${empty}' > CHANGELOG.md && git commit --quiet --all --message nothing`,
      "git reset --quiet --hard HEAD~1",
      "nothing under 9.9.9",
    ],
  ])("%s", async (_, prepare, undo, says) => {
    await run(["sh", "-c", prepare], options);
    expect(await fail([...command, "9.9.9"], options)).toContain(says);
    await run(["sh", "-c", undo], options);
  });
});
