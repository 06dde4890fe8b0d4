/** A disk that is full, that fails to sync, or whose file is gone: refused, and never lost. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { runCommand, type ServiceProcess, spawnService } from "../support/command.ts";
import { lackOfShim } from "../support/disk-shim.ts";
import { expectAlive, expectRefusal, failure } from "../support/expect.ts";
import { makeTemporaryFolder, makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { isReplay, makePlants, type StoredPlant } from "../support/plants.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { canMount, mountSmallFolder, runSystemCommand } from "../support/small-disk.ts";
import { checkIntegrity, makeStore, readMainFile, readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";
import { ShimmedDisk } from "../torture/shimmed-disk.ts";

/** A service whose syncs fail when the test says so. */
async function spawnUnsynced(settings: Readonly<Record<string, string>> = {}) {
  await using opened = new AsyncDisposableStack();
  const disk = opened.use(new ShimmedDisk());
  const service = await disk.start(settings);
  if (service === undefined) throw new Error("the service was killed");
  opened.use(service);
  const stack = opened.move();
  return {
    process: service,
    path: disk.storePath,
    sender: makeSender(service.started.url),
    startFailing: () => disk.control.set({ syncFailsPercent: 100 }),
    stopFailing: () => disk.control.set({}),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

type UnsyncedService = Awaited<ReturnType<typeof spawnUnsynced>>;

const GROUPS_MAX = 500;

function makeSender(url: string) {
  const acknowledged: StoredPlant[] = [];
  const refused: StoredPlant[] = [];
  /** At once, so they share commits. Every other answer has to be `store_unavailable`. */
  const sendAll = async (plants: readonly StoredPlant[]): Promise<Response[]> => {
    const responses = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    for (const [index, plant] of plants.entries()) {
      const response = responses[index] as Response;
      if (response.status !== 200) await expectRefusal(response, "store_unavailable");
      (response.status === 200 ? acknowledged : refused).push(plant);
    }
    return responses;
  };
  const sendNew = (length: number, nameLength = 10): Promise<Response[]> => {
    const first = acknowledged.length + refused.length;
    const plants = makePlants(length, (index) => ({
      id: BigInt(first + index),
      name: `${first + index} ${"🌵".repeat(nameLength)}`,
      tag: (first + index) % 2 === 0 ? null : "spiny",
    }));
    return sendAll(plants);
  };
  return {
    acknowledged,
    refused,
    sendAll,
    sendNew,
    resendRefused: () => sendAll(refused.splice(0)),
    /** New plants, group by group, until one is refused. */
    sendUntilRefused: async (length: number, nameLength: number): Promise<void> => {
      const before = refused.length;
      for (let groups = 0; refused.length === before; groups++) {
        expect(groups).toBeLessThan(GROUPS_MAX);
        await sendNew(length, nameLength);
      }
    },
    /** What the file should hold, in its order. */
    expected: () => acknowledged.toSorted((one, other) => Number(one.id - other.id)),
  };
}

const settingsFor = (path: string) => ({
  DATABASE_URL: `sqlite:${path}`,
  PLANTSTORE_TOKEN: TEST_TOKEN,
  PLANTSTORE_DISK_FREE_BYTES_MIN: "0",
});

/** One plant is stored; the sync of the next one fails, and keeps failing until the test stops it. */
async function failOneSync(
  { sender, startFailing }: UnsyncedService,
  before?: () => void,
): Promise<void> {
  await sender.sendNew(1);
  startFailing();
  before?.();
  await sender.sendNew(1);
  expect(sender.refused.length).toBe(1);
}

/** Asks until the answer has this status: an answer is kept for a second. */
async function readinessTurns(status: 200 | 503, url: string): Promise<Response> {
  let response: Response | undefined;
  await until(`/readyz answers ${status}`, async () => {
    response = await fetch(`${url}/readyz`);
    return response.status === status;
  });
  return response as Response;
}

/** From a disk with little room, through a full one, to one with room again. */
async function fillAndRecover(
  service: ServiceProcess,
  path: string,
  makeRoom: () => void,
): Promise<void> {
  const { url } = service.started;
  const sender = makeSender(url);
  await sender.sendUntilRefused(8, 1000);
  // What room is left may do for a small plant, and after that for a probe, until it does not.
  await sender.sendUntilRefused(1, 1);
  await sender.sendNew(8);
  expect(sender.acknowledged.length).toBeGreaterThan(8);
  expect(sender.refused.length).toBeGreaterThan(8);

  await expectRefusal(await readinessTurns(503, url), "store_unavailable");
  expect((await fetch(`${url}/livez`)).status).toBe(200);
  expect(readPlants(path)).toEqual(sender.expected());

  makeRoom();
  const responses = await sender.resendRefused();
  expect(responses.map((response) => [response.status, isReplay(response)])).toEqual(
    responses.map(() => [200, false]),
  );
  expect((await readinessTurns(200, url)).status).toBe(200);

  service.kill("SIGKILL");
  await service.exited;
  expect(readPlants(path)).toEqual(sender.expected());
  expect(checkIntegrity(path)).toBe("ok");
}

describe("a full disk: creates answer 503 and store nothing, until there is room again", () => {
  test.skipIf(Bun.which("prlimit") === null)("where a file may not grow", async () => {
    using at = makeWorkplace();
    // 1024 blocks of 512 bytes. Without the trap the signal would end the process.
    const limited = ["sh", "-c", 'trap "" XFSZ; ulimit -S -f 1024; exec "$@"', "sh"];
    await using service = await spawnService(settingsFor(at.store), limited);
    await fillAndRecover(service, at.store, () => {
      runSystemCommand("prlimit", "--pid", `${service.pid}`, "--fsize=unlimited");
    });
  });

  test.skipIf(!canMount)("where the file system has no free block", async () => {
    using folder = mountSmallFolder();
    const path = `${folder.path}/plants.db`;
    await using service = await spawnService(settingsFor(path));
    const filler = `${folder.path}/filler`;
    writeFileSync(filler, Buffer.alloc(2 ** 20));
    await fillAndRecover(service, path, () => rmSync(filler));
  });
});

test.skipIf(!canMount)(
  "a restart on a full disk answers the reads that were answered before it",
  async () => {
    using folder = mountSmallFolder("4M");
    const settings = settingsFor(`${folder.path}/plants.db`);
    const reads = ["/plants/1", "/plants?limit=2", "/plants?name=🌵&limit=2", "/plants/count"];
    const readAll = ({ started }: ServiceProcess): Promise<string[]> =>
      Promise.all(
        reads.map(async (path) => {
          const response = await send(started, "GET", path);
          return `${response.status} ${await response.text()}`;
        }),
      );
    let before: string[];
    {
      await using service = await spawnService(settings);
      const sender = makeSender(service.started.url);
      for (let count = 0; count < 20; count++) await sender.sendNew(8, 100);
      expect(sender.refused).toEqual([]);
      before = await readAll(service);
      expect(before.map((answer) => answer.slice(0, 3))).toEqual(before.map(() => "200"));
    }
    const filler = `${folder.path}/filler`;
    fillDisk(filler);
    await using service = await spawnService(settings);
    const { url } = service.started;
    expect(await readAll(service)).toEqual(before);
    const plant = { id: 1000n, name: "later", tag: null };
    await expectRefusal(await sendPlant(url, plant), "store_unavailable");
    expect(await readAll(service)).toEqual(before);

    rmSync(filler);
    expect((await sendPlant(url, plant)).status).toBe(200);
  },
);

test.skipIf(!canMount)("a start without room for SQLite's index names the full disk", async () => {
  using folder = mountSmallFolder();
  const path = `${folder.path}/plants.db`;
  makeStore(path, 1);
  fillDisk(`${folder.path}/filler`);
  const says = "Its disk is full: 0 bytes are free, and SQLite needs 32768";
  expect(await runCommand(["serve"], settingsFor(path))).toEqual(failure(1, says));
});

test.skipIf(!canMount)(
  "plants sent as fast as they are stored leave the free space that was asked for",
  async () => {
    const [freeBytesMin, nameLength] = [6_000_000, 50_000];
    using folder = mountSmallFolder("20M");
    const path = `${folder.path}/plants.db`;
    await using service = await spawnService({
      ...settingsFor(path),
      PLANTSTORE_DISK_FREE_BYTES_MIN: `${freeBytesMin}`,
    });
    const create = (id: bigint): Promise<Response> =>
      sendPlant(service.started.url, { id, name: "x".repeat(nameLength), tag: null });
    let id = 0n;
    let response = await create(id);
    while (response.status === 200) response = await create(++id);
    await expectRefusal(response, "disk_low");
    expect(id).toBeGreaterThan(20n);
    const { bavail, bsize } = statfsSync(folder.path);
    // Less one commit, which has the text twice.
    expect(bavail * bsize).toBeGreaterThan(freeBytesMin - 3 * nameLength);
  },
);

/** To the last block. */
function fillDisk(path: string): void {
  const descriptor = openSync(path, "w");
  try {
    for (;;) writeSync(descriptor, Buffer.alloc(4096));
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe("ENOSPC");
  } finally {
    closeSync(descriptor);
  }
}

test("another store in place of the folder is noticed by every thread: all that reads or writes answers 503", async () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/data/plants.db`;
  const PLANTSTORE_WORKERS = process.platform === "linux" ? "2" : "1";
  await using service = await spawnService({ ...settingsFor(path), PLANTSTORE_WORKERS });
  const { url } = service.started;
  const sender = makeSender(url);
  await sender.sendNew(8);
  const reads = "/plants/1 /plants /plants?limit=1000 /plants?q=a /plants/count /tags".split(" ");
  // A connection for each, so every thread gets some.
  const headers = { connection: "close" };
  const areAll = async (status: number): Promise<boolean> => {
    const asked = reads.flatMap((read) =>
      Array.from({ length: 8 }, () => send(service.started, "GET", read, { headers })),
    );
    return (await Promise.all(asked)).every((response) => response.status === status);
  };
  expect(await areAll(200)).toBe(true);
  renameSync(`${folder.path}/data`, `${folder.path}/old`);
  mkdirSync(`${folder.path}/data`);
  makeStore(path, 100);
  // A count may be two seconds old.
  await until("no thread reads the old store", () => areAll(503));
  await expectRefusal(await readinessTurns(503, url), "store_unavailable");
  const [response] = await sender.sendNew(1);
  expect(response?.status).toBe(503);
  expect(readPlants(path)).toHaveLength(100);
  expect(readPlants(`${folder.path}/old/plants.db`)).toEqual(sender.expected());

  // The searches above were asked while the other store was there.
  renameSync(`${folder.path}/data`, `${folder.path}/other`);
  renameSync(`${folder.path}/old`, `${folder.path}/data`);
  await until("every thread reads the store again", () => areAll(200));
  const found = await send(service.started, "GET", `/plants?name=${encodeURIComponent("🌵")}`, {
    headers: { accept: "application/x-ndjson" },
  });
  expect((await found.text()).trimEnd().split("\n")).toHaveLength(sender.expected().length);
  await readinessTurns(200, url);
  const [again] = await sender.sendNew(1);
  expect(again?.status).toBe(200);
});

const countDescriptors = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

describe.skipIf(lackOfShim() !== undefined)("a sync that fails", () => {
  test("refuses every create of its commit, until syncs succeed again", async () => {
    await using service = await spawnUnsynced();
    const { sender } = service;
    const { url } = service.process.started;
    for (let count = 0; count < 50; count++) await sender.sendNew(1);
    expect(sender.refused).toEqual([]);
    const logBytes = statSync(`${service.path}-wal`).size;

    service.startFailing();
    await sender.sendNew(16);
    expect(sender.refused.length).toBe(16);
    await expectRefusal(await readinessTurns(503, url), "store_unavailable");
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    const descriptors = countDescriptors(service.process.pid);
    for (let count = 0; count < 20; count++) await sender.sendNew(1);
    expect(sender.refused.length).toBe(36);
    expect(countDescriptors(service.process.pid)).toBe(descriptors);

    service.stopFailing();
    // Nothing of the commits is shown: sent again they are created.
    const again = await sender.resendRefused();
    expect(again.map((response) => [response.status, isReplay(response)])).toEqual(
      again.map(() => [200, false]),
    );
    // The file was opened again, and its log emptied into the main file.
    expect(statSync(`${service.path}-wal`).size).toBeLessThan(logBytes);
    expect(readMainFile(service.path).slice(0, 50)).toEqual(sender.expected().slice(0, 50));
    expect((await readinessTurns(200, url)).status).toBe(200);

    service.process.kill("SIGKILL");
    await service.process.exited;
    expect(readPlants(service.path)).toEqual(sender.expected());
    expect(checkIntegrity(service.path)).toBe("ok");
  });

  test.each([
    ["the file gone meanwhile", ["", "-wal", "-shm"], false],
    ["its WAL gone meanwhile", ["-wal"], false],
    ["its WAL gone a moment before", ["-wal"], true],
  ] as const)(
    "and %s: no new one is made in its place, until it is back",
    async (_name, suffixes, isBefore) => {
      await using service = await spawnUnsynced();
      const { sender, path } = service;
      const move = (): void => {
        for (const suffix of suffixes) renameSync(path + suffix, `${path}.gone${suffix}`);
      };
      await failOneSync(service, isBefore ? move : undefined);
      if (!isBefore) move();
      service.stopFailing();
      const [response] = await sender.resendRefused();
      expect(response?.status).toBe(503);
      // If the removal is noticed before the sync, what can be read is on disk.
      const reads = isBefore ? [] : ["/plants", "/plants/1", "/plants?name=a", "/readyz"];
      for (const read of reads)
        expect((await send(service.process.started, "GET", read)).status).toBe(503);
      for (const suffix of suffixes) expect(existsSync(path + suffix)).toBe(false);

      for (const suffix of suffixes) renameSync(`${path}.gone${suffix}`, path + suffix);
      await sender.resendRefused();
      expect(sender.refused).toEqual([]);
      expect(readPlants(path)).toEqual(sender.expected());
    },
  );

  test("and its WAL removed a moment before: a clean stop saves what was acknowledged", async () => {
    await using service = await spawnUnsynced();
    await failOneSync(service, () => rmSync(`${service.path}-wal`));
    service.stopFailing();
    await service.sender.sendNew(1);
    expect(service.sender.acknowledged).toHaveLength(1);
    service.process.kill("SIGTERM");
    expect(await service.process.exited).toBe(0);
    expect(readPlants(service.path)).toEqual(service.sender.expected());
    expect(checkIntegrity(service.path)).toBe("ok");
  });

  test("with another writer or reader in the way of opening the file again: 503, alive meanwhile, over when it is gone", async () => {
    await using service = await spawnUnsynced(limits({ queueSecondsMax: 1 }));
    const { sender, path } = service;
    const { url } = service.process.started;
    for (const [id, statements] of [
      [100n, ["BEGIN IMMEDIATE"]],
      [101n, ["BEGIN", "SELECT count(*) FROM plants"]],
    ] as const) {
      await failOneSync(service);
      service.stopFailing();

      using other = new Database(path, { readwrite: true, create: false });
      for (const statement of statements) other.query(statement).all();
      const plant = { id, name: "in the way", tag: null };
      // In the way until after the answer.
      const response = await expectAlive(url, sendPlant(url, plant));
      await expectRefusal(response, "store_busy", "store_unavailable");

      other.run("ROLLBACK");
      await sender.sendAll([plant]);
      await sender.resendRefused();
      expect(sender.refused).toEqual([]);
      expect(readPlants(path)).toEqual(sender.expected());
    }
  });
});
