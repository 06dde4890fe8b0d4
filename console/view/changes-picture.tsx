/** The picture above the list of changes: dragging over it picks the time of the filter. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { ChangeFilter } from "../state/route.ts";
import { INTERVAL, startOf } from "../state/spans.ts";
import { t } from "../text/text.ts";
import { useCounts } from "./counts.ts";
import { explainHistory } from "./history.tsx";
import { Picture, type Range } from "./picture.tsx";

interface ChangesPictureProps {
  readonly filter: ChangeFilter;
  readonly onPick: (range: Range) => void;
}

export function ChangesPicture({ filter, onPick }: ChangesPictureProps): JSX.Element {
  /** While the pointer is down. */
  const dragged = useSignal<Range | undefined>(undefined);
  const { by, type } = filter;
  const start = useRef(new Date(startOf("week")).toISOString()).current;
  const query = { group: ["by"], every: INTERVAL } as const;
  const { answer: counts, failure } = useCounts({ from: start, by }, query, [by]);
  if (failure !== undefined) return <p class="faint">{explainHistory(failure)}</p>;
  if (counts === undefined) return <p class="faint late">{t.shared.counting}</p>;
  const { from, to } = filter;
  const chosen = from !== undefined && to !== undefined ? { from, to } : undefined;
  return (
    <Picture
      counts={counts}
      span="week"
      type={type}
      range={dragged.value ?? chosen}
      onPick={(range) => (dragged.value = range)}
      onPicked={(range) => {
        dragged.value = undefined;
        onPick(range);
      }}
    />
  );
}
