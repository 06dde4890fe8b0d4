/** Sends blocks of plants, again and again until each has its answer: a plant sent twice is stored once. */

import { catalogue } from "../../domain/errors.ts";
import { formatStoredPlant, type Plant } from "../../domain/plant.ts";

export type Outcome = "created" | "replayed" | { readonly reason: string };

/** The token is not accepted any more: nothing further can be sent. */
export class TokenRefused extends Error {
  readonly isExpired: boolean;

  constructor(isExpired: boolean) {
    super("The token is not accepted.");
    this.isExpired = isExpired;
  }
}

/** The service does not take this at all. */
export class SendingFailed extends Error {}

/** Worth another try. */
class Setback extends Error {}

interface Target {
  readonly url: string;
  readonly token: string;
  readonly signal: AbortSignal;
  readonly onWaiting: (isWaiting: boolean) => void;
}

const DELAY_MS_MIN = 300;
const DELAY_MS_MAX = 8000;

interface Result {
  readonly line: number;
  readonly status: number;
  readonly error?: number;
  readonly message?: string;
  readonly replayed?: boolean;
}

const passingCodes: ReadonlySet<number> = new Set(
  Object.values(catalogue).flatMap(({ code, retry }) => (retry ? [code] : [])),
);

/** One outcome a plant, in their order. */
export async function sendPlants(plants: readonly Plant[], target: Target): Promise<Outcome[]> {
  const outcomes: (Outcome | undefined)[] = plants.map(() => undefined);
  let delayMs = DELAY_MS_MIN;
  for (;;) {
    const open = outcomes.flatMap((outcome, index) => (outcome === undefined ? [index] : []));
    if (open.length === 0) return outcomes as Outcome[];
    let progress = 0;
    try {
      const body = open.map((index) => `${formatStoredPlant(plants[index] as Plant)}\n`).join("");
      for (const result of await post(body, target)) {
        const index = open[result.line - 1];
        const outcome = toOutcome(result);
        if (index === undefined || outcome === undefined) continue;
        outcomes[index] = outcome;
        progress++;
      }
    } catch (error) {
      if (!(error instanceof Setback)) throw error;
    }
    if (progress === open.length) continue;
    target.onWaiting(true);
    delayMs = progress > 0 ? DELAY_MS_MIN : Math.min(delayMs * 2, DELAY_MS_MAX);
    await pause(delayMs, target.signal);
    target.onWaiting(false);
  }
}

/** Undefined where it is not settled yet. */
function toOutcome({ status, error, message, replayed }: Result): Outcome | undefined {
  if (status === 200) return replayed === true ? "replayed" : "created";
  if (error !== undefined && passingCodes.has(error)) return undefined;
  return { reason: message ?? `The answer was ${status}.` };
}

const PASSING_STATUSES: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504]);

async function post(body: string, { url, token, signal }: Target): Promise<Result[]> {
  let response: Response;
  try {
    response = await fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/x-ndjson" },
      body,
      signal,
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new Setback("lost", { cause: error });
  }
  if (response.status === 200) return readResults(response, signal);
  const { error, message } = (await response.json().catch(() => ({}))) as {
    error?: number;
    message?: string;
  };
  if (PASSING_STATUSES.has(response.status)) throw new Setback(`status ${response.status}`);
  if (response.status === 401) throw new TokenRefused(error === catalogue.token_expired.code);
  throw new SendingFailed(message ?? `The answer was ${response.status}.`);
}

/** What came before a break counts; the last line may be cut. */
async function readResults(response: Response, signal: AbortSignal): Promise<Result[]> {
  let text = "";
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read())
      text += decoder.decode(next.value, { stream: true });
  } catch {
    signal.throwIfAborted();
  }
  const lines = text.slice(0, text.lastIndexOf("\n") + 1).split("\n");
  return lines.flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Result]));
}

function pause(delayMs: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, delayMs);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });
}
