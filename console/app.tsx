/** Starts the console: first its state, then what listens to the page, then what it shows. */

import { effect, untracked } from "@preact/signals";
import { render } from "preact";
import { listenForFiles } from "./import/arrivals.ts";
import { isImporting } from "./import/state.ts";
import { isUnsent } from "./state/action.ts";
import { follow, route } from "./state/route.ts";
import { waiting } from "./state/saving.ts";
import { identity, isManager } from "./state/session.ts";
import { readPage, startState } from "./state/start.ts";
import { theme } from "./state/storage.ts";
import { t } from "./text/text.ts";
import { shownOnce } from "./view/manage.tsx";
import { Shell } from "./view/shell.tsx";
import { listenForScans } from "./view/scanner.ts";
import { keepFocus, listenForKeys } from "./view/shortcuts.tsx";

export function start(): void {
  readPage();
  effect(() => {
    const view = identity.value === undefined ? t.shell.signIn : t.shell.views[route.value.view];
    document.title = `${view} · Plant Store`;
  });
  effect(() => {
    const { dataset } = document.documentElement;
    if (theme.value === undefined) delete dataset["theme"];
    else dataset["theme"] = theme.value;
  });
  // Managers land on the overview. A URL with a page opens that page.
  effect(() => {
    const { value: isTheirs } = isManager;
    if (isTheirs && /^#?\/?$/.test(location.hash)) untracked(() => follow("#/overview", false));
  });
  startState();
  // Leaving would lose saves that wait for the connection, an import, the rest of an action, or a secret.
  addEventListener("beforeunload", (event) => {
    const isLost = waiting.value.size > 0 || shownOnce.value !== undefined;
    if (isLost || isImporting.value || isUnsent()) event.preventDefault();
  });
  listenForScans();
  listenForKeys();
  listenForFiles();
  keepFocus();
  render(<Shell />, document.querySelector("#app") as Element);
}
