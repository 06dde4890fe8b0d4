/** The keys, shown by `?`. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { mayRead, mayWrite } from "../state/session.ts";
import { isKeysHelpOpen } from "../state/shortcuts.ts";
import { Icon } from "./icons.tsx";

interface Key {
  readonly names: readonly string[];
  readonly does: string;
  /** What a token has to be good for; nothing where anybody may. */
  readonly needs?: "read" | "write" | "both";
}

const keys: readonly Key[] = [
  { names: ["/"], does: "Search", needs: "read" },
  { names: ["↑", "↓"], does: "Move in the list", needs: "read" },
  { names: ["Page ↑", "Page ↓"], does: "Move by a screen", needs: "read" },
  { names: ["Home", "End"], does: "First, last loaded", needs: "read" },
  { names: ["Enter"], does: "Open the plant", needs: "read" },
  { names: ["n"], does: "Add a plant", needs: "write" },
  { names: ["e"], does: "Edit the open plant", needs: "both" },
  { names: ["Delete"], does: "Delete the open plant", needs: "both" },
  { names: ["u"], does: "Undo the deletion", needs: "both" },
  { names: ["Esc"], does: "Close, one step back" },
  { names: ["?"], does: "This help" },
];

function isOffered({ needs }: Key): boolean {
  const reads = needs === "read" || needs === "both";
  const writes = needs === "write" || needs === "both";
  return (!reads || mayRead.value) && (!writes || mayWrite.value);
}

export function KeysHelp(): JSX.Element | null {
  return isKeysHelpOpen.value ? <KeysDialog /> : null;
}

function KeysDialog(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      class="dialog"
      ref={dialog}
      aria-labelledby="keys-title"
      onClose={() => {
        isKeysHelpOpen.value = false;
      }}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id="keys-title">Keys</h2>
          <button
            type="button"
            class="button-plain"
            aria-label="Close"
            onClick={() => dialog.current?.close()}
          >
            <Icon name="close" />
          </button>
        </div>
        <dl class="keys">
          {keys.filter(isOffered).map(({ names, does }) => (
            <div key={does}>
              <dt>
                {names.map((name) => (
                  <kbd key={name}>{name}</kbd>
                ))}
              </dt>
              <dd>{does}</dd>
            </div>
          ))}
        </dl>
      </div>
    </dialog>
  );
}
