/**
 * A receiver of webhooks is stopped and started, answers errors and nothing, while the services are killed and replaced.
 * It gets every change at least once, in order, and what it has explains every plant that is stored.
 */

import { Webhook as Verifier } from "standardwebhooks";
import { type Engine, openTestDatabase } from "../support/database.ts";
import { Fleet } from "../support/fleet.ts";
import { Contest } from "../support/history.ts";
import { limits } from "../support/limits.ts";
import { fork, type Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { PATIENCE_MS } from "../support/until.ts";
import { findFaults, findNewest, parse, type Seen, SIGNALS } from "./changes.ts";
import { environment, runOnEngines } from "./postgres-scene.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";

const CLIENTS = 8;
const MISHAP_MS_MAX = 700;
const DOWN_MS_MAX = 200;
const POLL_MS = 20;

const settings = {
  ...environment,
  PLANTSTORE_WEBHOOKS_PRIVATE: "true",
  ...limits({
    webhookPollMs: 10,
    webhookLeaseSeconds: 1,
    webhookSecondsMax: 0.5,
    webhookRetrySeconds: Array.from({ length: 200 }, () => 0.05),
  }),
};

/** Keeps what it answers 2xx to. */
class Receiver implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly faults: string[] = [];
  repeated = 0;
  stops = 0;
  secret = "";
  private readonly random: Random;
  private readonly known = new Map<number, string>();
  private server: Bun.Server<undefined>;

  constructor(random: Random) {
    this.random = random;
    this.server = this.listen(0);
  }

  get url(): string {
    return `http://127.0.0.1:${this.server.port}/`;
  }

  get last(): number {
    return this.seen.at(-1)?.seq ?? 0;
  }

  /** Cuts off what is on its way, and listens again. */
  async restart(): Promise<void> {
    const { port } = this.server;
    this.stops++;
    await this.server.stop(true);
    await Bun.sleep(this.random.below(DOWN_MS_MAX));
    this.server = this.listen(port ?? 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.stop(true);
  }

  private listen(port: number): Bun.Server<undefined> {
    return Bun.serve({
      port,
      hostname: "127.0.0.1",
      fetch: async (request) => {
        const body = await request.text();
        new Verifier(this.secret).verify(body, request.headers.toJSON());
        const chance = this.random.below(300);
        if (chance < 2) return new Response("not now", { status: 503 });
        if (chance < 3) await Bun.sleep(1_000);
        this.keep(body);
        // It has it, and the service does not know.
        if (chance === 3) return new Response(null, { status: 500 });
        return new Response(null, { status: 204 });
      },
      error: (error) => {
        this.faults.push(`a request was not as it should be: ${error.message}`);
        return new Response(null, { status: 500 });
      },
    });
  }

  private keep(body: string): void {
    const change = parse(body.slice(body.indexOf('"data":') + '"data":'.length, -1));
    const known = this.known.get(change.seq);
    if (known === undefined && change.seq < this.last)
      this.faults.push(`${change.seq} came for the first time after ${this.last}`);
    if (known !== undefined && known !== body)
      this.faults.push(`${change.seq} was not the same when it came again`);
    if (known === undefined) this.seen.push(change);
    else this.repeated++;
    this.known.set(change.seq, body);
  }
}

async function addWebhook(serviceUrl: string, url: string): Promise<string> {
  const headers = { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" };
  const body = JSON.stringify({ url, name: "torture" });
  const response = await fetch(`${serviceUrl}/webhooks`, { method: "POST", headers, body });
  return ((await response.json()) as { secret: string }).secret;
}

async function runOn(engine: Engine, { seconds, random, tell }: Budget): Promise<Finding> {
  await using database = await openTestDatabase(engine);
  await using fleet = new Fleet(undefined, database.url, settings);
  await fleet.startOneByOne(2);
  const choosing = fork(random);
  const findUrl = (): string => fleet.findUrl(choosing);
  await using receiver = new Receiver(fork(random));
  receiver.secret = await addWebhook(findUrl(), receiver.url);
  await using clients = new Contest(CLIENTS, { findUrl }, fork(random));
  const isOver = endsAfter(seconds);
  do {
    await Bun.sleep(random.below(MISHAP_MS_MAX));
    await receiver.restart();
    await fleet.replaceAny(random, random.pick(SIGNALS));
  } while (!isOver());
  await clients.stop();
  const newest = Number(await findNewest(findUrl()));
  const isBehind = (): boolean => receiver.last < newest;
  // Without an event for so long, although there are some to come.
  let [last, isSilent] = [receiver.last, endsAfter(PATIENCE_MS / 1_000)];
  for (; isBehind() && !isSilent(); await Bun.sleep(POLL_MS)) {
    if (receiver.last === last) continue;
    [last, isSilent] = [receiver.last, endsAfter(PATIENCE_MS / 1_000)];
  }
  const faults = [...receiver.faults];
  if (isBehind()) faults.push(`the receiver has ${receiver.last}, and the newest is ${newest}`);
  faults.push(...findFaults(receiver.seen, await database.readPlants()));
  tell(`${engine}: ${receiver.seen.length} changes, ${fleet.ended.length} services ended`);
  return {
    faults,
    figures: {
      "changes received": receiver.seen.length,
      "received again": receiver.repeated,
      "services ended": fleet.ended.length,
      "receivers ended": receiver.stops,
    },
  };
}

export const webhooks: Scenario = {
  title: "services and a receiver of webhooks are killed, and it gets every change, in order",
  // For some seconds one engine is enough: test/postgres has the other.
  run: (budget) => runOnEngines(budget, runOn, budget.isShort === true),
};
