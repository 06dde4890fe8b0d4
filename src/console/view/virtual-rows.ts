/** Which rows of a long list are near enough to be drawn. */

import { type Signal, useSignal, useSignalEffect } from "@preact/signals";
import { type RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

interface Window {
  readonly top: number;
  readonly height: number;
}

export interface Range {
  readonly start: number;
  readonly end: number;
}

const ROWS_BEYOND = 10;

/** Follows what is visible of a scrolling element. */
export function useWindow(scroller: RefObject<HTMLElement | null>): Signal<Window> {
  const visible = useSignal<Window>({ top: 0, height: 800 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const measure = (): void => {
      visible.value = { top: element.scrollTop, height: element.clientHeight };
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
    };
  }, []);
  return visible;
}

export function rangeOf({ top, height }: Window, rowHeight: number, count: number): Range {
  const start = Math.max(0, Math.floor(top / rowHeight) - ROWS_BEYOND);
  const end = Math.min(count, Math.ceil((top + height) / rowHeight) + ROWS_BEYOND);
  return { start: Math.min(start, end), end };
}

const NARROW = "(max-width: 719px)";

/** Rows have two lines where there is little room: the same heights as in list.css. */
export function useRowHeight(): Signal<number> {
  const query = matchMedia(NARROW);
  const height = useSignal(query.matches ? 64 : 48);
  useSignalEffect(() => {
    const onChange = (): void => {
      height.value = query.matches ? 64 : 48;
    };
    query.addEventListener("change", onChange);
    return () => query.removeEventListener("change", onChange);
  });
  return height;
}

/** Scrolls just as far as it takes to see the row below what stands at the top. */
export function reveal(
  element: HTMLElement,
  index: number,
  rowHeight: number,
  headHeight: number,
): void {
  const top = index * rowHeight;
  const visibleHeight = element.clientHeight - headHeight;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + rowHeight > element.scrollTop + visibleHeight)
    element.scrollTop = top + rowHeight - visibleHeight;
}
