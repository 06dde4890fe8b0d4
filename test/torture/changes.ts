/** Readers of the changes, by a stream and by a webhook, and what is wrong with what they have seen. */

import { Webhook as Verifier } from "standardwebhooks";
import { EventReader } from "../support/events.ts";
import { toContent } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { PATIENCE_MS } from "../support/until.ts";
import { endsAfter } from "./scenario.ts";
import { ask } from "./service.ts";

const RECONNECT_MS = 20;
const DOWN_MS_MAX = 200;

const authorization = `Bearer ${TEST_TOKEN}`;

export interface Seen {
  readonly seq: number;
  readonly type: string;
  readonly id: string;
  readonly batch: string | undefined;
  readonly plant: string | undefined;
  readonly before: string | undefined;
}

class Reader {
  readonly seen: Seen[] = [];

  get last(): number {
    return this.seen.at(-1)?.seq ?? 0;
  }
}

/** Follows the changes until it is stopped, through any service that answers. */
export class Follower extends Reader {
  connections = 0;
  private readonly findUrl: () => string;
  private readonly forgets: boolean;
  private readonly working: Promise<void>;
  private reader: EventReader | undefined;
  private after = "0";
  private isOver = false;

  /** With `forgets`, it resumes from the newest change after a disconnect instead of its own cursor. */
  constructor(findUrl: () => string, forgets = false) {
    super();
    this.findUrl = findUrl;
    this.forgets = forgets;
    this.working = this.work();
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await this.reader?.[Symbol.asyncDispose]();
    await this.working;
  }

  private async work(): Promise<void> {
    while (!this.isOver) {
      // It rejects if the service was killed, or is starting.
      await this.follow(this.findUrl()).catch(() => undefined);
      if (!this.isOver) await Bun.sleep(RECONNECT_MS);
    }
  }

  private async follow(url: string): Promise<void> {
    if (this.forgets && this.connections > 0) this.after = await findNewest(url);
    const headers = { authorization, "last-event-id": this.after };
    await using reader = await EventReader.open(url, headers);
    this.reader = reader;
    this.connections++;
    // Stopped while it connected: no further event may come.
    if (this.isOver) return;
    for (let event = await reader.next(); event !== undefined; event = await reader.next()) {
      this.seen.push(parseChange(event.data));
      this.after = event.id;
      if (this.isOver) return;
    }
  }
}

export function parseChange(data: string): Seen {
  const { seq, type, batch, plant, before } = JSON.parse(data) as Omit<Seen, "plant" | "before"> &
    Record<"plant" | "before", object | undefined>;
  const id = /"id":(-?\d+)/.exec(data)?.[1] ?? "";
  return { seq, type, id, batch, plant: JSON.stringify(plant), before: JSON.stringify(before) };
}

export async function findNewest(url: string): Promise<string> {
  const head = await fetch(`${url}/changes`, { method: "HEAD", headers: { authorization } });
  return head.headers.get("last-change") ?? "0";
}

/** Resolves when the reader has the newest change, or has received none for PATIENCE_MS. */
export async function untilCaughtUp(reader: Reader, newest: number): Promise<string[]> {
  let [last, isSilent] = [reader.last, endsAfter(PATIENCE_MS / 1_000)];
  for (; reader.last < newest && !isSilent(); await Bun.sleep(RECONNECT_MS)) {
    if (reader.last === last) continue;
    [last, isSilent] = [reader.last, endsAfter(PATIENCE_MS / 1_000)];
  }
  return reader.last < newest ? [`a reader has ${reader.last}, and the newest is ${newest}`] : [];
}

/** What is wrong with what a reader has seen, if these rows are stored in the end. */
export function findFaults(seen: readonly Seen[], rows: readonly StoredPlant[]): string[] {
  const faults: string[] = [];
  const plants = new Map<string, string>();
  let last = 0;
  for (const { seq, type, id, plant, before } of seen) {
    if (seq <= last) faults.push(`the change ${seq} came after ${last}`);
    last = seq;
    const now = plants.get(id);
    if (now !== before)
      faults.push(`${id}: ${seq} ${type} it, and it was ${now ?? "nothing"}, not ${before}`);
    if (plant === undefined) plants.delete(id);
    else plants.set(id, plant);
  }
  for (const row of rows) {
    const { id } = row;
    const stored = toContent(row);
    if (plants.get(String(id)) !== stored)
      faults.push(`${id}: ${stored} is stored, and the changes say ${plants.get(String(id))}`);
    plants.delete(String(id));
  }
  for (const id of plants.keys()) faults.push(`${id}: the changes have it, and the store does not`);
  return faults;
}

/** Keeps what it answers 2xx to. A moody one fails now and then. */
export class Receiver extends Reader implements AsyncDisposable {
  readonly faults: string[] = [];
  repeated = 0;
  stops = 0;
  private secret = "";
  private readonly random: Random;
  private readonly isMoody: boolean;
  private readonly known = new Map<number, string>();
  private server: Bun.Server<undefined>;

  constructor(random: Random, isMoody: boolean) {
    super();
    this.random = random;
    this.isMoody = isMoody;
    this.server = this.listen(0);
  }

  async subscribe(serviceUrl: string, name = "torture"): Promise<void> {
    const body = JSON.stringify({ url: `http://127.0.0.1:${this.server.port}/`, name });
    const headers = { "content-type": "application/json" };
    // On a connection of its own: the service may close an idle one just then, and a POST is not sent again.
    const sent = { method: "POST", headers, body, keepalive: false };
    const answer = await ask(`${serviceUrl}/webhooks`, sent);
    if (answer.status !== 201) throw new Error(`no webhook was added: ${answer.text}`);
    ({ secret: this.secret } = JSON.parse(answer.text) as { secret: string });
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
        const chance = this.isMoody ? this.random.below(300) : 299;
        if (chance < 2) return new Response("not now", { status: 503 });
        if (chance < 3) await Bun.sleep(1_000);
        this.keep(body);
        // On 500 it has it, and the service does not know.
        return new Response(null, { status: chance === 3 ? 500 : 204 });
      },
      error: (error) => {
        this.faults.push(`a request was not as it should be: ${error.message}`);
        return new Response(null, { status: 500 });
      },
    });
  }

  private keep(body: string): void {
    const change = parseChange(body.slice(body.indexOf('"data":') + '"data":'.length, -1));
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
