/** A text field that suggests tags, after the combobox pattern of the ARIA Authoring Practices. */

import { useSignal } from "@preact/signals";
import type { InputHTMLAttributes, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { TagCount } from "../../../client/client.ts";
import { isAbort } from "../api/service.ts";
import { formatTotal } from "../state/format.ts";

interface ComboboxProps {
  readonly id: string;
  readonly value: string;
  readonly placeholder?: string;
  readonly label?: string;
  readonly inputProps?: InputHTMLAttributes;
  readonly suggest: (text: string, signal: AbortSignal) => Promise<readonly TagCount[]>;
  readonly onInput: (text: string) => void;
  /** Called when a suggestion is picked, or on Enter. */
  readonly onChoose?: (text: string, isPicked: boolean) => void;
}

const DELAY_MS = 120;

export function Combobox(props: ComboboxProps): JSX.Element {
  const { id, value, suggest } = props;
  const isOpen = useSignal(false);
  const options = useSignal<readonly TagCount[]>([]);
  const active = useSignal(-1);
  const typed = useSignal(false);
  const listbox = useRef<HTMLUListElement>(null);

  useEffect(() => {
    if (!isOpen.value) return;
    const controller = new AbortController();
    const search = async (): Promise<void> => {
      try {
        const found = await suggest(typed.value ? value : "", controller.signal);
        if (controller.signal.aborted) return;
        options.value = found;
        active.value = -1;
      } catch (error) {
        if (!isAbort(error)) options.value = [];
      }
    };
    const timer = setTimeout(() => void search(), typed.value ? DELAY_MS : 0);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [value, isOpen.value]);

  useEffect(() => {
    listbox.current?.children[active.value]?.scrollIntoView({ block: "nearest" });
  }, [active.value]);

  const open = (): void => {
    typed.value = false;
    isOpen.value = true;
  };
  const choose = (text: string, isPicked: boolean): void => {
    isOpen.value = false;
    props.onInput(text);
    props.onChoose?.(text, isPicked);
  };
  const move = (step: number): void => {
    if (!isOpen.value) return open();
    const count = options.value.length;
    if (count > 0)
      active.value = (active.value + step + count + (active.value < 0 && step < 0 ? 1 : 0)) % count;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp")
      move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && isOpen.value && active.value >= 0)
      choose(options.value[active.value]?.tag ?? value, true);
    else if (event.key === "Enter" && props.onChoose !== undefined) choose(value, false);
    else if (event.key === "Escape" && isOpen.value) isOpen.value = false;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const isShown = isOpen.value && options.value.length > 0;
  return (
    <div class="combobox">
      <input
        {...props.inputProps}
        id={id}
        type="text"
        role="combobox"
        autocomplete="off"
        aria-label={props.label}
        aria-autocomplete="list"
        aria-expanded={isShown ? "true" : "false"}
        aria-controls={`${id}-options`}
        aria-activedescendant={
          isShown && active.value >= 0 ? `${id}-option-${active.value}` : undefined
        }
        placeholder={props.placeholder}
        value={value}
        onInput={(event) => {
          typed.value = true;
          isOpen.value = true;
          props.onInput(event.currentTarget.value);
        }}
        onClick={open}
        onBlur={() => {
          isOpen.value = false;
        }}
        onKeyDown={onKeyDown}
      />
      <ul
        class="options"
        id={`${id}-options`}
        role="listbox"
        aria-label="Tags in use"
        hidden={!isShown}
        ref={listbox}
      >
        {options.value.map(({ tag, ...total }, index) => (
          <li
            key={tag}
            id={`${id}-option-${index}`}
            role="option"
            class="option"
            aria-selected={index === active.value ? "true" : "false"}
            // Earlier than click: the field would lose its focus first.
            onPointerDown={(event) => {
              event.preventDefault();
              choose(tag, true);
            }}
          >
            <span class="cut">{tag === "" ? <i>empty tag</i> : tag}</span>{" "}
            <small class="faint tabular">{formatTotal(total)}</small>
          </li>
        ))}
      </ul>
    </div>
  );
}
