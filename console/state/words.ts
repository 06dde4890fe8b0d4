/** The words in which two texts differ. */

export interface Piece {
  readonly text: string;
  readonly isCommon: boolean;
}

/** More words are compared as a whole: the time grows with the square. */
const WORDS_MAX = 200;

const split = (text: string): string[] =>
  text.match(/\s+|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu) ?? [];

/** The pieces of `text`: those that `other` has in the same order are common. */
export function compareWords(text: string, other: string): Piece[] {
  if (text === "" || text === other) return text === "" ? [] : [{ text, isCommon: true }];
  const [own, others] = [split(text), split(other)];
  if (own.length > WORDS_MAX || others.length > WORDS_MAX) return [{ text, isCommon: false }];
  // lengths[i][j]: the longest common sequence of own from i and others from j.
  const lengths = Array.from({ length: own.length + 1 }, () =>
    Array.from({ length: others.length + 1 }, () => 0),
  );
  const at = (i: number, j: number): number => lengths[i]?.[j] ?? 0;
  for (let i = own.length - 1; i >= 0; i--)
    for (let j = others.length - 1; j >= 0; j--)
      (lengths[i] as number[])[j] =
        own[i] === others[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const pieces: { text: string; isCommon: boolean }[] = [];
  const push = (word: string, isCommon: boolean): void => {
    const [before, last] = pieces.length === 1 ? [undefined, pieces[0]] : pieces.slice(-2);
    if (last?.isCommon === isCommon) last.text += word;
    // A space between two words that differ is not common.
    else if (!isCommon && before !== undefined && last?.text.trim() === "") {
      before.text += `${last.text}${word}`;
      pieces.pop();
    } else pieces.push({ text: word, isCommon });
  };
  for (let i = 0, j = 0; i < own.length;) {
    const word = own[i] as string;
    if (word === others[j]) {
      push(word, true);
      i++;
      j++;
    } else if (j < others.length && at(i, j + 1) > at(i + 1, j)) j++;
    else {
      push(word, false);
      i++;
    }
  }
  return pieces;
}
