/** The tag of a plant, in a colour of its own. */

import type { JSX } from "preact";
import { quote } from "../state/format.ts";
import { fill, t } from "../text/text.ts";

interface TagProps {
  readonly tag: string | undefined;
  /** Makes the tag a button. */
  readonly onPick?: () => void;
  readonly tabIndex?: number;
}

/** The same for the same tag: one of twelve. */
function findHue(tag: string): number {
  let hash = 0;
  for (let at = 0; at < tag.length; at++) hash = (hash * 31 + tag.charCodeAt(at)) >>> 0;
  return (hash % 12) * 30;
}

/** An empty tag is shown as such; no tag shows nothing. */
export function Tag({ tag, onPick, tabIndex }: TagProps): JSX.Element | null {
  if (tag === undefined) return null;
  const label = (
    <span class="tag" style={{ "--hue": findHue(tag) }}>
      {tag === "" ? <i>{t.shared.emptyTag}</i> : tag}
    </span>
  );
  if (onPick === undefined) return label;
  return (
    <button
      type="button"
      class="tag-button"
      tabIndex={tabIndex}
      title={tag === "" ? t.plants.showEmptyTag : fill(t.plants.showTag, { tag: quote(tag) })}
      onClick={onPick}
    >
      {label}
    </button>
  );
}
