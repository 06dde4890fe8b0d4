/** A client that does everything there is to do, right and wrong, and knows what its own plants are. */

import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { type StoredPlant, toBody } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { type Answer, readBody } from "./answer.ts";
import { Connection, formatRequest } from "./connection.ts";
import { findDeliberateRefusal } from "./creators.ts";

/** So many live at most: the store does not grow, and neither should anything else. */
const PLANTS_MAX = 150;
const BATCH_LENGTH = 20;
const NDJSON = "Content-Type: application/x-ndjson\r\n";

export class SoakClient {
  /** What is stored of its own. */
  readonly plants = new Map<bigint, StoredPlant>();
  readonly faults: string[] = [];
  requests = 0;
  refused = 0;
  readonly #url: string;
  readonly #random: Random;
  readonly #tag: string;
  #connection: Connection;
  #nextId: bigint;

  private constructor(url: string, nth: number, random: Random, connection: Connection) {
    this.#url = url;
    this.#random = random;
    this.#tag = `client ${nth}`;
    this.#connection = connection;
    this.#nextId = 2n ** 61n + BigInt(nth) * 10n ** 10n;
  }

  static async open(url: string, nth: number, random: Random): Promise<SoakClient> {
    return new SoakClient(url, nth, random, await Connection.open(url));
  }

  close(): void {
    this.#connection.abort();
  }

  async act(): Promise<void> {
    const random = this.#random;
    const known = [...this.plants.keys()];
    const id = known.length === 0 ? undefined : random.pick(known);
    if (id === undefined || (random.chance(20) && known.length < PLANTS_MAX)) return this.#create();
    switch (random.below(16)) {
      case 0:
      case 1:
        return this.#remove(id);
      case 2:
      case 3:
        return this.#replace(id);
      case 4:
        return known.length < PLANTS_MAX ? this.#createMany() : this.#remove(id);
      case 5:
        return this.#export();
      case 6:
        return this.#abort();
      case 7:
      case 8:
        return this.#refuse(id);
      case 9:
        return this.#look(random.pick(LOOKS));
      default:
        return this.#read(id);
    }
  }

  #make(id: bigint): StoredPlant {
    const name = `plant ${this.#random.below(1_000_000)} ${"é".repeat(this.#random.below(200))}`;
    return { id, name, tag: this.#tag };
  }

  async #create(): Promise<void> {
    const plant = this.#make(this.#nextId++);
    if ((await this.#ask("POST", "/plants", toBody(plant)))?.status === 200)
      this.plants.set(plant.id, plant);
  }

  async #createMany(): Promise<void> {
    const plants = Array.from({ length: BATCH_LENGTH }, () => this.#make(this.#nextId++));
    const body = plants.map((plant) => `${toBody(plant)}\n`).join("");
    const answer = await this.#ask("POST", "/plants/batch", body, NDJSON);
    if (answer?.status !== 200) return;
    for (const plant of plants) this.plants.set(plant.id, plant);
    if (readBody(answer).match(/"status":200/g)?.length !== BATCH_LENGTH)
      this.faults.push(`batch: ${readBody(answer)}`);
  }

  async #replace(id: bigint): Promise<void> {
    const plant = this.#make(id);
    if ((await this.#ask("PUT", `/plants/${id}`, toBody(plant)))?.status === 200)
      this.plants.set(id, plant);
  }

  async #remove(id: bigint): Promise<void> {
    if ((await this.#ask("DELETE", `/plants/${id}`))?.status === 204) this.plants.delete(id);
  }

  async #read(id: bigint): Promise<void> {
    const answer = await this.#ask("GET", `/plants/${id}`);
    const plant = this.plants.get(id) as StoredPlant;
    if (answer?.status === 200 && readBody(answer) !== toBody(plant))
      this.faults.push(`read ${readBody(answer)} instead of ${toBody(plant)}`);
  }

  async #export(): Promise<void> {
    const target = `/plants?tag=${encodeURIComponent(this.#tag)}`;
    const form = this.#random.pick(["application/x-ndjson", "text/csv"]);
    const answer = await this.#ask("GET", target, undefined, `Accept: ${form}\r\n`);
    if (answer?.status !== 200) return;
    const lines = readBody(answer).split("\n").length - 1 - (form === "text/csv" ? 1 : 0);
    if (lines !== this.plants.size)
      this.faults.push(`exported ${lines} plants of ${this.plants.size}`);
  }

  async #look(target: string): Promise<void> {
    const answer = await this.#ask(this.#random.chance(80) ? "GET" : "HEAD", target);
    if (answer !== undefined && answer.status !== 200)
      this.faults.push(`${target}: ${answer.status}`);
  }

  /** Half of a request, on a connection that is gone before the rest. */
  async #abort(): Promise<void> {
    const connection = await Connection.open(this.#url);
    const request = formatRequest("POST", "/plants", toBody(this.#make(-1n)));
    connection.send(request.slice(0, this.#random.below(request.length - 1)));
    if (this.#random.chance(50)) await Bun.sleep(1);
    connection.abort();
    await connection.closed;
    this.requests++;
  }

  async #refuse(id: bigint): Promise<void> {
    const [due, request] = this.#random.pick(REFUSED)(id);
    const answer = await this.#send(request);
    const isDue =
      answer?.status === catalogue[due].status &&
      readBody(answer).startsWith(`{"error":${catalogue[due].code},`);
    if (!isDue && answer?.status !== 503)
      this.faults.push(`${answer?.status} ${answer?.body} instead of ${due}`);
  }

  #ask(method: string, target: string, body?: string, lines?: string): Promise<Answer | undefined> {
    if (body !== undefined || lines === undefined)
      return this.#send(formatRequest(method, target, body, lines));
    return this.#send(formatRequest(method, target).replace(/\r\n$/, `${lines}\r\n`));
  }

  /** Undefined where it was put off; then nothing has changed, and whatever else is a fault. */
  async #send(request: string): Promise<Answer | undefined> {
    if (!this.#connection.isOpen) this.#connection = await Connection.open(this.#url);
    this.requests++;
    const answer = await this.#connection.ask(request);
    if (answer?.endsConnection) {
      this.#connection.abort();
      await this.#connection.closed;
    }
    if (answer !== undefined && answer.status < 500) return answer;
    const reason = answer === undefined ? undefined : findDeliberateRefusal(answer);
    if (reason === "overloaded" || reason === "store_busy") this.refused++;
    else this.faults.push(`${answer?.status ?? "no answer"} to ${request.slice(0, 200)}`);
    return undefined;
  }
}

const LOOKS = [
  "/plants?limit=20",
  "/plants?limit=5&order=desc&tag=client%201",
  "/plants?limit=5&name=zzz",
  "/tags?limit=10",
  "/metrics",
  "/activity",
  "/token",
  "/livez",
  "/readyz",
];

type Refused = (id: bigint) => readonly [ErrorName, string];

const REFUSED: readonly Refused[] = [
  () => ["token_invalid", formatRequest("GET", "/plants").replace("Bearer ", "Bearer x")],
  () => ["token_missing", formatRequest("GET", "/plants").replace("Authorization", "X-Nothing")],
  () => ["invalid_json", formatRequest("POST", "/plants", '{"id":')],
  () => ["invalid_plant", formatRequest("POST", "/plants", '{"id":1.5,"name":null}')],
  () => ["invalid_query", formatRequest("GET", "/plants?limit=x")],
  () => ["invalid_id", formatRequest("GET", "/plants/one")],
  () => ["path_not_found", formatRequest("GET", "/nowhere")],
  () => ["method_not_allowed", formatRequest("PATCH", "/plants")],
  () => [
    "unsupported_media_type",
    formatRequest("POST", "/plants", "{}", "Content-Type: text/plain\r\n"),
  ],
  () => ["url_too_long", formatRequest("GET", `/plants?${"a".repeat(9_000)}`)],
  () => [
    "body_too_large",
    formatRequest("POST", "/plants", "", "Content-Type: application/json\r\n").replace(
      "Content-Length: 0",
      "Content-Length: 9999999",
    ),
  ],
  (id) => ["id_taken", formatRequest("POST", "/plants", `{"id":${id},"name":"another"}`)],
  (id) => [
    "precondition_failed",
    formatRequest(
      "PUT",
      `/plants/${id}`,
      '{"name":"a"}',
      'Content-Type: application/json\r\nIf-Match: "none"\r\n',
    ),
  ],
];
