/** Which charts a scenario has. */

import { drawBars } from "./chart-bars.ts";
import { drawLines } from "./chart-lines.ts";
import type { ScenarioResult } from "./results.ts";
import { nameConnections } from "../scenario.ts";
import { CONNECTIONS } from "../settings.ts";

interface Chart {
  readonly file: string;
  readonly alt: string;
  readonly svg: string;
}

export function drawCharts({ name, title, chart, tables }: ScenarioResult): Chart[] {
  const measured = tables.filter(({ rows }) => rows.some(({ rounds }) => rounds.length > 0));
  if (measured.length === 0) return [];
  if (chart === "bars")
    return [{ file: `${name}.svg`, alt: title, svg: drawBars(title, measured) }];
  const usual = measured.filter((table) => table.name === nameConnections(CONNECTIONS));
  return [
    { file: `${name}.svg`, alt: title, svg: drawBars(title, usual) },
    {
      file: `${name}-connections.svg`,
      alt: `${title}, by number of connections`,
      svg: drawLines(title, measured),
    },
  ];
}
