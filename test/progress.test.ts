/** Progress on a terminal: what it shows, how wide it gets, and that nothing of it stays. */

import { describe, expect, test } from "bun:test";
import { formatProgress } from "../src/cli/terminal.ts";
import { runOnTerminal } from "./support/command.ts";
import { lines, makeWorkplace } from "./support/folder.ts";

const CLEAR_LINE = "\r\u001b[K";

describe("progress", () => {
  const reading = {
    plants: 481_203,
    refused: 0,
    done: 48,
    total: 100,
    plantsPerSecond: 23_412.4,
    donePerSecond: 2,
    seconds: 65,
    columns: 80,
    hasColor: false,
  };

  test("shows count, rate, percent and time left, as far as there is room", () => {
    expect(formatProgress(reading)).toBe(
      " 48%  ━━━━━━━━━━━━──────────────  481,203 plants  23,412/s  0:26 left",
    );
    expect(formatProgress({ ...reading, refused: 3, columns: 70 })).toBe(
      " 48%  ━━━━━━━────────  481,203 plants  23,412/s  3 refused  0:26 left",
    );
    expect(formatProgress({ ...reading, columns: 50 })).toBe(
      " 48%  481,203 plants  23,412/s  0:26 left",
    );
    expect(formatProgress({ ...reading, total: undefined })).toBe("481,203 plants  23,412/s  1:05");
    const staged = { ...reading, stage: "verifying", refused: 3 };
    expect(formatProgress({ ...staged, columns: 100 })).toBe(
      "verifying   48%  ━━━━━━━────────  481,203 plants  23,412/s  3 refused  0:26 left",
    );
    expect(formatProgress({ ...staged, total: undefined })).toBe(
      "verifying  481,203 plants  23,412/s  3 refused  1:05",
    );
    for (let columns = 1; columns < 200; columns++)
      expect(Bun.stringWidth(formatProgress({ ...staged, columns, hasColor: true }))).toBeLessThan(
        columns,
      );
  });

  test("is on the terminal while it lasts, and gone at the end", async () => {
    using at = makeWorkplace({ "plants.ndjson": lines(1, 60_000) });
    const { exitCode, screen } = await runOnTerminal(["import", at.file("plants.ndjson")], at.env);
    expect(exitCode).toBe(0);
    const drawn = screen.split(CLEAR_LINE);
    expect(drawn[1]).toMatch(/^ *\d+%  .*━.* plants  [\d,]+\/s/);
    expect(drawn.at(-1)).toMatch(
      /^created 60,000, replayed 0, refused 0 in \d+\.\d s \([\d,]+ a second\)\r\n$/,
    );
    const quiet = await runOnTerminal(["import", at.file("plants.ndjson"), "--quiet"], at.env);
    expect(quiet.screen).toMatch(/^created 0, replayed 60,000, refused 0 in [^\r]*\r\n$/);
  });
});
