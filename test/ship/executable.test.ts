/** The executable: built for this machine, and used. Those for other machines are only checked for their format. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json";
import { findFormatFault, findOwnTarget, type TargetName } from "../../scripts/build-executable.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { copySources, fail, run, useEverything } from "../support/shipped.ts";

const sources = copySources();
const folder = join(sources.path, "release");
const name = `plantstore-${packageJson.version}-${findOwnTarget()}`;
const executable = join(folder, name);

beforeAll(() => run(["npm", "run", "build:executable"], { cwd: sources.path }));
afterAll(() => sources[Symbol.dispose]());

describe("the executable for this machine", () => {
  test("serves, searches and backs up, with workers and both pages, whatever lies in the folder", () =>
    useEverything([executable]));

  test("says its version, and has a checksum beside it", async () => {
    expect(await run([executable, "version"], { cwd: folder })).toBe(`${packageJson.version}\n`);
    expect(readdirSync(folder).toSorted()).toEqual(["SHA256SUMS", name]);
    const checked = await run(["sha256sum", "--check", "SHA256SUMS"], { cwd: folder });
    expect(checked).toBe(`${name}: OK\n`);
  });

  test("has the format of its target, and of no other", async () => {
    const others = [
      "linux-x64",
      "linux-arm64-musl",
      "linux-x64-musl",
      "darwin-x64",
      "darwin-arm64",
    ];
    expect(await findFormatFault(executable, findOwnTarget())).toBeUndefined();
    for (const other of others.filter((target) => target !== findOwnTarget()))
      expect(await findFormatFault(executable, other as TargetName)).toBeString();
  });
});

test("an unknown target is refused, and the known ones are named", async () => {
  using empty = makeTemporaryFolder();
  const script = join(sources.path, "scripts/build-executable.ts");
  const failure = await fail([process.execPath, script, "--target", "windows-x64"], {
    cwd: empty.path,
  });
  expect(failure).toMatch(/exited with 2:\n--target windows-x64: expected all, linux-x64/);
});
