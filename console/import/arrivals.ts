/** Files and rows that are dropped or pasted. The first view listens for them, before the import page is loaded. */

import { route } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import { fill, t } from "../text/text.ts";
import { isTyping } from "../view/shortcuts.tsx";
import { checkFile, isImporting } from "./state.ts";

/** A file does not replace a running import, nor a view that may show a one-time secret. */
const canTake = (): boolean =>
  mayWrite.value && ["plants", "import"].includes(route.value.view) && !isImporting.value;

function take(file: File | undefined): void {
  if (file === undefined || !canTake()) return;
  checkFile(file);
  location.hash = "#/import";
  announce(fill(t.imports.readingFile, { file: file.name }));
}

export function listenForFiles(): void {
  for (const type of ["dragover", "drop"] as const)
    document.addEventListener(type, (event) => {
      const { dataTransfer } = event;
      if (dataTransfer?.types.includes("Files") !== true) return;
      // By default the browser leaves the page and opens the file.
      event.preventDefault();
      dataTransfer.dropEffect = canTake() ? "copy" : "none";
      if (type === "drop") take(dataTransfer.files[0]);
    });
  document.addEventListener("paste", (event) => {
    if (isTyping(event.target) || !canTake()) return;
    const [file] = event.clipboardData?.files ?? [];
    const text = event.clipboardData?.getData("text") ?? "";
    // A single value is not a row.
    const isRows = /[\t\n]|^[[{]/.test(text.trim());
    if (file === undefined && !isRows) return;
    event.preventDefault();
    take(file ?? new File([text], t.imports.pastedRows));
  });
}
