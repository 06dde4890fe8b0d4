/** What a command has done, for people: a sentence, and below it the facts, one a line. */

export function printFacts(sentence: string, facts: readonly (readonly [string, string])[]): void {
  const width = Math.max(...facts.map(([name]) => name.length));
  const lines = facts.map(([name, value]) => `${`  ${name.padEnd(width)}  ${value}`.trimEnd()}\n`);
  process.stdout.write(`${sentence}\n\n${lines.join("")}`);
}

const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

/** 1234567 is 1.23 MB. */
export function formatBytes(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  // 999.5 already, because three digits would make 1,000 of it.
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${number.format(value)} ${units[unit]}`;
}
