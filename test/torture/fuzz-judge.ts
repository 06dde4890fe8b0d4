/** One request and its answer: whether that is an answer, whether it is right, and what it stored. */

import { catalogue } from "../../src/domain/errors.ts";
import { idOf, type Ledger, type Operation } from "../support/model.ts";
import { findPlantByOracle } from "../support/oracle.ts";
import type { StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import type { WireAnswer } from "../support/wire.ts";
import { readBody } from "./connection.ts";
import { findDeliberateRefusal } from "./creators.ts";
import { isOwnId, type SoundRequest, valuesOf } from "./fuzz-requests.ts";

interface Circumstances {
  readonly ledger: Ledger;
  /** The connection: it alone writes to its own ids. */
  readonly owner: number;
  readonly bodyBytesMax: number;
}

/** A batch, a write, a write of what is no plant, or anything else. */
type Asked = Operation | "batch" | "no plant" | "other";

/** What is wrong; the ledger knows afterwards what came of it. */
export function judge(
  request: SoundRequest,
  answer: WireAnswer | undefined,
  circumstances: Circumstances,
): string[] {
  const asked = findOperation(request);
  const isHead = request.method === "HEAD";
  const faults = answer === undefined ? [] : judgeForm(answer, isHead);
  if (answer !== undefined && !isHead && isOfRuntime(answer))
    faults.push(`the runtime's own ${answer.status}`);
  const isAccepted = answer !== undefined && answer.status < 300;
  if (asked !== "other" && isAccepted && !isEntitled(request))
    faults.push(`${answer.status} for a request without a right to it`);
  if (asked === "other" || !isEntitled(request)) return faults;
  if (asked === "batch") faults.push(...settleBatch(request, answer, circumstances));
  else if (asked !== "no plant") faults.push(...settle(asked, request, answer, circumstances));
  else if (answer?.status === 200) faults.push("200 for what is no plant");
  return faults;
}

const PLAIN_INTEGER = /^(0|-?[1-9]\d{0,18})$/;

function findOperation({ method, target, body }: SoundRequest): Asked {
  const path = target.replace(/^https?:\/\/[^/?]*/, "").replace(/\?.*$/s, "");
  if (path === "/plants" && method === "POST") return asWrite("create", findPlantByOracle(body));
  if (path === "/plants/batch" && method === "POST") return "batch";
  const digits = /^\/plants\/([^/]+)$/.exec(path)?.[1] ?? "";
  if (!PLAIN_INTEGER.test(digits) || BigInt.asIntN(64, BigInt(digits)) !== BigInt(digits))
    return "other";
  const id = BigInt(digits);
  if (method === "DELETE") return { kind: "remove", id };
  return method === "PUT" ? asWrite("replace", findReplacement(body, id)) : "other";
}

const asWrite = (kind: "create" | "replace", plant: StoredPlant | undefined): Asked =>
  plant === undefined ? "no plant" : { kind, plant };

/** An id in the body stands behind the one of the path, and so counts, and has to be the same. */
function findReplacement(body: Uint8Array, id: bigint): StoredPlant | undefined {
  const start = body.indexOf("{".charCodeAt(0));
  if (start === -1) return undefined;
  const whole = Buffer.concat([
    body.subarray(0, start),
    Buffer.from(`{"id":${id},`),
    body.subarray(start + 1),
  ]);
  const plant = findPlantByOracle(whole);
  return plant?.id === id ? plant : undefined;
}

function isEntitled(request: SoundRequest): boolean {
  const [token = "", ...more] = valuesOf(request, "authorization");
  const isBearer = more.length === 0 && /^bearer +/i.test(token);
  return isBearer && token.replace(/^bearer +/i, "") === TEST_TOKEN;
}

/** The parser's own answers, which have no body and end the connection. */
const RUNTIME_STATUSES: ReadonlySet<number> = new Set([400, 413, 431, 505]);

const isOfRuntime = ({ status, body }: WireAnswer): boolean =>
  body === "" && RUNTIME_STATUSES.has(status);

/** Whether it is an answer of the catalogue, or of the runtime. */
function judgeForm(answer: WireAnswer, isHead: boolean): string[] {
  const { status } = answer;
  if (status < 400) return [];
  if (isHead) return status === 500 ? ["500"] : [];
  if (isOfRuntime(answer)) return [];
  if (status >= 500 && findDeliberateRefusal(answer) === undefined)
    return [`${status}: ${answer.body.slice(0, 200)}`];
  return isCatalogued(readBody(answer), status)
    ? []
    : [`${status} with what is not in the catalogue: ${JSON.stringify(answer.body.slice(0, 200))}`];
}

const statuses = new Map(Object.values(catalogue).map(({ code, status }) => [code, status]));

function isCatalogued(body: string, status: number): boolean {
  try {
    const { error, message, ...more } = JSON.parse(body) as Record<string, unknown>;
    const isShaped =
      typeof message === "string" && message !== "" && Object.keys(more).length === 0;
    return isShaped && statuses.get(error as never) === status;
  } catch {
    return false;
  }
}

function settle(
  operation: Operation,
  request: SoundRequest,
  answer: WireAnswer | undefined,
  { ledger, owner, bodyBytesMax }: Circumstances,
): string[] {
  const id = idOf(operation);
  const isUnknown =
    answer === undefined ||
    (answer.status === 503 && findDeliberateRefusal(answer) === "store_unavailable");
  const isDone = answer !== undefined && answer.status < 300;
  if (!isOwnId(id, owner)) {
    if (isUnknown || isDone) ledger.share(operation, isDone);
    return [];
  }
  const settled = ledger.begin(operation);
  if (isUnknown) return [];
  if (isDone) {
    const fault = settled({ status: answer.status, body: readBody(answer) });
    return fault === undefined ? [] : [fault];
  }
  const isDue =
    operation.kind !== "remove" && request.body.length <= bodyBytesMax && isPlain(request);
  if (!isDue || answer.status === 503) {
    settled("refused");
    return [];
  }
  const fault = settled({ status: answer.status });
  return fault === undefined ? [] : [`${fault}: ${readBody(answer)}`];
}

const REASONS: ReadonlySet<string> = new Set([
  "if-match",
  "if-none-match",
  "content-encoding",
  "expect",
]);

/** No condition, encoding or type that could be a reason to refuse. */
function isPlain(request: SoundRequest): boolean {
  return (
    valuesOf(request, "content-type").join() === "application/json" &&
    request.fields.every(([name]) => !REASONS.has(name))
  );
}

function settleBatch(
  request: SoundRequest,
  answer: WireAnswer | undefined,
  { ledger, owner }: Circumstances,
): string[] {
  if (answer !== undefined && answer.status !== 200) return [];
  const told = Bun.JSONL.parse(answer === undefined ? "" : readBody(answer));
  const results = told as { line: number; status: number }[];
  const statusOf = new Map(results.map(({ line, status }) => [line, status]));
  const lines = Buffer.from(request.body).toString("latin1").split("\n");
  return lines.flatMap((line, index) => {
    const plant = findPlantByOracle(Buffer.from(line, "latin1"));
    const status = statusOf.get(index + 1);
    if (plant === undefined)
      return status === 200 ? [`line ${index + 1} is no plant, and 200`] : [];
    const isUnknown = answer === undefined || status === 503;
    const operation: Operation = { kind: "create", plant };
    if (!isOwnId(plant.id, owner)) {
      if (isUnknown || status === 200) ledger.share(operation, status === 200);
      return [];
    }
    const settled = ledger.begin(operation);
    const fault = isUnknown ? undefined : settled({ status: status ?? 0 });
    return fault === undefined ? [] : [`line ${index + 1}: ${fault}`];
  });
}
