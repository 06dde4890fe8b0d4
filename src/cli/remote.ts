/** The running service that --url names. */

import { Client } from "../client/client.ts";
import type { Config } from "../config.ts";
import { UsageError } from "./failure.ts";

/** Undefined where the command is to use the store itself. */
export function parseRemote(
  options: { readonly url?: string; readonly databaseUrl?: string },
  config: Config,
): Client | undefined {
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
  return new Client(url.href, config.token);
}
