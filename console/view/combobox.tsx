/** A field with options below it (WAI-ARIA: editable combobox with list autocomplete). The reference uses it too. */

import type { Signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useRef } from "preact/hooks";
import type { ControlProps } from "./controls.tsx";

interface ComboboxProps<Option> extends ControlProps {
  /** None while the list is closed. */
  readonly options: readonly Option[];
  readonly show: (option: Option) => ComponentChildren;
  /** What the options are, for screen readers. */
  readonly listLabel: string;
  /** The option that Enter picks; -1 is none. */
  readonly active: Signal<number>;
  readonly onOpen?: () => void;
  readonly onPick: (option: Option) => void;
  readonly onEnter: () => void;
  readonly onEscape: () => void;
}

export function Combobox<Option>(props: ComboboxProps<Option>): JSX.Element {
  const { options, show, listLabel, active, onOpen, onPick, onEnter, onEscape, ...input } = props;
  const { id } = input;
  const list = useRef<HTMLUListElement>(null);
  const move = (by: number): void => {
    onOpen?.();
    active.value = Math.max(0, Math.min(active.value + by, options.length - 1));
    list.current?.children[active.value]?.scrollIntoView({ block: "nearest" });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") onEnter();
    else if (event.key === "Escape") onEscape();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <>
      <input
        type="text"
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={options.length > 0 ? "true" : "false"}
        aria-controls={`${id}-options`}
        aria-activedescendant={
          options[active.value] === undefined ? undefined : `${id}-option-${active.value}`
        }
        autocomplete="off"
        spellcheck={false}
        onKeyDown={onKeyDown}
        {...input}
      />
      <ul class="options" id={`${id}-options`} role="listbox" aria-label={listLabel} ref={list}>
        {options.map((option, index) => (
          <li
            key={index}
            id={`${id}-option-${index}`}
            role="option"
            aria-selected={index === active.value ? "true" : "false"}
            // The field keeps the focus.
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => onPick(option)}
          >
            {show(option)}
          </li>
        ))}
      </ul>
    </>
  );
}
