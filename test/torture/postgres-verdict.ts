/** What the clients were told, held against what is stored and shown in the end; and whether the services are sound. */

import type { Clients } from "../support/clients.ts";
import type { ServiceProcess } from "../support/command.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { probe, QUEUE_SECONDS_MAX, type Scene } from "./postgres-scene.ts";

/** Beyond the time that a write may wait, on a busy machine. */
const ANSWER_SLACK_MS = 5_000;

/** After the load has stopped: all in which what is stored, or shown, differs from what the clients were told. */
export async function compare(scene: Scene): Promise<string[]> {
  const { server, database, clients, quarrel, fleet } = scene;
  const rows = await server.run<StoredPlant>(
    "SELECT id, name, tag FROM plants ORDER BY id",
    database,
  );
  const shown = await Promise.all(
    fleet.services.map(async ({ started: { url } }) => {
      const plants = await readAll(url).catch(() => []);
      const isSame =
        plants.length === rows.length &&
        plants.every((plant, index) => isSamePlant(plant, rows[index] as StoredPlant));
      return isSame ? [] : [`${url} shows ${plants.length} plants, and not those of the database`];
    }),
  );
  return [
    ...clients.compare(rows.filter(({ id }) => id >= 0n)),
    ...quarrel.compare(rows.filter(({ id }) => id < 0n)),
    ...(rows.some((row) => isSamePlant(row, probe))
      ? []
      : ["the probe was acknowledged, and lost"]),
    ...shown.flat(),
  ];
}

async function readAll(url: string): Promise<StoredPlant[]> {
  const response = await fetch(`${url}/plants`, {
    headers: { authorization: `Bearer ${TEST_TOKEN}`, accept: "application/x-ndjson" },
  });
  // No id here is beyond what a number can hold.
  return Bun.JSONL.parse(await response.text()).map((line) => {
    const { id, name, tag = null } = line as { id: number; name: string; tag?: string };
    return { id: BigInt(id), name, tag };
  });
}

/** After all that: whether the services are sound, in time, and quiet. Ends them. */
export async function examine({ fleet, clients }: Scene): Promise<string[]> {
  const faults = await Promise.all([
    ...fleet.services.map(async (service) => [
      ...((await isReady(service))
        ? []
        : [`${service.started.url} is not ready when all is well again`]),
      ...(await findUnsound(service)),
    ]),
    ...fleet.ended.map(async ({ stderr }) => findErrors(await stderr)),
  ]);
  return [...faults.flat(), ...findDelays(clients)];
}

const isReady = ({ started }: ServiceProcess): Promise<boolean> =>
  fetch(`${started.url}/readyz`).then(
    ({ status }) => status === 200,
    () => false,
  );

/** Tells it to stop, which only the very process does that was started. */
export async function findUnsound(service: ServiceProcess): Promise<string[]> {
  service.kill("SIGTERM");
  const exitCode = await service.exited;
  const stderr = await service.stderr;
  const last = stderr.trimEnd().split("\n").at(-1);
  return [
    ...(exitCode === 0 ? [] : [`${service.started.url} ended by itself (${exitCode}): ${last}`]),
    ...findErrors(stderr),
  ];
}

function findErrors(stderr: string): string[] {
  const lines = stderr.split("\n").filter((line) => line.includes('"level":"error"'));
  return lines.map((line) => `a service logged an error: ${line}`);
}

export function findDelays({ answerMsMax }: Clients): string[] {
  return answerMsMax < QUEUE_SECONDS_MAX * 1_000 + ANSWER_SLACK_MS
    ? []
    : [`an answer took ${answerMsMax.toFixed(0)} ms, and ${QUEUE_SECONDS_MAX} s are promised`];
}
