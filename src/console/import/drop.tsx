/** Takes files that are dropped, and rows that are pasted, anywhere on the plants and the import view. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { route } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import { isTyping } from "../view/shortcuts.tsx";
import { chooseFile, current } from "./state.ts";

/** A running import is not replaced. */
const canTake = (): boolean =>
  mayWrite.value && route.value.view !== "activity" && current.value.step !== "running";

function take(file: File | undefined): void {
  if (file === undefined || !canTake()) return;
  chooseFile(file);
  location.hash = "#/import";
  announce(`Reading ${file.name}.`);
}

/** Rows without a heading get one: the first row would be taken for it. */
function toFile(text: string): File {
  const [first = ""] = text.split(/\r?\n/, 1);
  const delimiter = ["\t", ";", ","].find((sign) => first.includes(sign)) ?? "\t";
  const cells = first.split(delimiter);
  const headings = cells.map((_cell, at) => ["id", "name", "tag"][at] ?? `column ${at + 1}`);
  const hasHeading = !/^\s*"?-?\d+"?\s*$/.test(cells[0] ?? "");
  const head = hasHeading ? "" : `${headings.join(delimiter)}\n`;
  return new File([head + text], "Pasted rows");
}

function onPaste(event: ClipboardEvent): void {
  if (isTyping(event.target) || !canTake()) return;
  const [file] = event.clipboardData?.files ?? [];
  const text = event.clipboardData?.getData("text") ?? "";
  // A single value is not a row.
  const isRows = /[\t\n]|^[[{]/.test(text.trim());
  if (file === undefined && !isRows) return;
  event.preventDefault();
  take(file ?? toFile(text));
}

const hasFiles = (event: DragEvent): boolean =>
  event.dataTransfer?.types.includes("Files") ?? false;

export function DropTarget(): JSX.Element | null {
  const isOver = useSignal(false);
  useEffect(() => {
    const onOver = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      // Without this the browser would leave the page and open the file.
      event.preventDefault();
      isOver.value = canTake();
    };
    const onLeave = (event: DragEvent): void => {
      if (event.relatedTarget === null) isOver.value = false;
    };
    const onDrop = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      isOver.value = false;
      take(event.dataTransfer?.files[0]);
    };
    addEventListener("dragover", onOver);
    addEventListener("dragleave", onLeave);
    addEventListener("drop", onDrop);
    addEventListener("paste", onPaste);
    return () => {
      removeEventListener("dragover", onOver);
      removeEventListener("dragleave", onLeave);
      removeEventListener("drop", onDrop);
      removeEventListener("paste", onPaste);
    };
  }, []);
  return isOver.value ? <div class="drop-over">Drop the file to import it</div> : null;
}
