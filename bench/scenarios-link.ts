/** An export over a slow link: a network namespace with a shaped interface. Needs Linux, root, iproute2 and curl. */

import { createDemoPlants } from "../scripts/demo-plants.ts";
import { type Candidate, measureTable, type Run, type Scenario } from "./measure.ts";
import { readCpuSeconds } from "./processes.ts";
import { ratioAtLeast } from "./results.ts";
import { headers, servePlants, type Server, WrongAnswer } from "./servers.ts";
import { STORED } from "./settings.ts";
import { makePath, makeSchema, withDatabase } from "./stores.ts";

const MBIT = 20;
const HOST = "10.213.47.1";

function run(command: string): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(command.split(" "));
  if (exitCode !== 0) throw new Error(`${command}: ${stderr.toString().trim()}`);
  return stdout.toString();
}

/** What the host sends into the namespace passes the shaper. Returns the name of the namespace. */
function openLink({ stack }: Run): string {
  const name = `plants${process.pid}`;
  run(`ip netns add ${name}`);
  stack.defer(() => void run(`ip netns delete ${name}`));
  run(`ip link add ${name}a type veth peer name ${name}b netns ${name}`);
  run(`ip addr add ${HOST}/30 dev ${name}a`);
  run(`ip link set ${name}a up`);
  run(`ip -n ${name} addr add ${HOST.replace(/1$/, "2")}/30 dev ${name}b`);
  run(`ip -n ${name} link set ${name}b up`);
  run(`tc qdisc add dev ${name}a root tbf rate ${MBIT}mbit burst 32kbit latency 100ms`);
  return name;
}

/** A nursery's stock. Plants that differ only in their ids would shrink to a hundredth. */
function fillWithStock(): string {
  const path = makePath();
  makeSchema(`sqlite:${path}`);
  withDatabase(path, (db) => {
    const insert = db.prepare("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
    db.transaction(() => {
      for (const { id, name, tag } of createDemoPlants(STORED)) insert.run(id, name, tag ?? null);
    })();
  });
  return path;
}

const unpackers: Readonly<Record<string, (bytes: Uint8Array<ArrayBuffer>) => Uint8Array>> = {
  identity: (bytes) => bytes,
  gzip: (bytes) => Bun.gunzipSync(bytes),
  zstd: (bytes) => Bun.zstdDecompressSync(bytes),
};

const exporting = (link: string, server: Server, coding: string, sizes: Map<string, number>) =>
  ({
    name: coding === "identity" ? "as it is" : coding,
    role: coding === "identity" ? "limit" : "ours",
    measure: async () => {
      const file = makePath("export.ndjson");
      const { port } = new URL(server.url);
      const sent = [`Accept-Encoding: ${coding}`, "Accept: application/x-ndjson"];
      const all = [...sent, `Authorization: ${headers.authorization}`].flatMap((one) => [
        "-H",
        one,
      ]);
      const command = ["ip", "netns", "exec", link, "curl", "-sS", "-o", file, ...all];
      const cpuBefore = readCpuSeconds(server.pids);
      const child = Bun.spawn(
        [...command, "-w", "%{time_total}", `http://${HOST}:${port}/plants`],
        {
          stdout: "pipe",
        },
      );
      const seconds = Number(await child.stdout.text());
      if ((await child.exited) !== 0) throw new Error("curl failed");
      const cpuSeconds = readCpuSeconds(server.pids) - cpuBefore;
      const bytes = await Bun.file(file).bytes();
      const text = unpackers[coding]?.(bytes) ?? new Uint8Array();
      let plants = 0;
      for (const byte of text) if (byte === 10) plants++;
      // Plus the create of the start-up check.
      if (plants !== STORED + 1) throw new WrongAnswer(`${plants} of ${STORED + 1} plants`);
      sizes.set(coding, bytes.length);
      const cpuUs = (cpuSeconds * 1e6) / plants;
      return { value: plants / seconds, rssMb: server.rssMb(), cpuUs };
    },
  }) satisfies Candidate;

export const compress: Scenario = {
  name: "compress",
  title: "Export over a slow link",
  user: "shops and branches behind a slow connection",
  about: `GET /plants as NDJSON: a million plants of a nursery over ${MBIT} Mbit/s, as they are and in a content coding.`,
  measure: async (given) => {
    const link = openLink(given);
    const server = await servePlants(`sqlite:${fillWithStock()}`, { env: { HOST: "0.0.0.0" } });
    given.stack.defer(server.stop);
    const sizes = new Map<string, number>();
    const table = await measureTable(given.isQuick, {
      name: `over ${MBIT} Mbit/s`,
      unit: "plants a second",
      rounds: 1,
      candidates: ["identity", "zstd", "gzip"].map((coding) =>
        exporting(link, server, coding, sizes),
      ),
    });
    const [plain, zstd] = table.rows;
    const megabytes = [...sizes].map(([coding, size]) => `${coding} ${(size / 1e6).toFixed(1)} MB`);
    process.stderr.write(`Sent: ${megabytes.join(", ")}.\n`);
    return {
      tables: [table],
      targets: [
        ratioAtLeast(
          "export over a slow link: zstd / as it is",
          zstd,
          plain,
          4,
          "The link is faster than the compressor.",
        ),
      ],
    };
  },
};
