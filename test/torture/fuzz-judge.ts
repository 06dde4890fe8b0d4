/** One request and its answer: whether that is an answer, whether it is right, and what it stored. */

import { toContent } from "../support/model.ts";
import { findPlantByOracle } from "../support/oracle.ts";
import type { StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { readBody, type WireAnswer } from "../support/wire.ts";
import { findRefusal, isDeliberate } from "./creators.ts";
import { isOwnId, type SoundRequest, valuesOf } from "./fuzz-requests.ts";

/** What may be stored under an id; certain after a success. No request removes a plant. */
interface Known {
  readonly contents: readonly string[];
  readonly isCertain: boolean;
}

export interface Circumstances {
  readonly stored: Map<bigint, Known>;
  /** The connection: it alone writes to its own ids. */
  readonly owner: number;
  readonly bodyBytesMax: number;
}

/** One plant of a request; undefined where the oracle finds none. */
interface Write {
  readonly plant: StoredPlant | undefined;
  /** Undefined if it may have happened or not. */
  readonly status: number | undefined;
  /** The body of the answer to it alone. */
  readonly body?: string | undefined;
  readonly isReplacement?: boolean;
}

/** What is wrong; `stored` says afterwards what came of it. */
export function judge(
  request: SoundRequest,
  answer: WireAnswer | undefined,
  circumstances: Circumstances,
): string[] {
  const isHead = request.line.startsWith("HEAD ");
  const faults = answer === undefined ? [] : judgeForm(answer, isHead);
  if (answer !== undefined && !isHead && isOfRuntime(answer))
    faults.push(`the runtime's own ${answer.status}`);
  const isDone = answer !== undefined && answer.status < 300;
  if (isDone && request.line.startsWith("DELETE "))
    faults.push(`${answer.status}, and no plant met the condition`);
  const writes = findWrites(request, answer);
  if (isEntitled(request))
    return [...faults, ...writes.flatMap((write) => settle(write, request, circumstances))];
  if (writes.length > 0 && isDone)
    faults.push(`${answer.status} for a request without a right to it`);
  return faults;
}

const BATCH = "POST /plants/batch";
const REPLACEMENT = /^PUT \/plants\/(0|-?[1-9]\d{0,18})$/;

function findWrites(request: SoundRequest, answer: WireAnswer | undefined): Write[] {
  const { line, body: sent = Buffer.alloc(0) } = request;
  const isUnknown = answer === undefined || findRefusal(answer) === "store_unavailable";
  const status = isUnknown ? undefined : answer.status;
  const body = answer && readBody(answer);
  if (line === "POST /plants") return [{ plant: findPlantByOracle(sent), status, body }];
  if (line === BATCH) return findLines(sent, answer);
  const id = REPLACEMENT.exec(line)?.[1];
  if (id === undefined) return [];
  return [{ plant: findReplacement(sent, BigInt(id)), status, body, isReplacement: true }];
}

function findLines(body: Uint8Array, answer: WireAnswer | undefined): Write[] {
  if (answer !== undefined && answer.status !== 200) return [];
  const told = Bun.JSONL.parse(answer === undefined ? "" : readBody(answer));
  const results = told as { line: number; status: number }[];
  const statusOf = new Map(results.map(({ line, status }) => [line, status]));
  const lines = Buffer.from(body).toString("latin1").split("\n");
  return lines.map((line, index) => {
    const status = statusOf.get(index + 1) ?? 0;
    const plant = findPlantByOracle(Buffer.from(line, "latin1"));
    return { plant, status: answer === undefined || status === 503 ? undefined : status };
  });
}

/** An id in the body stands behind the one of the path, and so counts, and has to be the same. */
function findReplacement(body: Uint8Array, id: bigint): StoredPlant | undefined {
  const whole = Buffer.from(body).toString("latin1").replace("{", `{"id":${id},`);
  const plant = findPlantByOracle(Buffer.from(whole, "latin1"));
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
export function judgeForm(answer: WireAnswer, isHead: boolean): string[] {
  const { status } = answer;
  if (status < 400) return [];
  if (isHead) return status === 500 ? ["500"] : [];
  if (isOfRuntime(answer)) return [];
  const refusal = findRefusal(answer);
  return refusal !== undefined && (status < 500 || isDeliberate(refusal))
    ? []
    : [`${status} with what is not in the catalogue: ${JSON.stringify(answer.body.slice(0, 200))}`];
}

function settle(
  { plant, status, body, isReplacement = false }: Write,
  request: SoundRequest,
  { stored, owner, bodyBytesMax }: Circumstances,
): string[] {
  if (plant === undefined) return status === 200 ? ["200 for what is no plant"] : [];
  const content = toContent(plant);
  const { contents, isCertain } = stored.get(plant.id) ?? { contents: [], isCertain: false };
  if (status === undefined) stored.set(plant.id, { contents: [...contents, content], isCertain });
  if (status === 200) stored.set(plant.id, { contents: [content], isCertain: true });
  if (status === undefined || status === 503) return [];
  const isDone = status === 200;
  if (isDone && body !== undefined && body !== content) return [`200 ${body} to ${content}`];
  const isCreateOver = !isReplacement && isCertain && (isDone || status === 409);
  if (isCreateOver && isDone !== contents.includes(content))
    return [`${status} to create ${content} over ${contents.join()}`];
  const isTaken = status === 409 && contents.length > 0;
  const isDue = isOwnId(plant.id, owner) && hasNoReason(request, bodyBytesMax);
  return isDue && !isDone && !isTaken ? [`${status} to ${content}`] : [];
}

const REASONS = ["if-match", "if-none-match", "content-encoding", "expect"];

/** No length, condition, encoding or type that could be a reason to refuse. */
const hasNoReason = (request: SoundRequest, bodyBytesMax: number): boolean =>
  request.line === BATCH ||
  ((request.body?.length ?? 0) <= bodyBytesMax &&
    valuesOf(request, "content-type").join() === "application/json" &&
    REASONS.every((name) => valuesOf(request, name).length === 0));

/** All differences between these rows and what the answers said. */
export function compare(rows: readonly StoredPlant[], stored: Circumstances["stored"]): string[] {
  const found = new Set(rows.map(({ id }) => id));
  const lost = [...stored].filter(([id, { isCertain }]) => isCertain && !found.has(id));
  const wrong = rows.filter((row) => !stored.get(row.id)?.contents.includes(toContent(row)));
  return [
    ...lost.map(([id]) => `${id}: lost after it was acknowledged`),
    ...wrong.map((row) => `${row.id}: stored, but not acknowledged so: ${toContent(row)}`),
  ];
}
