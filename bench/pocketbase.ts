/** PocketBase: from Debian's unstable distribution, unpacked and not installed. */

import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { timeBulk } from "./load.ts";
import type { Sample } from "./results.ts";
import { type Api, ask, plant, type Server, startServer, WrongAnswer } from "./servers.ts";
import { TOKEN } from "./settings.ts";
import { countRows, makePath, withDatabase } from "./stores.ts";

export const POCKETBASE = "PocketBase";

const cache = join(import.meta.dir, "node_modules/.cache/pocketbase");
const EMAIL = "bench@example.com";
/** Plants in a request of its batch API. */
export const BATCH_LENGTH = 1_000;
const env = {
  BENCH_EMAIL: EMAIL,
  BENCH_TOKEN: TOKEN,
  BENCH_BATCH_LENGTH: String(BATCH_LENGTH),
};

const findPackage = (): string | undefined =>
  existsSync(cache) ? readdirSync(cache).find((name) => name.endsWith(".deb")) : undefined;

/** Undefined if it was not downloaded. */
export const findPocketBaseVersion = (): string | undefined => findPackage()?.split("_")[1];

function run(...command: readonly string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...command], {
    env: { ...process.env, ...env },
  });
  if (exitCode === 0) return stdout.toString();
  throw new Error(`${command.join(" ")} failed: ${stderr.toString().trim()}`);
}

/** Downloads and unpacks it once. Throws where there is no Debian, or no network. */
async function findProgram(): Promise<string> {
  // The package calls the program `base`, as its source does.
  const program = join(cache, "usr/bin/base");
  if (existsSync(program)) return program;
  if (Bun.which("dpkg-deb") === null) throw new Error("it comes as a package of Debian");
  const mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)").split("\n")[0] ?? "";
  if (mirror === "") throw new Error("no mirror of Debian is configured");
  const architecture = run("dpkg", "--print-architecture").trim();
  mkdirSync(cache, { recursive: true });
  const index = join(cache, "Packages.xz");
  await download(`${mirror}dists/unstable/main/binary-${architecture}/Packages.xz`, index);
  const entry = /^Package: pocketbase\n(?:.+\n)*/m.exec(run("xz", "-dc", index))?.[0] ?? "";
  const [path, digest] = [/^Filename: (.+)$/m, /^SHA256: (.+)$/m].map(
    (line) => line.exec(entry)?.[1],
  );
  if (path === undefined) throw new Error("Debian's unstable distribution does not have it");
  const file = join(cache, path.replace(/^.*\//, ""));
  const found = await download(mirror + path, file);
  if (found !== digest) throw new Error(`${path} is not what the index of Debian names`);
  run("dpkg-deb", "-x", file, cache);
  return program;
}

/** Returns the digest. */
async function download(url: string, path: string): Promise<string> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
  const bytes = await response.bytes();
  await Bun.write(path, bytes);
  return new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
}

/** The superuser signs in, and has the token for its requests. */
async function signIn(url: string): Promise<Api> {
  const api = `${url}/api/collections`;
  const response = await fetch(`${api}/_superusers/auth-with-password`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ identity: EMAIL, password: TOKEN }),
  });
  const { token } = (await response.json()) as { readonly token: string };
  const plants = "/api/collections/plants/records";
  // Without the total it counts no plants, as none of the others does.
  return { plants, token, isIdText: true, page: `${plants}?perPage=100&sort=id&skipTotal=true` };
}

export interface Served {
  readonly server: Server;
  readonly countRows: () => number;
}

/** With its own settings, on an empty store or on so many plants. */
export async function servePocketBase(stored: number): Promise<Served> {
  const program = await findProgram();
  const folder = makePath("pocketbase");
  const command = [
    program,
    `--dir=${folder}`,
    `--migrationsDir=${join(import.meta.dir, "peers/pocketbase")}`,
    "--automigrate=false",
  ];
  run(...command, "migrate", "up");
  const file = join(folder, "data.db");
  withDatabase(file, (db) =>
    db.run(
      `WITH RECURSIVE ids(id) AS (SELECT 0 WHERE ?1 > 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?1)
       INSERT INTO plants (id, name, tag)
       SELECT CAST(id AS TEXT), 'Monstera deliciosa ' || id, 'tag ' || (id % 50) FROM ids`,
      [stored],
    ),
  );
  const server = await startServer({
    command: ["sh", "-c", 'exec "$@" --http="127.0.0.1:$PORT"', "sh", ...command, "serve"],
    env,
    signIn,
    durability: "WAL, synchronous=NORMAL, its default",
  });
  return { server, countRows: () => countRows(file) };
}

/** Creates plants from this id on, by its batch API: one transaction after the other. */
export function importIntoPocketBase(server: Server, first: number, rows: number): Promise<Sample> {
  const { url, api } = server;
  const bodies: string[] = [];
  for (let from = first; from < first + rows; from += BATCH_LENGTH) {
    const requests = Array.from({ length: BATCH_LENGTH }, (_, index) => ({
      method: "POST",
      url: api.plants,
      body: { id: String(from + index), name: plant.name, tag: `tag ${index % 50}` },
    }));
    bodies.push(JSON.stringify({ requests }));
  }
  return timeBulk(server, rows, async () => {
    const answers: string[] = [];
    for (const body of bodies) {
      const response = await ask(`${url}/api/batch`, { method: "POST", body }, api.token);
      answers.push(await response.text());
      if (!response.ok) throw new WrongAnswer(`${response.status} ${answers.at(-1)}`);
    }
    const statuses = () =>
      answers.flatMap((answer) => JSON.parse(answer) as { readonly status: number }[]);
    return () => statuses().filter(({ status }) => status === 200).length;
  });
}
