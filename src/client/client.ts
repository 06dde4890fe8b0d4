/** An HTTP client of the service, for browsers and command lines alike. */

import { catalogue } from "../domain/errors.ts";
import type { PlantPage, PlantQuery } from "../domain/page.ts";
import { formatStoredPlant, type Plant } from "../domain/plant.ts";
import { retry, type RetryOptions } from "./retry.ts";

const NDJSON_TYPE = "application/x-ndjson";
const BATCH_SECONDS_MAX = 60;
/** How long an aborted batch is still waited for, to learn what it stored. */
const ABORTED_BATCH_SECONDS_MAX = 5;
const RETRY_AFTER_SECONDS_MAX = 30;

/** What is left out is not known. */
type Failure = Partial<Omit<ServiceError, "name" | "stack" | "message">> &
  Pick<ServiceError, "message">;

/** The service refused, or no usable answer came. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  /** 0 where no answer came: the service may have done what was asked, or not. */
  readonly status: number = 0;
  /** The error code of the catalogue; 0 where the answer did not come from the service itself. */
  readonly code: number = 0;
  /** The message of the service itself. */
  readonly detail: string;
  /** Whether the same request may succeed later. */
  readonly isTransient: boolean = false;
  readonly retryAfterMs: number = 0;

  constructor({ message, cause, ...facts }: Failure) {
    super(message, { cause });
    this.detail = message;
    Object.assign(this, facts);
  }
}

export interface Refused {
  readonly code: number;
  readonly message: string;
}

export type Outcome = "created" | "replayed" | Refused;

/** Called once for each plant, by its index, as soon as its outcome is known. */
export type Settle = (index: number, outcome: Outcome) => void;

export type Filter = Partial<Pick<PlantQuery, "tag" | "name" | "order">>;

export class Client {
  private readonly url: string;
  private readonly token: string;
  private wasReached = false;

  /** `url` is the address of the service, with its base path. */
  constructor(url: string, token: string) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
  }

  /** Resolves to an answer with a status of 2xx. Rejects with a ServiceError or the reason of an abort. */
  async request(path: string, init: RequestInit = {}): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(`${this.url}${path}`, {
        ...init,
        headers: {
          ...(init.headers as Record<string, string> | undefined),
          authorization: `Bearer ${this.token}`,
        },
        cache: "no-store",
        credentials: "omit",
        // The token is for this address and no other.
        redirect: "manual",
      });
    } catch (error) {
      throw this.explainLoss(error, init.signal);
    }
    this.wasReached = true;
    if (response.ok) return response;
    throw await this.explainAnswer(response);
  }

  /**
   * Stores the plants in one request, and sends again what was not answered for. Rejects where some plants stay
   * unsettled: they may have been stored, and sending them again settles it. An abort ends the retries, and the
   * request under way after a few seconds.
   */
  async createPlants(
    plants: readonly Plant[],
    settle: Settle,
    options: RetryOptions = {},
  ): Promise<void> {
    const { signal } = options;
    const left = new Map(plants.entries());
    const attempt = (): Promise<void> =>
      this.sendBatch(
        left,
        (index, outcome) => {
          left.delete(index);
          settle(index, outcome);
        },
        signal,
      );
    if (left.size > 0) await retry(attempt, { ...options, findWaitMs });
  }

  async listPlants(query: Partial<PlantQuery>, signal?: AbortSignal): Promise<PlantPage> {
    const path = `/plants?${formatQuery(query)}`;
    const init = { headers: { accept: "application/json" }, signal: signal ?? null };
    const response = await this.request(path, init);
    const text = await response.text().catch((error: unknown) => {
      throw this.explainLoss(error, signal);
    });
    const plants = findPlants(text);
    const next = findNext(response.headers);
    if (plants === undefined || next === null) throw this.notAPlantStore();
    return { plants, next };
  }

  /**
   * All plants that match, by id, in blocks. Behind a proxy that speaks HTTP/1.0, a stream that was cut off
   * looks complete. So the service is asked for what comes after the last plant, until a page says that it is the last.
   */
  async *exportPlants(filter: Filter, signal?: AbortSignal): AsyncGenerator<readonly Plant[]> {
    const init = { headers: { accept: NDJSON_TYPE }, signal: signal ?? null };
    const response = await this.request(`/plants?${formatQuery(filter)}`, init);
    let after: bigint | undefined;
    for await (const lines of this.readLines(response, signal)) {
      const plants = findPlants(`[${lines.join(",")}]`);
      if (plants === undefined) throw this.notAPlantStore();
      yield plants;
      after = plants.at(-1)?.id ?? after;
    }
    do {
      const page: PlantPage = await this.listPlants({ ...filter, after, limit: 1000 }, signal);
      if (page.plants.length > 0) yield page.plants;
      after = page.next;
    } while (after !== undefined);
  }

  /** One request. */
  private async sendBatch(
    plants: ReadonlyMap<number, Plant>,
    settle: Settle,
    aborted: AbortSignal | undefined,
  ): Promise<void> {
    aborted?.throwIfAborted();
    const unsettled = new Map([...plants.keys()].map((index, at) => [at + 1, index]));
    const timer = new AbortController();
    const limit = (seconds: number): ReturnType<typeof setTimeout> =>
      setTimeout(() => timer.abort(new DOMException("", "TimeoutError")), seconds * 1000);
    const timers = [limit(BATCH_SECONDS_MAX)];
    const onAbort = (): void => void timers.push(limit(ABORTED_BATCH_SECONDS_MAX));
    aborted?.addEventListener("abort", onAbort);
    let failure: Failure = { message: `${this.url} did not answer for every plant.` };
    try {
      const response = await this.request("/plants/batch", {
        method: "POST",
        headers: { accept: NDJSON_TYPE, "content-type": NDJSON_TYPE },
        body: [...plants.values()].map((plant) => `${formatStoredPlant(plant)}\n`).join(""),
        signal: timer.signal,
      });
      for await (const lines of this.readLines(response, undefined))
        for (const line of lines) {
          const result = findResult(line);
          if (result === undefined) throw this.notAPlantStore();
          const outcome = toOutcome(result);
          const index = unsettled.get(result.line);
          if (outcome === undefined)
            failure = {
              message: `${this.url}: ${result.message ?? `status ${result.status}`}`,
              status: result.status,
              code: result.error ?? 0,
            };
          else if (index !== undefined) {
            unsettled.delete(result.line);
            settle(index, outcome);
          }
        }
    } finally {
      aborted?.removeEventListener("abort", onAbort);
      for (const one of timers) clearTimeout(one);
    }
    if (unsettled.size > 0) throw new ServiceError({ ...failure, isTransient: true });
  }

  /** Complete lines, in blocks. What no newline follows was cut off and is left out. */
  private async *readLines(
    response: Response,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<string[]> {
    if (!response.headers.get("content-type")?.startsWith(NDJSON_TYPE)) throw this.notAPlantStore();
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let rest = "";
    try {
      for (;;) {
        const { done, value } = await reader.read().catch((error: unknown) => {
          throw this.explainLoss(error, signal);
        });
        if (done) return;
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop() as string;
        if (lines.length > 0) yield lines;
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  private notAPlantStore(): ServiceError {
    return new ServiceError({ message: `${this.url} does not answer as a plant store does.` });
  }

  private explainLoss(cause: unknown, signal: AbortSignal | null | undefined): Error {
    const { name, message, code } = cause as { name?: string; message?: string; code?: unknown };
    const lost = (sentence: string, isTransient: boolean): ServiceError =>
      new ServiceError({ message: sentence, isTransient, cause });
    if (name === "TimeoutError") return lost(`${this.url} did not answer in time.`, true);
    if (signal?.aborted) return signal.reason as Error;
    // A service that has never answered is probably not running; one that has may be restarting.
    if (code === "ECONNREFUSED" || code === "ConnectionRefused")
      return lost(`${this.url} cannot be reached.`, this.wasReached);
    if (code === "ENOTFOUND")
      return lost(
        `${this.url} cannot be reached: there is no host ${new URL(this.url).hostname}.`,
        false,
      );
    const isFinal = typeof code === "string" && !TRANSIENT_LOSSES.has(code);
    if (isFinal) return lost(`${this.url} cannot be reached: ${message}.`, false);
    this.wasReached = true;
    return lost(`The connection to ${this.url} was lost.`, true);
  }

  private async explainAnswer(response: Response): Promise<ServiceError> {
    const { status, headers } = response;
    const location = headers.get("location");
    const { code, detail } = await readFailure(response);
    const retryAfterSeconds = Math.min(Number(headers.get("retry-after")), RETRY_AFTER_SECONDS_MAX);
    const answers = `${this.url} answers ${status}`;
    const isTokenRefused = status === 401 || status === 403;
    const message = isTokenRefused
      ? `${this.url} does not accept the token: ${detail}`
      : location === null
        ? `${answers}: ${detail}`
        : `${answers} and refers to ${location}.`;
    return new ServiceError({
      message,
      status,
      code,
      detail,
      isTransient: TRANSIENT_STATUSES.has(status),
      retryAfterMs: (retryAfterSeconds || 0) * 1000,
    });
  }
}

/** A name that does not resolve or a certificate that is wrong stays so; these do not. */
const TRANSIENT_LOSSES = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "EAI_AGAIN"]);
const TRANSIENT_STATUSES = new Set([408, 429, 500, 502, 503, 504]);

const findWaitMs = (error: unknown): number | undefined =>
  error instanceof ServiceError && error.isTransient ? error.retryAfterMs : undefined;

const DETAIL_CHARACTERS_MAX = 200;

/** The catalogue's code and message; from a proxy in between, the text that came with the status. */
async function readFailure(response: Response): Promise<{ code: number; detail: string }> {
  const text = await response.text().catch(() => "");
  const { error, message } = (findJson(text) ?? {}) as { error?: unknown; message?: unknown };
  if (typeof error === "number" && typeof message === "string")
    return { code: error, detail: message };
  const line = text.replaceAll(/\s+/g, " ").trim().slice(0, DETAIL_CHARACTERS_MAX);
  return { code: 0, detail: line || response.statusText || "no reason given" };
}

interface Result {
  readonly line: number;
  readonly status: number;
  readonly replayed?: boolean;
  readonly error?: number;
  readonly message?: string;
}

function findResult(text: string): Result | undefined {
  const found = findJson(text);
  if (typeof found !== "object" || found === null) return undefined;
  const { line, status, replayed, error, message } = found as Record<keyof Result, unknown>;
  const isResult =
    Number.isSafeInteger(line) &&
    typeof status === "number" &&
    ["undefined", "boolean"].includes(typeof replayed) &&
    ["undefined", "number"].includes(typeof error) &&
    ["undefined", "string"].includes(typeof message);
  return isResult ? (found as Result) : undefined;
}

const transientCodes: ReadonlySet<number> = new Set(
  Object.values(catalogue).flatMap(({ code, retry: isTransient }) => (isTransient ? [code] : [])),
);

/** Undefined where the plant may be stored another time. */
function toOutcome({ status, replayed, error = 0, message = "" }: Result): Outcome | undefined {
  if (status === 200) return replayed === true ? "replayed" : "created";
  return status >= 500 || transientCodes.has(error) ? undefined : { code: error, message };
}

function formatQuery({ tag, name, order, after, limit }: Partial<PlantQuery>): string {
  const query = new URLSearchParams();
  if (after !== undefined) query.set("after", String(after));
  if (limit !== undefined) query.set("limit", String(limit));
  if (order === "desc") query.set("order", order);
  if (tag !== undefined) query.set("tag", tag);
  if (name !== undefined) query.set("name", name);
  return query.toString();
}

/** The id of `Link: <…after=id…>; rel="next"`; null where the link is not one of the service. */
function findNext(headers: Headers): bigint | undefined | null {
  const link = /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
  if (link === undefined) return undefined;
  const after = new URLSearchParams(link.replace(/^[^?]*/, "")).get("after") ?? "";
  return /^-?\d+$/.test(after) ? BigInt(after) : null;
}

/**
 * The service writes the id first in every plant. A quote inside a JSON string is escaped, so `{"id":` occurs only at
 * the start of a plant, and putting its digits into quotes keeps them exact.
 */
const ID_MEMBER = /\{"id":(-?\d+)/g;

/** Undefined where the text is not an array of plants. */
function findPlants(json: string): Plant[] | undefined {
  const found = findJson(json.replaceAll(ID_MEMBER, '{"id":"$1"'));
  if (!Array.isArray(found)) return undefined;
  const plants = found.flatMap((value: unknown) => findPlant(value) ?? []);
  return plants.length === found.length ? plants : undefined;
}

function findPlant(value: unknown): Plant | undefined {
  const { id, name, tag } = (value ?? {}) as Record<keyof Plant, unknown>;
  const isPlant = typeof id === "string" && typeof name === "string";
  if (!isPlant || (tag !== undefined && typeof tag !== "string")) return undefined;
  return /^-?\d+$/.test(id) ? { id: BigInt(id), name, tag } : undefined;
}

function findJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
