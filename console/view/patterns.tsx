/** Fill patterns that can be distinguished without colour, and proportional bars. */

import type { JSX } from "preact";
import { useId } from "preact/hooks";
import { formatCount } from "../state/format.ts";
import { fill, t } from "../text/text.ts";

/** Solid, diagonal, dots, vertical lines and outline: distinguishable without colour. */
const drawings: readonly (string | undefined)[] = [
  undefined,
  "M-1 1l2-2M0 6l6-6M5 7l2-2",
  "M1.5 1.5h.01M4.5 4.5h.01",
  "M1.5 0v6M4.5 0v6",
  "M0 1.5h6M0 4.5h6",
];

interface PatternProps {
  readonly id: string;
}

/** The fills of a picture, `#id-0` and so on. */
export const Patterns = ({ id }: PatternProps): JSX.Element => (
  <defs>
    {drawings.map((path, at) => (
      <pattern key={at} id={`${id}-${at}`} width="6" height="6" patternUnits="userSpaceOnUse">
        <rect class={`fill-${at}`} width="6" height="6" />
        {path !== undefined && <path class="pattern-line" d={path} />}
      </pattern>
    ))}
  </defs>
);

/** The fill of one series, beside its name. */
export function Key({ at }: { readonly at: number }): JSX.Element {
  const id = useId();
  return (
    <svg width="18" height="12" aria-hidden="true">
      <Patterns id={id} />
      <rect class="stack-bar" width="18" height="12" fill={`url(#${id}-${at})`} />
    </svg>
  );
}

interface SharesProps {
  readonly label: string;
  readonly parts: readonly (readonly [name: string, count: number])[];
}

/** One bar, divided in proportion. A part of few is still visible. In percent, so that the patterns are not distorted. */
export function Shares({ label, parts }: SharesProps): JSX.Element | null {
  const id = useId();
  const all = parts.reduce((sum, [, count]) => sum + count, 0);
  if (all === 0) return null;
  const shown = parts
    .map(([name, count], at) => ({ name, count, at }))
    .filter(({ count }) => count > 0);
  const widths = shown.map(({ count }) => Math.max(1, (count / all) * 100));
  const scale = 100 / widths.reduce((sum, width) => sum + width, 0);
  let x = 0;
  return (
    <figure class="shares">
      <svg
        role="img"
        aria-label={fill(t.changes.shares, {
          label,
          parts: shown.map(({ name, count }) => `${name} ${formatCount(count)}`).join(", "),
        })}
      >
        <Patterns id={id} />
        {shown.map(({ name, count, at }, index) => {
          const width = (widths[index] ?? 0) * scale;
          const left = x;
          x += width;
          return (
            <rect
              key={name}
              class="stack-bar"
              x={`${left}%`}
              width={`${width}%`}
              height="100%"
              fill={`url(#${id}-${at % drawings.length})`}
            >
              <title>{fill(t.changes.shares, { label: name, parts: formatCount(count) })}</title>
            </rect>
          );
        })}
      </svg>
    </figure>
  );
}
