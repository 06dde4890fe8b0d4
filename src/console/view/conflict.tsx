/** Somebody else was quicker: what it is now, and the choice. */

import type { JSX } from "preact";
import type { Changed, Versioned } from "../api/plants.ts";
import { Notice } from "./notice.tsx";

interface ConflictProps {
  readonly change: Changed;
  readonly doing: "save" | "delete";
  /** Leave it as it is now. */
  readonly onTake: (now: Versioned | undefined) => void;
  /** Do it all the same, over what was just shown. */
  readonly onInsist: (now: Versioned) => void;
}

export function ConflictNotice({ change, doing, onTake, onInsist }: ConflictProps): JSX.Element {
  const now = change.current;
  if (now === undefined)
    return (
      <Notice kind="warning" title="It has been deleted meanwhile">
        <p>Somebody else has deleted this plant. Nothing was changed.</p>
        <div class="form-actions">
          <button type="button" class="button" onClick={() => onTake(undefined)}>
            All right
          </button>
        </div>
      </Notice>
    );
  const { name, tag } = now.plant;
  return (
    <Notice kind="warning" title="It has been changed meanwhile">
      <p>Somebody else has changed this plant. Nothing of yours was stored yet. It is now:</p>
      <dl class="now">
        <dt>Name</dt>
        <dd>{name === "" ? <i>no name</i> : name}</dd>
        <dt>Tag</dt>
        <dd>{tag === undefined ? <i>none</i> : tag === "" ? <i>empty</i> : tag}</dd>
      </dl>
      <div class="form-actions">
        <button type="button" class="button button-main" onClick={() => onTake(now)}>
          Keep theirs
        </button>
        <button
          type="button"
          class={doing === "delete" ? "button button-danger" : "button"}
          onClick={() => onInsist(now)}
        >
          {doing === "delete" ? "Delete it all the same" : "Save mine over it"}
        </button>
      </div>
    </Notice>
  );
}
