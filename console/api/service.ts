/** Requests to the service, and whether it can be reached. */

import { signal } from "@preact/signals";
import { Client, type ErrorName, ServiceError } from "../../client/client.ts";
import { explainError } from "../state/rules.ts";
import { t } from "../text/text.ts";
import { urlOf } from "./page.ts";
import { departures, endSession, token } from "../state/session.ts";

export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

/** Status 0 means that no answer came: the request may or may not have taken effect. */
export const isStatus = (error: unknown, status: number): boolean =>
  error instanceof ServiceError && error.status === status;

export const isReason = (error: unknown, reason: ErrorName): boolean =>
  error instanceof ServiceError && error.reason === reason;

/**
 * Tracks whether the service answers. A 401 ends the session. Throws a ServiceError or an AbortError. It never settles
 * if the user signed out meanwhile, so the next user never sees the result.
 */
export async function call<Result>(
  operate: (client: Client) => Promise<Result>,
  tried?: string,
): Promise<Result> {
  const sent = tried ?? token.value ?? "";
  const begun = departures.peek();
  try {
    const result = await operate(new Client(urlOf(), sent, { delaysMs: [] }));
    noteAnswer();
    return result;
  } catch (error) {
    if (isStatus(error, 0)) noteLoss();
    else if (error instanceof ServiceError) noteAnswer();
    if (isStatus(error, 401) && tried === undefined && sent === token.value)
      endSession(isReason(error, "token_expired") ? "expired" : "refused");
    throw error;
  } finally {
    if (departures.peek() !== begun) await new Promise(() => undefined);
  }
}

/** What this instance did lately. Only the console reads it, so the client has no method for it. */
export const readActivity = <Answer>(query: URLSearchParams): Promise<Answer> =>
  call(async (client) => (await client.request(`/activity?${query}`)).json() as Promise<Answer>);

/** An error whose message is shown to the user. */
export class Explained extends Error {}

export function explain(error: unknown): string {
  if (error instanceof Explained) return error.message;
  if (isStatus(error, 0)) return t.shared.connectionLost;
  if (!(error instanceof ServiceError)) return t.shared.pageFailed;
  return error.isTransient ? t.shared.busy : explainError(error.reason, error.detail);
}

export const isLost = signal(false);
/** Counts recoveries of the connection; views then reload what they missed. */
export const recoveries = signal(0);

const RETRY_MS = 2000;

let timer: ReturnType<typeof setInterval> | undefined;

function noteLoss(): void {
  if (isLost.value) return;
  isLost.value = true;
  timer = setInterval(() => void tryAgain(), RETRY_MS);
}

function noteAnswer(): void {
  if (!isLost.value) return;
  clearInterval(timer);
  isLost.value = false;
  recoveries.value++;
}

export async function tryAgain(): Promise<void> {
  try {
    await fetch(urlOf("livez"), { cache: "no-store" });
    noteAnswer();
  } catch {
    noteLoss();
  }
}
