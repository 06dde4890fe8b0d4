/** How a command ends that did not do what it was asked: a line for people, and an exit code for scripts. */

import { ServiceError } from "../client/client.ts";
import { ConfigError } from "../config.ts";
import { Refusal, StoreOpenError } from "../domain/errors.ts";

const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

/** It was understood, and could not be done. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** It was asked in the wrong words. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

export function exitCodeOf(error: unknown): number {
  return error instanceof UsageError || error instanceof ConfigError ? EXIT_USAGE : EXIT_FAILED;
}

/** What we know how to say in a sentence; anything else is shown whole, for whoever has to find out. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const isOurs = [
    CommandError,
    UsageError,
    ConfigError,
    StoreOpenError,
    Refusal,
    ServiceError,
  ].some((kind) => error instanceof kind);
  const { code } = error as NodeJS.ErrnoException;
  if (code === "EADDRINUSE") return `${error.message} Another one is chosen by --port or PORT.`;
  const isSystems = typeof code === "string";
  if (!isOurs && !isSystems) return error.stack ?? error.message;
  return error.message;
}
