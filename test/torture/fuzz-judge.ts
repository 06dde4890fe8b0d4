/** One request and its answer: whether that was an answer at all, whether it was right, and what is stored by it. */

import { catalogue } from "../../src/domain/errors.ts";
import { findPlantByOracle } from "../support/oracle.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { type Answer, readBody } from "./answer.ts";
import { findDeliberateRefusal } from "./creators.ts";
import { valuesOf, type WireRequest } from "./fuzz-framing.ts";
import type { Model } from "./fuzz-model.ts";

export interface Circumstances {
  readonly model: Model;
  readonly owner: number;
  readonly bodyBytesMax: number;
  /** Nothing but body and values are odd: whatever comes back is the service's own. */
  readonly isSound: boolean;
}

type Operation =
  | { readonly kind: "create"; readonly plant: StoredPlant | undefined }
  | { readonly kind: "batch" }
  | { readonly kind: "replace"; readonly id: bigint; readonly plant: StoredPlant | undefined }
  | { readonly kind: "remove"; readonly id: bigint }
  | { readonly kind: "other" };

/** What is wrong; the model knows afterwards what came of it. */
export function judge(
  request: WireRequest,
  answer: Answer | undefined,
  circumstances: Circumstances,
): string[] {
  const operation = findOperation(request);
  const faults = answer === undefined ? [] : judgeForm(request, answer, circumstances);
  const isAccepted = answer !== undefined && answer.status < 300;
  if (operation.kind !== "other" && isAccepted && !isEntitled(request))
    faults.push(`${answer.status} for a request without a right to it`);
  if (isEntitled(request)) faults.push(...settle(operation, request, answer, circumstances));
  return faults;
}

const PLAIN_INTEGER = /^(0|-?[1-9]\d{0,18})$/;

function findOperation({ method, target, body }: WireRequest): Operation {
  const path = target.replace(/^https?:\/\/[^/?]*/, "").replace(/\?.*$/s, "");
  if (path === "/plants" && method === "POST") return { kind: "create", plant: findPlantOf(body) };
  if (path === "/plants/batch" && method === "POST") return { kind: "batch" };
  const digits = /^\/plants\/([^/]+)$/.exec(path)?.[1] ?? "";
  if (!PLAIN_INTEGER.test(digits) || BigInt.asIntN(64, BigInt(digits)) !== BigInt(digits))
    return { kind: "other" };
  const id = BigInt(digits);
  if (method === "DELETE") return { kind: "remove", id };
  if (method === "PUT") return { kind: "replace", id, plant: findReplacement(body, id) };
  return { kind: "other" };
}

/** Nested so deep that the service may give up. */
const DEEP = /\[{999,}\]{999,}/;

/** The oracle recurses, so that what is nested without end is taken out before; unequal halves are no JSON. */
function findPlantOf(body: Uint8Array): StoredPlant | undefined {
  if (body.length < 999) return findPlantByOracle(body);
  const text = Buffer.from(body).toString("latin1");
  const shallow = text.replace(DEEP, (nested) =>
    nested.lastIndexOf("[") === nested.length / 2 - 1 ? "0" : "[",
  );
  return findPlantByOracle(Buffer.from(shallow, "latin1"));
}

/** An id in the body stands behind the one of the path, and so counts, and has to be the same. */
function findReplacement(body: Uint8Array, id: bigint): StoredPlant | undefined {
  const start = body.indexOf("{".charCodeAt(0));
  if (start === -1) return undefined;
  const whole = Buffer.concat([
    body.subarray(0, start),
    Buffer.from(`{"id":${id},`),
    body.subarray(start + 1),
  ]);
  const plant = findPlantOf(whole);
  return plant?.id === id ? plant : undefined;
}

const HOST = /^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:\d*)?$/;

function isEntitled(request: WireRequest): boolean {
  const tokens = valuesOf(request, "authorization");
  const hosts = valuesOf(request, "host");
  const isFound = hosts.length === 0 ? request.version === "HTTP/1.0" : HOST.test(hosts.join());
  return isFound && tokens.length === 1 && /^bearer +/i.test(tokens[0] ?? "")
    ? (tokens[0] ?? "").replace(/^bearer +/i, "") === TEST_TOKEN
    : false;
}

/** The parser's own answers, which have no body and end the connection. */
const RUNTIME_STATUSES: ReadonlySet<number> = new Set([400, 413, 431, 505]);

export const isOfRuntime = ({ status, body }: Answer): boolean =>
  body === "" && RUNTIME_STATUSES.has(status);

function judgeForm(request: WireRequest, answer: Answer, { isSound }: Circumstances): string[] {
  const { status } = answer;
  if (status < 400) return [];
  if (request.method === "HEAD") return status === 500 ? ["500"] : [];
  if (!isSound && isOfRuntime(answer)) return [];
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
  request: WireRequest,
  answer: Answer | undefined,
  { model, owner, bodyBytesMax, isSound }: Circumstances,
): string[] {
  if (operation.kind === "other") return [];
  if (operation.kind === "batch") return settleBatch(request, answer, { model, owner });
  const isUnknown =
    answer === undefined ||
    (answer.status === 503 && findDeliberateRefusal(answer) === "store_unavailable");
  if (operation.kind === "remove") {
    if (isUnknown || answer.status === 204) model.removed(operation.id, owner, !isUnknown);
    return [];
  }
  const { plant } = operation;
  if (isUnknown && plant !== undefined) {
    if (operation.kind === "create") model.maybeCreated(plant, owner);
    else model.replaced(plant, owner, false);
  }
  if (isUnknown) return [];
  if (answer.status !== 200) {
    const isDue =
      isSound &&
      request.body.length <= bodyBytesMax &&
      isPlain(request) &&
      !DEEP.test(Buffer.from(request.body).toString("latin1"));
    return isDue &&
      plant !== undefined &&
      !mayFail(operation.kind, plant, answer.status, model.find(plant.id, owner))
      ? [`${answer.status} for a good plant: ${readBody(answer)}`]
      : [];
  }
  if (plant === undefined) return ["200 for what is no plant"];
  const said = readBody(answer);
  const due = JSON.stringify({ name: plant.name, tag: plant.tag ?? undefined });
  const faults =
    said === due ? [] : [`200 with ${said.slice(0, 300)} instead of ${due.slice(0, 300)}`];
  if (operation.kind === "replace") model.replaced(plant, owner, true);
  else faults.push(...[model.created(plant, owner)].filter((fault) => fault !== undefined));
  return faults;
}

/** Whether a good plant may be answered with this, by what is known to be stored under its id. */
function mayFail(
  kind: "create" | "replace",
  plant: StoredPlant,
  status: number,
  known: StoredPlant | undefined,
): boolean {
  if (status === 503) return true;
  if (kind === "replace") return known === undefined && status === 404;
  return status === 409 && (known === undefined || !isSamePlant(known, plant));
}

const REASONS: ReadonlySet<string> = new Set([
  "if-match",
  "if-none-match",
  "content-encoding",
  "expect",
]);

/** No condition, encoding or type that could be a reason to refuse. */
function isPlain(request: WireRequest): boolean {
  return (
    valuesOf(request, "content-type").join() === "application/json" &&
    request.fields.every(([name]) => !REASONS.has(name))
  );
}

interface LineResult {
  readonly line: number;
  readonly status: number;
}

function settleBatch(
  request: WireRequest,
  answer: Answer | undefined,
  { model, owner }: Pick<Circumstances, "model" | "owner">,
): string[] {
  const lines = splitLines(request.body);
  if (answer === undefined) {
    for (const plant of lines.map(findPlantOf))
      if (plant !== undefined) model.maybeCreated(plant, owner);
    return [];
  }
  if (answer.status !== 200) return [];
  const results = new Map<number, LineResult>();
  for (const text of readBody(answer).split("\n")) {
    if (text === "") continue;
    const result = JSON.parse(text) as LineResult;
    results.set(result.line, result);
  }
  return lines.flatMap((line, index) => {
    const plant = findPlantOf(line);
    const status = results.get(index + 1)?.status;
    if (status === 400 && DEEP.test(Buffer.from(line).toString("latin1"))) return [];
    if (status === 200 && plant === undefined) return [`line ${index + 1} is no plant, and 200`];
    if (status === 200 && plant !== undefined) return model.created(plant, owner) ?? [];
    if (status === 503 && plant !== undefined) model.maybeCreated(plant, owner);
    if (plant !== undefined && ![200, 409, 503].includes(status ?? 0))
      return [`line ${index + 1} is a plant, and ${status}`];
    return [];
  });
}

function splitLines(body: Uint8Array): Uint8Array[] {
  const lines: Uint8Array[] = [];
  let start = 0;
  for (let end = body.indexOf(10); end !== -1; end = body.indexOf(10, start)) {
    lines.push(body.subarray(start, end));
    start = end + 1;
  }
  lines.push(body.subarray(start));
  return lines;
}
