/** Which of the forms that we have suits the client best: Accept, RFC 9110 section 12.5.1. */

/** The offer with the highest weight; the first offer where the client has no preference, or none that we can meet. */
export function chooseForm<Form extends string>(
  accept: string | null,
  offers: readonly [Form, ...Form[]],
): Form {
  const ranges = (accept ?? "*/*").split(",").map(parseRange);
  let best = offers[0];
  let bestWeight = 0;
  for (const offer of offers) {
    const weight = weigh(offer, ranges);
    if (weight > bestWeight) [best, bestWeight] = [offer, weight];
  }
  return best;
}

interface Range {
  readonly type: string;
  readonly weight: number;
}

function parseRange(text: string): Range {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  return { type, weight: weight === undefined ? 1 : Number(weight) || 0 };
}

/** The most specific range that covers the offer decides. */
function weigh(offer: string, ranges: readonly Range[]): number {
  const covering = [offer, `${offer.split("/")[0]}/*`, "*/*"];
  for (const type of covering) {
    const range = ranges.find((candidate) => candidate.type === type);
    if (range !== undefined) return range.weight;
  }
  return 0;
}
