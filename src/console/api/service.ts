/** Requests to the service, and whether it can be reached. */

import { signal } from "@preact/signals";
import { catalogue } from "../../domain/errors.ts";
import { endSession, token } from "../state/session.ts";

/** The folder of this page: the service may live under any path of its host. */
export const baseUrl = new URL(".", document.baseURI);

/** No answer came. The request may have been carried out or not. */
export class Lost extends Error {
  override readonly name = "Lost";

  constructor(cause?: unknown) {
    super("The store did not answer.", { cause });
  }
}

/** The service refused the request. */
export class Failed extends Error {
  override readonly name = "Failed";
  readonly status: number;
  readonly code: number;

  constructor(status: number, code: number, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether the same request may succeed later. */
  get isTransient(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

export const isStatus = (error: unknown, status: number): boolean =>
  error instanceof Failed && error.status === status;

interface Ask extends RequestInit {
  readonly headers?: Record<string, string>;
  /** A token to try, instead of the session's. */
  readonly withToken?: string;
}

/** Resolves to a successful answer. Throws Failed, Lost or an AbortError. A 401 ends the session. */
export async function ask(path: string, { withToken, ...init }: Ask = {}): Promise<Response> {
  const sent = withToken ?? token.value ?? "";
  const response = await receive(() =>
    fetch(new URL(path, baseUrl), {
      ...init,
      headers: { ...init.headers, authorization: `Bearer ${sent}` },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    }),
  );
  noteAnswer();
  if (response.ok) return response;
  const failure = await readFailure(response);
  if (response.status === 401 && withToken === undefined && sent === token.value)
    endSession(failure.code === catalogue.token_expired.code ? "expired" : "refused");
  throw failure;
}

export const readText = (response: Response): Promise<string> => receive(() => response.text());

/** Throws Lost where the connection breaks, and an AbortError where the page gave up. */
export async function receive<Result>(read: () => Promise<Result>): Promise<Result> {
  try {
    return await read();
  } catch (error) {
    if (isAbort(error)) throw error;
    noteLoss();
    throw new Lost(error);
  }
}

async function readFailure(response: Response): Promise<Failed> {
  try {
    const { error, message } = (await response.json()) as { error?: unknown; message?: unknown };
    if (typeof error === "number" && typeof message === "string")
      return new Failed(response.status, error, message);
  } catch {
    // The answer came from a proxy, not from the service.
  }
  return new Failed(response.status, 0, `The store answered ${response.status}.`);
}

export function explain(error: unknown): string {
  if (error instanceof Lost) return "The connection was lost before an answer came.";
  if (error instanceof Failed)
    return error.isTransient ? "The store is busy or unavailable right now." : error.message;
  return "Something went wrong in this page.";
}

export const isLost = signal(false);
/** Counts how often the connection came back; views then read again what they missed. */
export const recoveries = signal(0);

const RETRY_DELAYS_MS = [500, 1000, 2000, 4000];

let timer: ReturnType<typeof setTimeout> | undefined;
let attempts = 0;

function noteLoss(): void {
  if (isLost.value) return;
  isLost.value = true;
  attempts = 0;
  scheduleRetry();
}

function noteAnswer(): void {
  if (!isLost.value) return;
  clearTimeout(timer);
  isLost.value = false;
  recoveries.value++;
}

function scheduleRetry(): void {
  clearTimeout(timer);
  const delayMs = RETRY_DELAYS_MS[Math.min(attempts++, RETRY_DELAYS_MS.length - 1)];
  timer = setTimeout(() => void tryAgain(), delayMs);
}

export async function tryAgain(): Promise<void> {
  try {
    await fetch(new URL("livez", baseUrl), { cache: "no-store" });
    noteAnswer();
  } catch {
    if (isLost.value) scheduleRetry();
  }
}

addEventListener("online", () => {
  if (isLost.value) void tryAgain();
});
