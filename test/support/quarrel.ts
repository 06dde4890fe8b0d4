/** Many who want different things of the same plants, on services that may fail: not all can be told that they have it. */

import { isSamePlant, type StoredPlant, toBody } from "./plants.ts";
import type { Random } from "./random.ts";
import { TEST_TOKEN } from "./service.ts";

interface Surroundings {
  readonly findUrl: () => string;
  readonly untilQuiet: () => Promise<void>;
}

/** Under each id different plants are created, by several at about the same time, and never changed. */
const VARIANTS = 3;
const WINDOW = 20;
/** All change these, each change on the condition that nobody else has made one meanwhile. */
const CHANGED_IDS = [-1n, -2n, -3n, -4n, -5n];
const CREATED_BELOW = -1_000n;
const RETRY_MS = 20;

/** What became of one content of a plant that all change; no content is ever sent twice. */
interface Version {
  readonly id: bigint;
  isMade: boolean;
  /** Changes that replaced or removed it, and those of which that is not known. */
  endings: number;
  unsettledEndings: number;
}

export class Quarrel implements AsyncDisposable {
  readonly counts = { created: 0, replayed: 0, taken: 0, replaced: 0, removed: 0, tooLate: 0 };
  private readonly faults: string[] = [];
  private readonly created = new Map<bigint, StoredPlant>();
  private readonly taken: StoredPlant[] = [];
  private readonly versions = new Map<string, Version>();
  private readonly surroundings: Surroundings;
  private readonly random: Random;
  private readonly working: Promise<unknown>;
  private creates = 0;
  private isOver = false;

  constructor(length: number, surroundings: Surroundings, random: Random) {
    this.surroundings = surroundings;
    this.random = random;
    this.working = Promise.all(Array.from({ length }, () => this.work()));
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await this.working;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Everything in which these rows, or what the quarrellers were told, cannot be. */
  compare(rows: readonly StoredPlant[]): string[] {
    const faults = [...this.faults];
    const stored = new Map(rows.map((row) => [row.id, row]));
    for (const plant of this.created.values()) {
      const row = stored.get(plant.id);
      if (row === undefined) faults.push(`${plant.id}: acknowledged, and lost`);
      else if (!isSamePlant(row, plant)) faults.push(`${plant.id}: acknowledged, and otherwise`);
    }
    for (const plant of this.taken) {
      const row = stored.get(plant.id);
      if (row === undefined) faults.push(`${plant.id}: its id was taken, and now is not`);
      else if (isSamePlant(row, plant)) faults.push(`${plant.id}: refused, and stored`);
    }
    for (const [name, version] of this.versions) {
      const { id, isMade, endings, unsettledEndings } = version;
      const isThere = stored.get(id)?.name === name;
      if (endings > 1) faults.push(`${id}: ${name} was replaced or removed ${endings} times`);
      if (endings > 0 && isThere)
        faults.push(`${id}: ${name} was replaced or removed, and is back`);
      if (isMade && !isThere && endings + unsettledEndings === 0)
        faults.push(`${id}: ${name} was acknowledged, and lost`);
    }
    for (const id of CHANGED_IDS) {
      const name = stored.get(id)?.name;
      if (name !== undefined && !this.versions.has(name)) faults.push(`${id}: ${name} is nobody's`);
    }
    return faults;
  }

  private async work(): Promise<void> {
    while (!this.isOver) await (this.random.chance(50) ? this.create() : this.change());
  }

  private async create(): Promise<void> {
    const offset = Math.floor(this.creates++ / VARIANTS) + this.random.below(WINDOW);
    const id = CREATED_BELOW - BigInt(offset);
    const plant = { id, name: `${id} ${this.random.below(VARIANTS)}`, tag: null };
    for (;;) {
      const response = await this.send("POST", "/plants", plant);
      if (response?.status === 200) return this.noteCreated(plant, response);
      if (response?.status === 409) {
        this.taken.push(plant);
        this.counts.taken++;
        return;
      }
      if (response !== undefined) return;
      if (this.isOver) return;
      await this.surroundings.untilQuiet();
      await Bun.sleep(RETRY_MS);
    }
  }

  private noteCreated(plant: StoredPlant, response: Response): void {
    const other = this.created.get(plant.id) ?? plant;
    if (!isSamePlant(plant, other)) this.faults.push(`${plant.id}: two plants were acknowledged`);
    this.created.set(plant.id, plant);
    this.counts[response.headers.has("idempotent-replayed") ? "replayed" : "created"]++;
  }

  /** Nothing here is sent twice: what was not answered may have been done, and that is the end of it. */
  private async change(): Promise<void> {
    const id = this.random.pick(CHANGED_IDS);
    const path = `/plants/${id}`;
    const found = await this.send("GET", path);
    if (found?.status === 404) {
      const { version, plant } = this.makeVersion(id);
      version.isMade = (await this.send("POST", "/plants", plant))?.status === 200;
    }
    if (found?.status !== 200) return;
    const { name } = (await found.json()) as { name: string };
    const ifMatch = { "if-match": found.headers.get("etag") ?? "" };
    const seen = this.versions.get(name);
    if (seen === undefined) return void this.faults.push(`${id}: ${name} is nobody's`);
    const isRemoval = this.random.chance(30);
    const { version, plant } = isRemoval
      ? { version: undefined, plant: undefined }
      : this.makeVersion(id);
    const response = await (isRemoval
      ? this.send("DELETE", path, undefined, ifMatch)
      : this.send("PUT", path, plant, ifMatch));
    if (response === undefined) seen.unsettledEndings++;
    else if (!response.ok) this.counts.tooLate++;
    else {
      seen.endings++;
      if (version !== undefined) version.isMade = true;
      this.counts[isRemoval ? "removed" : "replaced"]++;
    }
  }

  private makeVersion(id: bigint): { readonly version: Version; readonly plant: StoredPlant } {
    const name = `version ${this.versions.size}`;
    const version = { id, isMade: false, endings: 0, unsettledEndings: 0 };
    this.versions.set(name, version);
    return { version, plant: { id, name, tag: null } };
  }

  /** Undefined where it may have been done or not. */
  private async send(
    method: string,
    path: string,
    plant?: StoredPlant,
    condition: Readonly<Record<string, string>> = {},
  ): Promise<Response | undefined> {
    try {
      const response = await fetch(this.surroundings.findUrl() + path, {
        method,
        headers: {
          authorization: `Bearer ${TEST_TOKEN}`,
          ...(plant === undefined ? {} : { "content-type": "application/json" }),
          ...condition,
        },
        ...(plant === undefined ? {} : { body: toBody(plant) }),
      });
      // Whole, or not at all: a body that breaks off is no answer.
      const whole = new Response(response.status === 204 ? null : await response.bytes(), response);
      if (whole.status === 503) return undefined;
      if (![200, 204, 404, 409, 412].includes(whole.status))
        this.faults.push(`${method} ${path} was answered ${whole.status}`);
      return whole;
    } catch {
      return undefined;
    }
  }
}
