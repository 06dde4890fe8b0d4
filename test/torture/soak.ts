/** Everything at once for as long as one likes: memory and descriptors stay what they were, and the store is right. */

import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { Clients, sendOperation, toAnswer } from "../support/clients.ts";
import { fork, type Random } from "../support/random.ts";
import { readPlants } from "../support/stores.ts";
import { Connection, endsConnection, formatRequest, readBody } from "./connection.ts";
import { findDeliberateRefusal } from "./creators.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";
import {
  countDescriptors,
  measureGrowth,
  measureMemoryBytes,
  missingFigures,
  startTorturedService,
} from "./service.ts";

const CLIENTS = 16;
/** The store does not grow, and neither should anything else. */
const PLANTS_EACH_MAX = 150;
const BATCH_LENGTH_MAX = 20;
const NAME_LENGTH_MAX = 200;
/** Beyond what a double can hold. */
const FIRST_ID = 2n ** 61n;
/** Always stored: a request about it is refused for the right reason. */
const KNOWN_ID = -1n;
const NUISANCES = 8;
const SAMPLE_MS = 200;
const TELL_EVERY = 300;
/**
 * The garbage collector's ups and downs are less. An hour has some ten million requests, where a leak of
 * three bytes each would show; a minute shows one of a few hundred.
 */
const MEMORY_BYTES_MORE_MAX = 24 * 1024 ** 2;
/** A few seconds end before the heap has its size: it grew by 32 MB where half a minute showed less than 1 MB. */
const SHORT_MEMORY_BYTES_MORE_MAX = 48 * 1024 ** 2;
const DESCRIPTORS_MORE_MAX = 5;

export const soak: Scenario = {
  title: "every operation, right, wrong and aborted, without a pause",
  missing: missingFigures,
  run,
};

async function run({ seconds, random, tell, isShort = false }: Budget): Promise<Finding> {
  await using service = await startTorturedService({ PLANTSTORE_LOG_LEVEL: "warn" });
  const known = { id: KNOWN_ID, name: "known", tag: null };
  const faults: string[] = [];
  const isAlive = (): boolean => service.isAlive();
  const clients = new Clients(
    CLIENTS,
    {
      findUrl: () => service.url,
      firstId: FIRST_ID,
      plantsMax: PLANTS_EACH_MAX,
      batchLengthMax: BATCH_LENGTH_MAX,
      nameLengthMax: NAME_LENGTH_MAX,
      mayRefuse: ["overloaded", "store_busy"],
      onLost: () => faults.push("a connection was lost"),
    },
    random,
  );
  const nuisances = Array.from(
    { length: NUISANCES },
    () => new Nuisance(service.url, fork(random)),
  );
  clients.ledger.begin({ kind: "create", plant: known })(
    await toAnswer(await sendOperation(service.url, { kind: "create", plant: known })),
  );
  const memory: number[] = [];
  const descriptors: number[] = [];
  const countRequests = (): number =>
    nuisances.reduce((sum, { requests }) => sum + requests, clients.requests);
  const watch = setInterval(() => {
    if (!isAlive()) return;
    const bytes = measureMemoryBytes(service.pid);
    descriptors.push(countDescriptors(service.pid));
    if (memory.push(bytes) % TELL_EVERY === 0)
      tell(`${countRequests()} requests, ${Math.round(bytes / 1e6)} MB`);
  }, SAMPLE_MS);
  const isTimeOver = endsAfter(seconds);
  const isOver = (): boolean => isTimeOver() || !isAlive();
  await Promise.all(nuisances.map((nuisance) => nuisance.work(isOver)));
  await clients.stop();
  clearInterval(watch);

  faults.push(...nuisances.flatMap((nuisance) => nuisance.faults));
  if (isAlive()) {
    const { exitCode, complaints } = await service.stop();
    faults.push(...complaints, ...clients.compare(readPlants(service.path)));
    if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
  } else faults.push("the process died");
  const growth = measureGrowth(memory);
  if (growth > (isShort ? SHORT_MEMORY_BYTES_MORE_MAX : MEMORY_BYTES_MORE_MAX))
    faults.push(`memory grew by ${growth} bytes after the warm-up`);
  const descriptorGrowth = measureGrowth(descriptors);
  if (descriptorGrowth > DESCRIPTORS_MORE_MAX)
    faults.push(`${descriptorGrowth} descriptors more were open in the end`);
  return {
    faults,
    figures: {
      requests: countRequests(),
      "requests a second": countRequests() / seconds,
      "put off by 503": clients.unsettled,
      "plants in the end": clients.ledger.listCertain().length,
      "memory in the end, MB": (memory.at(-1) ?? 0) / 1e6,
      "memory growth after the warm-up, bytes": growth,
      "descriptors in the end": descriptors.at(-1) ?? 0,
    },
  };
}

/** A client that looks around, asks for what it is refused, and leaves in the middle of a request. */
class Nuisance {
  readonly faults: string[] = [];
  requests = 0;
  readonly #url: string;
  readonly #random: Random;

  constructor(url: string, random: Random) {
    this.#url = url;
    this.#random = random;
  }

  async work(isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const connection = await Connection.open(this.#url);
      if (this.#random.chance(20)) await this.#leave(connection);
      else
        while (connection.isOpen && !isOver() && this.#random.chance(95))
          await this.#ask(connection);
      connection.abort();
      await connection.closed;
    }
  }

  /** Half of a request, on a connection that is gone before the rest. */
  async #leave(connection: Connection): Promise<void> {
    const request = formatRequest("POST", "/plants", '{"id":-2,"name":"never whole"}');
    connection.send(request.slice(0, this.#random.below(request.length - 1)));
    if (this.#random.chance(50)) await Bun.sleep(1);
    this.requests++;
  }

  async #ask(connection: Connection): Promise<void> {
    const isLook = this.#random.chance(40);
    const [due, request] = isLook
      ? [undefined, formatRequest(this.#random.pick(["GET", "HEAD"]), this.#random.pick(LOOKS))]
      : this.#random.pick(REFUSED);
    this.requests++;
    const answer = await connection.ask(request);
    // A body that is too large is not sent to its end, so its connection is of no more use.
    if (answer && (endsConnection(answer) || answer.status === catalogue.body_too_large.status)) {
      connection.abort();
      await connection.closed;
    }
    const reason = answer && findDeliberateRefusal(answer);
    if (reason === "overloaded" || reason === "store_busy") return;
    const isDue =
      due === undefined
        ? answer?.status === 200
        : answer?.status === catalogue[due].status &&
          readBody(answer).startsWith(`{"error":${catalogue[due].code},`);
    if (!isDue)
      this.faults.push(
        `${answer?.status} ${answer?.body.slice(0, 200)} to ${request.slice(0, 200)}`,
      );
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

const REFUSED: readonly (readonly [ErrorName, string])[] = [
  ["token_invalid", formatRequest("GET", "/plants").replace("Bearer ", "Bearer x")],
  ["token_missing", formatRequest("GET", "/plants").replace("Authorization", "X-Nothing")],
  ["invalid_json", formatRequest("POST", "/plants", '{"id":')],
  ["invalid_plant", formatRequest("POST", "/plants", '{"id":1.5,"name":null}')],
  ["invalid_query", formatRequest("GET", "/plants?limit=x")],
  ["invalid_id", formatRequest("GET", "/plants/one")],
  ["path_not_found", formatRequest("GET", "/nowhere")],
  ["method_not_allowed", formatRequest("PATCH", "/plants")],
  [
    "unsupported_media_type",
    formatRequest("POST", "/plants", "{}", "Content-Type: text/plain\r\n"),
  ],
  ["url_too_long", formatRequest("GET", `/plants?${"a".repeat(9_000)}`)],
  [
    "body_too_large",
    formatRequest("POST", "/plants", "", "Content-Type: application/json\r\n").replace(
      "Content-Length: 0",
      "Content-Length: 9999999",
    ),
  ],
  ["id_taken", formatRequest("POST", "/plants", `{"id":${KNOWN_ID},"name":"another"}`)],
  [
    "precondition_failed",
    formatRequest(
      "PUT",
      `/plants/${KNOWN_ID}`,
      '{"name":"a"}',
      'Content-Type: application/json\r\nIf-Match: "none"\r\n',
    ),
  ],
];
