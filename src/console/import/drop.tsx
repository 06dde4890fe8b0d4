/** Takes files that are dropped, and rows that are pasted, anywhere on the plants and the import view. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
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

const isOver = signal(false);

export const DropTarget = (): JSX.Element | null =>
  isOver.value ? <div class="drop-over">Drop the file to import it</div> : null;

const hasFiles = (event: DragEvent): boolean =>
  event.dataTransfer?.types.includes("Files") ?? false;

document.addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  // Without this the browser would leave the page and open the file.
  event.preventDefault();
  isOver.value = canTake();
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) isOver.value = false;
});
document.addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  isOver.value = false;
  take(event.dataTransfer?.files[0]);
});
document.addEventListener("paste", (event) => {
  if (isTyping(event.target) || !canTake()) return;
  const [file] = event.clipboardData?.files ?? [];
  const text = event.clipboardData?.getData("text") ?? "";
  // A single value is not a row.
  const isRows = /[\t\n]|^[[{]/.test(text.trim());
  if (file === undefined && !isRows) return;
  event.preventDefault();
  take(file ?? new File([text], "Pasted rows"));
});
