/**
 * npm run release -- <version>: builds a release in a clone of this repository, and copies its artefacts to release/.
 * This is a dry run; --tag also pulls the commit and the tag from the clone into this repository. --quick skips the
 * clean install, the tests and the executables for other machines. --freeze only writes the schemas of this tree to
 * test/frozen/.
 */

import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import packageJson from "../package.json";
import { toRecord } from "../src/auth/token.ts";
import { resolveConfig } from "../src/config.ts";
import { scopes } from "../src/domain/token.ts";
import { describeApi } from "../src/http/description.ts";
import { openStore } from "../src/store/open.ts";
import { listStatements, steps } from "../src/store/postgres/schema.ts";
import { migrations } from "../src/store/sqlite/database.ts";
import { bundled } from "./build-licenses.ts";
import { findOwnTarget, readLock, targets, writeChecksums } from "./build-executable.ts";

const root = join(import.meta.dir, "..");

/** The token in the frozen stores. It is valid nowhere else. */
export const FROZEN_TOKEN = "pst_jSOdLbcsz3T6xy08jOhSaI5a6DgbuNQLdcU1_0vMKSL";

/** The tests of the frozen files, all that --quick runs. */
const frozenTests = ["test/compatibility.test.ts", "test/store/upgrade.test.ts"];

/** The release cannot be made, and the message says why. */
class ReleaseError extends Error {}

function run(command: readonly string[], cwd: string, output: "inherit" | "pipe" = "pipe"): string {
  const { success, stdout, stderr } = Bun.spawnSync([...command], {
    cwd,
    stdout: output,
    stderr: output,
  });
  if (!success) throw new ReleaseError(`${command.join(" ")} failed\n${stderr?.toString() ?? ""}`);
  return stdout?.toString() ?? "";
}

/** Throws unless the version is new and not lower, the work is committed, and the changelog has a section for it. */
async function requireReleasable(version: string): Promise<void> {
  if (!/^\d+\.\d+\.\d+$/.test(version))
    throw new ReleaseError(
      `${JSON.stringify(version)} is not a version; expected one such as 1.0.0`,
    );
  if (Bun.semver.order(version, packageJson.version) < 0)
    throw new ReleaseError(`${version} is lower than ${packageJson.version}`);
  if (run(["git", "tag", "--list", `v${version}`], root) !== "")
    throw new ReleaseError(`the tag v${version} exists`);
  if (run(["git", "status", "--porcelain"], root) !== "")
    throw new ReleaseError("the working tree has changes that are not committed");
  const changelog = await Bun.file(join(root, "CHANGELOG.md")).text();
  if (findSection(changelog, version) === "")
    throw new ReleaseError(`CHANGELOG.md has nothing under ${version}`);
}

/** The changelog's section of a version without a date. */
const findSection = (changelog: string, version: string): string =>
  changelog.split(`## ${version}\n`)[1]?.split(/^## /m)[0]?.trim() ?? "";

/** Sets the version of the service and the client, and dates the changelog. npm updates the lock file. */
async function setVersion(clone: string, version: string): Promise<void> {
  for (const folder of [clone, join(clone, "client")])
    run(["npm", "version", version, "--no-git-tag-version", "--allow-same-version"], folder);
  const path = join(clone, "CHANGELOG.md");
  const date = new Date().toISOString().slice(0, 10);
  const changelog = await Bun.file(path).text();
  await Bun.write(path, changelog.replace(`## ${version}\n`, `## ${version} (${date})\n`));
}

/** Writes what later versions are tested against: the description, and a store of each schema. */
async function freeze(clone: string): Promise<void> {
  const { config } = resolveConfig({}, {});
  const path = join(clone, "test/frozen/openapi.json");
  await Bun.write(path, `${JSON.stringify(describeApi(config))}\n`);
  await freezeSchemas(clone);
}

async function freezeSchemas(clone: string): Promise<void> {
  const frozen = join(clone, "test/frozen");
  const { config } = resolveConfig({}, {});
  const file = join(frozen, `sqlite-schema-${migrations.length}.db.gz`);
  if (!existsSync(file)) {
    const path = join(clone, "frozen.db");
    const store = await openStore(`sqlite:${path}`, config);
    await store.createPlants([
      { id: 1n, name: "Monstera deliciosa", tag: "tropical" },
      { id: 2n ** 63n - 1n, name: "Größte 🌱", tag: undefined },
      { id: -(2n ** 63n), name: "", tag: "" },
    ]);
    await store.createToken(toRecord(FROZEN_TOKEN, { name: "till", scopes, createdAtMs: 0 }));
    await store.close();
    await Bun.write(file, Bun.gzipSync(await Bun.file(path).bytes(), { level: 9 }));
    rmSync(path);
  }

  const script = listStatements(undefined).map((statement) => `${statement};\n`);
  await Bun.write(join(frozen, `postgres-schema-${steps.length}.sql`), script.join("\n"));
}

function commit(clone: string, version: string, section: string): void {
  run(["git", "add", "--all"], clone);
  run(["git", "commit", "--quiet", "--message", `release: ${version}`], clone);
  run(
    [
      "git",
      "tag",
      "--annotate",
      `v${version}`,
      "--cleanup=verbatim",
      "--message",
      `${version}\n\n${section}`,
    ],
    clone,
  );
}

interface Bom {
  readonly metadata: { readonly component: { name: string } };
  components: { readonly "bom-ref": string }[];
  dependencies: { readonly ref: string; readonly dependsOn?: string[] }[];
}

/**
 * Libraries inside the runtime. No package lists them, but we ship their vulnerabilities. The release runs on the
 * runtime version that it ships. On macOS the service uses the system's or Homebrew's SQLite instead.
 */
function listRuntimeParts() {
  const { boringssl, sqlite, webkit } = process.versions as Readonly<Record<string, string>>;
  const parts = [
    ["SQLite", sqlite, "blessing", `pkg:generic/sqlite@${sqlite}`],
    ["JavaScriptCore", webkit, "LGPL-2.0-or-later", `pkg:github/oven-sh/WebKit@${webkit}`],
    ["BoringSSL", boringssl, "Apache-2.0", `pkg:github/google/boringssl@${boringssl}`],
  ] as const;
  return parts.map(([name, version, license, purl]) => {
    if (version === undefined)
      throw new ReleaseError(`the runtime does not report its version of ${name}`);
    return {
      "bom-ref": `${name}@${version}`,
      type: "library",
      name,
      version,
      description: `In the runtime, Bun ${Bun.version}.`,
      licenses: [{ license: { id: license } }],
      purl,
      cpe: name === "SQLite" ? `cpe:2.3:a:sqlite:sqlite:${version}:*:*:*:*:*:*:*` : undefined,
    };
  });
}

/** Writes a CycloneDX SBOM: the packages in the artefacts and the libraries in the runtime, no development tools. */
async function writeBom(clone: string, path: string): Promise<void> {
  const listed = ["npm", "sbom", "--package-lock-only", "--sbom-format", "cyclonedx"];
  const bom = JSON.parse(run(listed, clone)) as Bom;
  const { name, optionalDependencies } = packageJson;
  const { packages } = await readLock();
  const names = [...Object.keys(optionalDependencies), ...bundled];
  // A development tool may depend on another version of one of them.
  const inside = names.map((found) => `${found}@${packages[`node_modules/${found}`]?.version}`);
  bom.metadata.component.name = name;
  bom.components = bom.components.filter((component) => inside.includes(component["bom-ref"]));
  bom.dependencies = bom.dependencies.filter(({ ref }) => inside.includes(ref));
  if (bom.components.length !== inside.length)
    throw new ReleaseError(`npm sbom does not list all of ${inside.join(", ")}`);
  const parts = listRuntimeParts();
  const partRefs = parts.map((part) => part["bom-ref"]);
  bom.dependencies = bom.dependencies.map((one) =>
    one.ref.startsWith("@oven/bun-") ? { ...one, dependsOn: partRefs } : one,
  );
  bom.components.push(...parts);
  bom.dependencies.push(...partRefs.map((ref) => ({ ref, dependsOn: [] })));
  await Bun.write(path, `${JSON.stringify(bom, null, 2)}\n`);
}

async function makeArtefacts(clone: string, version: string, isQuick: boolean): Promise<void> {
  const folder = join(clone, "release");
  mkdirSync(folder);
  run(["npm", "pack", "--pack-destination", folder], clone);
  run(["npm", "run", "build:client"], clone);
  run(["npm", "pack", "--pack-destination", folder], join(clone, "client"));
  for (const target of isQuick ? [findOwnTarget()] : Object.keys(targets))
    run([process.execPath, "scripts/build-executable.ts", "--target", target], clone);
  cpSync(join(clone, "dist/LICENSES.txt"), join(folder, "LICENSES.txt"));
  await writeBom(clone, join(folder, `plantstore-${version}.cdx.json`));
  await writeChecksums(folder);
}

const say = (what: string): void => void process.stdout.write(`${what}\n`);

async function release(version: string, isQuick: boolean, isTagged: boolean): Promise<void> {
  await requireReleasable(version);
  const section = findSection(await Bun.file(join(root, "CHANGELOG.md")).text(), version);
  const clone = mkdtempSync(join(tmpdir(), "plantstore-release-"));
  try {
    run(["git", "clone", "--quiet", "--no-hardlinks", root, clone], root);
    say(`Releasing ${version} in ${clone}`);
    if (isQuick) symlinkSync(join(root, "node_modules"), join(clone, "node_modules"));
    else run(["npm", "ci"], clone, "inherit");
    await setVersion(clone, version);
    await freeze(clone);
    if (isQuick) run([process.execPath, "test", ...frozenTests], clone);
    else run(["npm", "run", "test:long"], clone, "inherit");
    commit(clone, version, section);
    await makeArtefacts(clone, version, isQuick);
    rmSync(join(root, "release"), { recursive: true, force: true });
    cpSync(join(clone, "release"), join(root, "release"), { recursive: true });
    if (isTagged) run(["git", "pull", "--quiet", "--ff-only", "--tags", clone], root);
    say(run(["git", "show", "--stat", "--format=%s", "HEAD"], clone));
    say(
      run(
        ["git", "show", "--unified=0", "--format=", "HEAD", "--", "*package.json", "*.md"],
        clone,
      ),
    );
    say(await Bun.file(join(root, "release/SHA256SUMS")).text());
    say(
      isTagged
        ? `Tagged v${version}. To publish it: git push --follow-tags, npm publish release/plantstore-${version}.tgz and npm publish --access public release/plantstore-client-${version}.tgz`
        : "Dry run: nothing was committed or tagged in this repository. The artefacts are in release/. Use --tag to release.",
    );
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    options: { quick: { type: "boolean" }, tag: { type: "boolean" }, freeze: { type: "boolean" } },
    allowPositionals: true,
  });
  const { quick = false, tag = false } = values;
  const [version, ...others] = positionals;
  if (values.freeze) {
    await freezeSchemas(root);
    process.exit();
  }
  if (version === undefined || others.length > 0 || (quick && tag)) {
    process.stderr.write("usage: npm run release -- <version> [--quick | --tag]\n");
    process.exit(2);
  }
  try {
    await release(version, quick, tag);
  } catch (error) {
    if (!(error instanceof ReleaseError)) throw error;
    process.stderr.write(`release: ${error.message}\n`);
    process.exitCode = 1;
  }
}
