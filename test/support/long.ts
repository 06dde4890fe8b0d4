/** How much is tried. `npm run test:long` tries more than `npm test`. */

export const isLong = process.env["PLANTSTORE_TEST_LONG"] === "true";

/** A factor for the runs of property tests. */
export const runsFactor = Number(process.env["PLANTSTORE_TEST_RUNS"] ?? (isLong ? 5 : 1));
