/** Asks the service, and says in one way what can go wrong. */

import { noteAnswer, noteLoss } from "../state/connection.ts";
import { endSession, token } from "../state/session.ts";

/** The folder that the page is in: the service may be anywhere below a host. */
export const baseUrl = new URL(".", document.baseURI);

/** No answer came. What was sent may have been done, or not. */
export class Lost extends Error {
  override readonly name = "Lost";

  constructor(cause?: unknown) {
    super("No answer came from the store.", { cause });
  }
}

/** An answer that says no. */
export class Failed extends Error {
  override readonly name = "Failed";
  readonly status: number;
  readonly code: number;

  constructor(status: number, code: number, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether the very same request may succeed later. */
  get isPassing(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

export const isStatus = (error: unknown, status: number): boolean =>
  error instanceof Failed && error.status === status;

export interface Ask extends RequestInit {
  readonly headers?: Record<string, string>;
  /** Instead of that of the session: one that is being tried. */
  readonly withToken?: string;
}

/** Resolves to a good answer. Throws Failed, Lost, or an AbortError. A 401 ends the session. */
export async function ask(path: string, { withToken, ...init }: Ask = {}): Promise<Response> {
  const sent = withToken ?? token.value ?? "";
  let response: Response;
  try {
    response = await fetch(new URL(path, baseUrl), {
      ...init,
      headers: { ...init.headers, authorization: `Bearer ${sent}` },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    noteLoss();
    throw new Lost(error);
  }
  noteAnswer();
  if (response.ok) return response;
  const failure = await readFailure(response);
  if (response.status === 401 && withToken === undefined && sent === token.value)
    endSession(failure.code === TOKEN_EXPIRED ? "expired" : "refused");
  throw failure;
}

export const TOKEN_EXPIRED = 2003;

/** The text of an answer; the connection may be lost while it comes. */
export async function readText(response: Response): Promise<string> {
  try {
    return await response.text();
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
    // Not from the service itself, but from something in between.
  }
  return new Failed(response.status, 0, `The answer was ${response.status}.`);
}

/** For people. */
export function explain(error: unknown): string {
  if (error instanceof Lost) return "The connection was lost before an answer came.";
  if (error instanceof Failed)
    return error.isPassing ? "The store is busy or not available at the moment." : error.message;
  return "Something went wrong in this page.";
}
