/** Environment variables that were meant for us and would be ignored in silence. */

import { settings } from "../settings.ts";

/** Variables that look like a setting of ours misspelt; others may belong to anyone. */
export function findMisspelt(environment: NodeJS.ProcessEnv): string[] {
  const known: string[] = Object.values(settings).map((setting) => setting.env);
  return Object.keys(environment)
    .filter((name) => name.startsWith("PLANTSTORE_") && !known.includes(name))
    .flatMap((name) => {
      const meant = nearest(name, known);
      return meant === undefined ? [] : [`${name} is not a setting; did you mean ${meant}?`];
    });
}

function nearest(word: string, known: readonly string[]): string | undefined {
  const distances = known.map((candidate) => [candidate, editDistance(word, candidate)] as const);
  const [best] = distances.toSorted((a, b) => a[1] - b[1]);
  return best !== undefined && best[1] <= Math.max(2, word.length / 4) ? best[0] : undefined;
}

/** Levenshtein's distance, one row at a time. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const substituted = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substituted));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
