/**
 * A service stands still while one of its jobs runs. Another service of the store ends the job, or revokes its token, and
 * acknowledges newer writes. When the first one continues, every plant stays as it is.
 */

import { readFileSync } from "node:fs";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { type Engine, openTestDatabase, type TestDatabase } from "../support/database.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { LEASELESS, limits } from "../support/limits.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { findMissingPostgres } from "./postgres-scene.ts";
import {
  type Budget,
  deal,
  endsAfter,
  type Finding,
  Findings,
  noticing,
  runEach,
  type Scenario,
} from "./scenario.ts";
import { ask, ownSettings } from "./service.ts";

const PLANTS = 6_000;
/** The job is far from its end when it notices by itself that it is over. */
const RATE = "1000/s";
const FREEZE_MS_MAX = 300;
/** The other service takes a silent job for lost after this. */
const jobLostSeconds = 1;

const toLines = (ids: Iterable<number>, name: string): string =>
  Array.from(ids, (id) => `{"id":${id},"name":"${name} ${id}"}\n`).join("");
const everyId = [...Array(PLANTS).keys()];

/** How a job is started, by its batch. */
type Order = readonly [method: string, target: string, body?: string, type?: string];
const kinds: Readonly<Record<string, (batch: string) => Order>> = {
  remove: (batch) => ["DELETE", `/plants?name=n&batch=${batch}`],
  change: (batch) => ["PATCH", `/plants?name=n&batch=${batch}`, '{"tag":"job"}', "json"],
  upsert: (batch) => [
    "POST",
    `/plants/batch?upsert=true&batch=${batch}`,
    toLines(everyId, "n, by the job"),
    "x-ndjson",
  ],
  revert: (batch) => [
    "POST",
    `/changes/revert?batch=${batch}`,
    `{"batch":"${undoneBy(batch)}"}`,
    "json",
  ],
};
/** The batch that a revert undoes. */
const undoneBy = (batch: string): string => `before-${batch}`;

class Freezes extends Findings {
  readonly #budget: Budget;
  readonly #database: TestDatabase;
  readonly #frozen: ServiceProcess;
  readonly #logPath: string;
  readonly #other: string;
  #rounds = 0;

  constructor(
    budget: Budget,
    database: TestDatabase,
    services: readonly [frozen: ServiceProcess, other: ServiceProcess],
    logPath: string,
  ) {
    super();
    this.#budget = budget;
    this.#database = database;
    this.#frozen = services[0];
    this.#other = services[1].started.url;
    this.#logPath = logPath;
  }

  async liveThrough(kind: string, end: string): Promise<void> {
    const { random } = this.#budget;
    const batch = `b${++this.#rounds}`;
    await this.#write(everyId, "n");
    if (kind === "revert")
      await this.#send(["PATCH", `/plants?name=n&batch=${undoneBy(batch)}`, '{"tag":"t"}', "json"]);
    const grant = JSON.stringify({
      name: batch,
      scopes: ["plants:read", "plants:write"],
      rate: RATE,
    });
    const { token, id } = JSON.parse(await this.#send(["POST", "/tokens", grant, "json"])) as {
      readonly token: string;
      readonly id: string;
    };
    const order = (kinds[kind] as (typeof kinds)[string])(batch);
    await this.#send(order, { authorization: `Bearer ${token}` }, this.#frozen.started.url);
    const begun = `/changes?batch=${batch}&limit=1&order=desc`;
    await until("the job has begun", async () =>
      (await this.#send(["GET", begun])).includes('"seq"'),
    );
    await Bun.sleep(random.below(FREEZE_MS_MAX));
    this.#frozen.kill("SIGSTOP");
    await this.#untilWritable();
    if ((await this.#send(["GET", `/jobs?batch=${batch}`])).includes('"state":"ended"')) {
      this.#frozen.kill("SIGCONT");
      return this.count("jobs that ended before");
    }
    await this.#end(end, batch, id);
    const half = everyId.filter(() => random.chance(50));
    await this.#write(half, "n, newer");
    await this.#untilQuiet();
    const acknowledged = await this.#database.readPlants();
    this.#frozen.kill("SIGCONT");
    const brokenOff = new RegExp(`"bulk_broken_off".*"batch":"${batch}"`);
    await until("it has noticed", () => brokenOff.test(readFileSync(this.#logPath, "utf8")));
    this.#compare(`${kind}, ${end}`, acknowledged, await this.#database.readPlants());
    this.count("freezes");
  }

  #compare(what: string, before: readonly StoredPlant[], after: readonly StoredPlant[]): void {
    this.count("plants compared", before.length);
    const [then, now] = [new Set(before.map(toBody)), new Set(after.map(toBody))];
    for (const plant of then.difference(now)) this.faults.push(`${what}: ${plant} is gone`);
    for (const plant of now.difference(then)) this.faults.push(`${what}: ${plant} appeared`);
  }

  async #end(end: string, batch: string, tokenId: string): Promise<void> {
    const job = `/jobs?batch=${batch}`;
    const untilState = (state: string): Promise<void> =>
      until(`the job is ${state}`, async () =>
        (await this.#send(["GET", job])).includes(`"state":"${state}"`),
      );
    if (end === "its token is revoked") await this.#send(["DELETE", `/tokens/${tokenId}`]);
    else if (end === "stopped") await this.#send(["DELETE", job]);
    else {
      await untilState("lost");
      if (end === "stopped when it is lost") await this.#send(["DELETE", job]);
      else await this.#send(["DELETE", `/plants?name=nothing&batch=${batch}`]);
      await untilState("ended");
    }
  }

  /** It may stand still within a commit, and then holds the lock of the file. */
  async #untilWritable(): Promise<void> {
    await until("the other service can write", async () => {
      const { status } = await this.#ask(["PUT", "/plants/-1", '{"name":"probe"}', "json"]);
      if (status === 404) return true;
      this.#frozen.kill("SIGCONT");
      await Bun.sleep(this.#budget.random.below(20));
      this.#frozen.kill("SIGSTOP");
      return false;
    });
  }

  /** A server finishes the statements that it has, whatever their client does. */
  async #untilQuiet(): Promise<void> {
    await until("nothing is under way", async () => {
      const plants = await this.#database.readPlants();
      await Bun.sleep(10);
      return Bun.deepEquals(plants, await this.#database.readPlants());
    });
  }

  async #write(ids: Iterable<number>, name: string): Promise<void> {
    const target = "/plants/batch?upsert=true";
    const order: Order = ["POST", target, toLines(ids, name), "x-ndjson"];
    await until("all are stored", async () => !(await this.#send(order)).includes('"error"'));
  }

  async #send(order: Order, ...rest: [headers?: Readonly<Record<string, string>>, url?: string]) {
    const { status, text } = await this.#ask(order, ...rest);
    if (status >= 300 || status === 0)
      throw new Error(`${order[0]} ${order[1]}: ${status} ${text}`);
    return text;
  }

  /** Everything that may be a job is one if a token is given. */
  #ask(
    [method, target, body, type]: Order,
    headers: Readonly<Record<string, string>> = {},
    url = this.#other,
  ) {
    const isJob = "authorization" in headers || target.includes("name=nothing");
    return ask(url + target, {
      method,
      ...(body !== undefined && { body }),
      headers: {
        prefer: isJob ? "respond-async" : "return=minimal",
        ...(type !== undefined && { "content-type": `application/${type}` }),
        ...headers,
      },
    });
  }
}

const ends = ["stopped", "stopped when it is lost", "replaced", "its token is revoked"] as const;

async function runOn(engine: Engine, budget: Budget, isCheating = false): Promise<Finding> {
  const { seconds, random } = budget;
  await using database = await openTestDatabase(engine);
  using folder = makeTemporaryFolder();
  const logPath = `${folder.path}/log`;
  const env = {
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_LOG_LEVEL: "info",
    ...limits({ jobLostSeconds, queueSecondsMax: 3 }),
    ...ownSettings,
    PLANTSTORE_WORKERS: "1",
    DATABASE_URL: database.url,
  };
  const logged = ["sh", "-c", 'exec "$@" 2>"$0"', logPath];
  const cheat = isCheating ? { [LEASELESS]: "true" } : {};
  await using frozen = await spawnService({ ...env, ...cheat }, logged);
  await using other = await spawnService(env);
  const freezes = new Freezes(budget, database, [frozen, other], logPath);
  const rounds = Object.keys(kinds).flatMap((kind) => ends.map((end) => [kind, end] as const));
  const isOver = endsAfter(seconds);
  const isDone = (): boolean => isOver() || (isCheating && freezes.faults.length > 0);
  for (const [kind, end] of deal(rounds, { random, isShort: budget.isShort === true }, isDone))
    await freezes.liveThrough(kind, end);
  return freezes;
}

const engines = (): Engine[] =>
  findMissingPostgres() === undefined ? ["sqlite", "postgres"] : ["sqlite"];

export const freeze: Scenario = {
  title: "a service stands still while another ends its jobs: it stores nothing of them afterwards",
  run: (budget) => runEach<Engine>(engines(), budget, runOn),
};

/** Ends when it noticed something. */
export const freezeCheat: Scenario = {
  title: "without leases it does store something, and this is noticed",
  run: (budget) =>
    runEach<Engine>(engines(), budget, (engine, share) =>
      noticing((given) => runOn(engine, given, true))({ ...share, isShort: true }),
    ),
};
