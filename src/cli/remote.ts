/** Talking to a running service: what can be asked of it, and what its failures mean to a command. */

import type { Config } from "../config.ts";
import { CommandError, UsageError } from "./failure.ts";
import { Setback } from "./persistence.ts";

const NDJSON_TYPE = "application/x-ndjson";

export interface Remote {
  readonly url: string;
  readonly token: string;
}

/** The service of --url, or undefined where the store itself is meant. */
export function parseRemote(
  options: { readonly url?: string; readonly databaseUrl?: string },
  config: Config,
): Remote | undefined {
  if (options.url === undefined) return undefined;
  if (options.databaseUrl !== undefined)
    throw new UsageError("--url and --database-url: give one of them, the service or the store");
  const url = URL.parse(options.url);
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (!isHttp || url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw new UsageError(
      `--url: ${JSON.stringify(options.url)} is not allowed; expected the address of a service, as in http://127.0.0.1:8080`,
    );
  if (config.token === undefined)
    throw new UsageError(
      "--url: the token is missing; put it into the environment as PLANTSTORE_TOKEN",
    );
  return { url: url.href.replace(/\/+$/, ""), token: config.token };
}

/**
 * Asks the service, and resolves to an answer with status 200 and lines in it. Throws a Setback where the
 * same request may succeed later, and a CommandError where it will not. Only to be sent what may be sent twice.
 */
export async function ask(
  remote: Remote,
  path: string,
  init: BunFetchRequestInit,
): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(remote.url + path, {
      ...init,
      headers: {
        authorization: `Bearer ${remote.token}`,
        accept: NDJSON_TYPE,
        ...(init.body === undefined ? {} : { "content-type": NDJSON_TYPE }),
      },
      // The token is for this address and no other.
      redirect: "manual",
    });
  } catch (error) {
    throw explainLoss(remote, error);
  }
  if (response.status !== 200) throw await explainStatus(remote, response);
  if (response.headers.get("content-type")?.startsWith(NDJSON_TYPE)) return response;
  throw new CommandError(`${remote.url} does not answer as a plant store does.`);
}

/** Where a connection fails that worked before, or might have: not where a name or a certificate is wrong. */
const PASSING_LOSSES = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT", "EAI_AGAIN"]);

export function explainLoss({ url }: Remote, error: unknown): Error {
  if (!(error instanceof Error)) return new Error("thrown by fetch", { cause: error });
  if (error.name === "TimeoutError") return new Setback(`${url} did not answer in time.`, 0, error);
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ECONNREFUSED") return new Unreached(`${url} cannot be reached.`, 0, error);
  if (code !== undefined && PASSING_LOSSES.has(code))
    return new Setback(`The connection to ${url} was lost.`, 0, error);
  if (code === undefined) return error;
  return new CommandError(`${url} cannot be reached: ${error.message}.`, { cause: error });
}

/** Nobody listens: for a moment, where somebody did before; or it is the wrong address. */
export class Unreached extends Setback {}

const PASSING_STATUSES = new Set([408, 429, 500, 502, 503, 504]);
const RETRY_AFTER_SECONDS_MAX = 30;

async function explainStatus({ url }: Remote, response: Response): Promise<Error> {
  const { status } = response;
  const message = await readMessage(response);
  const retryAfter = Number(response.headers.get("retry-after") ?? 0);
  if (PASSING_STATUSES.has(status))
    return new Setback(
      `${url} answers ${status}: ${message}`,
      Math.min(retryAfter || 0, RETRY_AFTER_SECONDS_MAX) * 1000,
    );
  if (status === 401 || status === 403)
    return new CommandError(`${url} does not accept the token: ${message}`);
  const location = response.headers.get("location");
  if (location !== null)
    return new CommandError(`${url} answers ${status}, and refers to ${location}.`);
  return new CommandError(`${url} answers ${status}: ${message}`);
}

const MESSAGE_CHARACTERS_MAX = 200;

/** The message of the catalogue; from somebody else, whatever text came with the status. */
async function readMessage(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    if (typeof message === "string") return message;
  } catch {
    // Not one of ours.
  }
  const line = text.replaceAll(/\s+/g, " ").trim().slice(0, MESSAGE_CHARACTERS_MAX);
  return line === "" ? response.statusText || "no reason given" : line;
}
