/** The keys, shown by `?`. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isKeysHelpOpen } from "../state/shortcuts.ts";
import { Icon } from "./icons.tsx";

const keys: readonly (readonly [readonly string[], string])[] = [
  [["/"], "Search"],
  [["↑", "↓"], "Move in the list"],
  [["Page ↑", "Page ↓"], "Move by a screen"],
  [["Home", "End"], "First, last loaded"],
  [["Enter"], "Open the plant"],
  [["n"], "Add a plant"],
  [["e"], "Edit the open plant"],
  [["Delete"], "Delete the open plant"],
  [["u"], "Undo the deletion"],
  [["Esc"], "Close, one step back"],
  [["?"], "This help"],
];

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
          {keys.map(([names, meaning]) => (
            <div key={meaning}>
              <dt>
                {names.map((name) => (
                  <kbd key={name}>{name}</kbd>
                ))}
              </dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </div>
    </dialog>
  );
}
