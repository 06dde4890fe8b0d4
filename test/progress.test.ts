/** Progress on a terminal: what it shows, how wide it gets, and that nothing of it stays. */

import { expect, test } from "bun:test";
import { formatProgress } from "../src/cli/terminal.ts";
import { runOnTerminal } from "./support/command.ts";
import { lines, makeWorkplace } from "./support/folder.ts";

const CLEAR_LINE = "\r\u001b[K";

test("progress shows the stage, percent, count, rate, refusals and time, as far as there is room", () => {
  const reading = { stage: "copying", plants: 481_203, refused: 3, part: 0.48 };
  expect(formatProgress(reading, 65, 80)).toBe(
    "copying  48%  481,203 plants  7,403/s  3 refused  1:05",
  );
  expect(formatProgress({ plants: 5 }, 1, 80)).toBe("5 plants  5/s  0:01");
  // A file may grow while it is read.
  expect(formatProgress({ plants: 5, part: 1.2 }, 1, 80)).toStartWith("100%  ");
  for (let columns = 1; columns < 100; columns++)
    expect(formatProgress(reading, 65, columns).length).toBeLessThan(columns);
});

test("progress is on the terminal while it lasts, and gone at the end", async () => {
  using at = makeWorkplace({ "plants.ndjson": lines(1, 60_000) });
  const { exitCode, screen } = await runOnTerminal(["import", at.file("plants.ndjson")], at.env);
  expect(exitCode).toBe(0);
  const drawn = screen.split(CLEAR_LINE);
  expect(drawn[1]).toMatch(/^\d+%  [\d,]+ plants  [\d,]+\/s/);
  expect(drawn.at(-1)).toMatch(
    /^created 60000, replayed 0, refused 0\r\nplantstore: to take this import back: [^\n]+\n$/,
  );
});
