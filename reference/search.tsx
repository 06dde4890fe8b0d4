/** Search over the whole page: operations, errors, settings, schemas and guides. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

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

export function Search({ entries }: { readonly entries: readonly Entry[] }): JSX.Element {
  const text = useSignal("");
  const active = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  const found = findEntries(entries, text.value);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
      event.preventDefault();
      input.current?.select();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const close = (): void => {
    text.value = "";
  };
  const open = ({ address }: Entry): void => {
    close();
    input.current?.blur();
    location.hash = address;
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const entry = found[active.value];
    if (step !== undefined && found.length > 0)
      active.value = (active.value + step + found.length) % found.length;
    else if (event.key === "Enter" && entry !== undefined) open(entry);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  };
  return (
    <div
      class="search"
      onFocusOut={({ currentTarget, relatedTarget }) => {
        if (!currentTarget.contains(relatedTarget as Node | null)) close();
      }}
    >
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Search operations, errors and settings"
        aria-keyshortcuts="/"
        aria-expanded={text.value !== ""}
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${active.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder="Search ( / )"
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          active.value = 0;
        }}
        onKeyDown={press}
      />
      <div id="found" class="found" role="listbox" aria-label="Found" hidden={text.value === ""}>
        {found.map((entry, at) => (
          <div
            key={entry.address}
            id={`found-${at}`}
            role="option"
            aria-selected={at === active.value}
            // Before the field loses the focus, which closes the list.
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => open(entry)}
          >
            <small>{entry.kind}</small>
            <span>
              <strong>{entry.title}</strong> <small>{entry.note}</small>
            </span>
          </div>
        ))}
        {found.length === 0 && <p role="status">Nothing is called that.</p>}
      </div>
    </div>
  );
}
