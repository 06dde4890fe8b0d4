/** The run of a copy: tokens, then plants, then verification; told while it lasts, and counted at any time. */

import type { RetryOptions } from "../client/retry.ts";
import type { Store, StoreLimits } from "../domain/store.ts";
import type { Account } from "./copy-conclusion.ts";
import { copyPlants } from "./copy-plants.ts";
import { Side } from "./copy-side.ts";
import { copyTokens, type CopiedTokens, findTokenChanges } from "./copy-tokens.ts";
import { isSameSum, sumUp } from "./copy-verify.ts";
import { CommandError } from "./failure.ts";
import { describeRetry } from "./quantity.ts";
import { isProgressShown, Progress } from "./progress.ts";

const DIFFERENCES_PRINTED_MAX = 10;
/** As long as each other, so that the line does not jump. */
const stages = { copying: "copying  ", verifying: "verifying" };

interface CopyParts {
  readonly from: Store;
  readonly to: Store;
  /** Of the target. */
  readonly limits: StoreLimits;
  readonly isForced: boolean;
  readonly isQuiet: boolean;
  /** What names the target to another command. */
  readonly databaseUrlFlag: string;
  readonly signal: AbortSignal;
}

export class Copy {
  readonly account: Account;
  private readonly parts: CopyParts;
  private readonly from: Side;
  private readonly to: Side;
  private progress: Progress | undefined;

  constructor(parts: CopyParts) {
    this.parts = parts;
    const retrying: RetryOptions = {
      signal: parts.signal,
      onRetry: ({ message }, waitMs) => this.print(describeRetry(message, waitMs)),
    };
    this.from = new Side(parts.from, retrying);
    this.to = new Side(parts.to, retrying);
    this.account = {
      from: this.from.location,
      to: this.to.location,
      plants: { copied: 0, present: 0, replaced: 0, removed: 0, different: 0, extra: 0 },
      tokens: { copied: 0, present: 0, different: 0, extra: 0 },
      sums: undefined,
      changed: [],
    };
  }

  /** Tokens first: where their names collide a person has to decide, and need not have waited for the plants. */
  async run(): Promise<void> {
    const { account, from, to } = this;
    const tokens = await this.copyTokens();
    try {
      const expected = await this.copyPlants();
      const sums = await this.verify();
      const changes = await findTokenChanges(from, to, tokens);
      account.sums = sums;
      if (changes.from || !isSameSum(sums.from, expected.from)) account.changed.push(from.location);
      if (changes.to || !isSameSum(sums.to, expected.to)) account.changed.push(to.location);
    } finally {
      this.progress?.close();
    }
  }

  private async copyTokens(): Promise<CopiedTokens> {
    const { account, from, to, parts } = this;
    const copied = await copyTokens(from, to);
    Object.assign(account.tokens, copied.tally);
    if (copied.collisions.length > 0) {
      const ways = copied.collisions.map(
        ({ name }) => `  plantstore token revoke ${name} ${parts.databaseUrlFlag}`,
      );
      throw new CommandError(
        `Of the tokens of ${from.location}, ${copied.collisions.length} cannot be copied: ` +
          `${to.location} has others in use by their names. Revoke those, and run it again:\n${ways.join("\n")}`,
      );
    }
    for (const { name, prefix } of copied.different)
      this.print(`token ${name} (${prefix}…): revoked or changed in the target, and left so`);
    return copied;
  }

  private async copyPlants(): ReturnType<typeof copyPlants> {
    const { from, to, parts } = this;
    const { plants: tally } = this.account;
    const isShown = isProgressShown(parts.isQuiet);
    const total = isShown ? await from.attempt((store) => store.countPlants()) : undefined;
    const read = () => {
      const done = tally.present + tally.copied + tally.replaced + tally.different;
      return { plants: done, done, different: tally.different + tally.extra };
    };
    this.show("copying", read, total === undefined ? undefined : Number(total));
    let unprinted = 0;
    const expected = await copyPlants({
      from,
      to,
      isForced: parts.isForced,
      limits: parts.limits,
      tally,
      onDifference: (id, difference) => {
        if (tally.different + tally.extra > DIFFERENCES_PRINTED_MAX) unprinted++;
        else this.print(`id ${id}: ${differences[difference]}`);
      },
    });
    if (unprinted > 0) this.print(`… and ${unprinted} more.`);
    return expected;
  }

  private async verify(): ReturnType<typeof sumUp> {
    const { copied, present, replaced, different, extra } = this.account.plants;
    const count = copied + present + replaced + different;
    const verifying = { from: 0, to: 0 };
    const read = () => ({
      plants: Math.min(verifying.from, verifying.to),
      done: verifying.from + verifying.to,
    });
    this.show("verifying", read, 2 * count + extra);
    return sumUp(this.from, this.to, verifying);
  }

  private show(
    stage: keyof typeof stages,
    read: ConstructorParameters<typeof Progress>[0],
    total: number | undefined,
  ): void {
    this.progress?.close();
    const { isQuiet } = this.parts;
    this.progress = new Progress(read, { isQuiet, total, stage: stages[stage] });
  }

  private print(line: string): void {
    if (this.progress === undefined) process.stderr.write(`${line}\n`);
    else this.progress.print(line);
  }
}

const differences = {
  different: "not the same plant in both stores",
  extra: "in the target only",
} as const;
