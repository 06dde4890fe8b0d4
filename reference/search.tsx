/** Search over the whole page: operations, errors, settings, schemas and guides. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { Combobox } from "../console/view/combobox.tsx";

export interface Entry {
  readonly kind: string;
  readonly title: string;
  readonly note: string;
  /** The id of the element that has it. */
  readonly address: string;
}

const FOUND_MAX = 12;

/** Every word is in the title or the note. Titles that begin with the first word come first, the shortest at the top. */
function findEntries(entries: readonly Entry[], text: string): readonly Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const [first = ""] = words;
  const rank = ({ title }: Entry): number => {
    const at = title.toLowerCase().indexOf(first);
    return at === -1 ? 2 : Math.min(at, 1);
  };
  const found = entries.filter((entry) => {
    const all = `${entry.kind} ${entry.title} ${entry.note}`.toLowerCase();
    return words.length > 0 && words.every((word) => all.includes(word));
  });
  return found
    .toSorted((one, other) => rank(one) - rank(other) || one.title.length - other.title.length)
    .slice(0, FOUND_MAX);
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches("input, textarea, select");

const field = (): HTMLInputElement | null => document.querySelector("#find");

export function Search({ entries }: { readonly entries: readonly Entry[] }): JSX.Element {
  const text = useSignal("");
  const active = useSignal(0);
  const found = findEntries(entries, text.value);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
      event.preventDefault();
      field()?.select();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const close = (): void => {
    text.value = "";
  };
  const open = ({ address }: Entry): void => {
    close();
    field()?.blur();
    location.hash = address;
  };
  return (
    <div
      class="search"
      onFocusOut={({ currentTarget, relatedTarget }) => {
        if (!currentTarget.contains(relatedTarget as Node | null)) close();
      }}
    >
      <Combobox
        id="find"
        aria-label="Search operations, errors and settings"
        aria-keyshortcuts="/"
        listLabel="Found"
        placeholder="Search ( / )"
        value={text.value}
        options={found}
        active={active}
        show={({ kind, title, note }) => (
          <>
            <small>{kind}</small>
            <span>
              <strong>{title}</strong> <small>{note}</small>
            </span>
          </>
        )}
        onInput={({ currentTarget: { value } }) => {
          text.value = value;
          active.value = 0;
        }}
        onPick={open}
        onEnter={() => {
          const entry = found[active.value];
          if (entry !== undefined) open(entry);
        }}
        onEscape={close}
      />
      {text.value !== "" && found.length === 0 && <p role="status">Nothing is called that.</p>}
    </div>
  );
}
