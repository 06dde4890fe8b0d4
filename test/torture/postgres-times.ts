/** How often something happened, and how long it took, by its kind. */

export class Times {
  readonly #countOf = new Map<string, number>();
  readonly #msOf = new Map<string, readonly number[]>();

  /** Without a time where nobody waited for it to be over. */
  add(kind: string, ms?: number): void {
    this.#countOf.set(kind, (this.#countOf.get(kind) ?? 0) + 1);
    if (ms !== undefined) this.#msOf.set(kind, [...(this.#msOf.get(kind) ?? []), ms]);
  }

  /** One for each kind. */
  figures(): Record<string, string> {
    return Object.fromEntries(
      [...this.#countOf].map(([kind, count]) => [
        kind,
        [count === 1 ? "once" : `${count} times`, ...describe(this.#msOf.get(kind) ?? [])].join(),
      ]),
    );
  }
}

function describe(all: readonly number[]): string[] {
  if (all.length === 0) return [];
  const sorted = all.toSorted((one, other) => one - other);
  const median = sorted[Math.floor(sorted.length / 2)] as number;
  const max = sorted.at(-1) as number;
  return [
    ` well again after ${median.toFixed(0)} ms in the median`,
    ` ${max.toFixed(0)} ms at most`,
  ];
}

/** Undefined where it takes longer. */
export async function within<Result>(
  ms: number,
  promise: Promise<Result>,
): Promise<Result | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => resolve(undefined), ms);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
