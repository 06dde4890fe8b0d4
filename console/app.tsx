import { effect, untracked } from "@preact/signals";
import { render } from "preact";
import { listenForFiles } from "./import/arrivals.ts";
import { chooseAnother, isImporting } from "./import/state.ts";
import { startStatus } from "./import/status.ts";
import { startFeed } from "./state/feed.ts";
import { dropWork, isUnsent, resumeWork } from "./state/action.ts";
import { forgetTrail, theme } from "./state/storage.ts";
import { startLists } from "./state/plants.ts";
import { follow, route } from "./state/route.ts";
import { startSaving, unsaved, waiting } from "./state/saving.ts";
import { followDevice, identity, isManager, signedOut } from "./state/session.ts";
import { toasts } from "./state/toasts.ts";
import { followUndos } from "./state/undo.ts";
import { t } from "./text/text.ts";
import { shownOnce } from "./view/manage.tsx";
import { Shell } from "./view/shell.tsx";
import { isUnsavedOpen } from "./view/unsaved.tsx";
import { listenForScans } from "./view/scanner.ts";
import { isShortcutsOpen, keepFocus, listenForKeys } from "./view/shortcuts.tsx";

effect(() => {
  const view = identity.value === undefined ? t.shell.signIn : t.shell.views[route.value.view];
  document.title = `${view} · Plant Store`;
});
effect(() => {
  const { dataset } = document.documentElement;
  if (theme.value === undefined) delete dataset["theme"];
  else dataset["theme"] = theme.value;
});
effect(() => {
  if (identity.value === undefined) shownOnce.value = undefined;
});
// Managers land on the overview. A URL with a page opens that page.
effect(() => {
  const { value: isTheirs } = isManager;
  if (isTheirs && /^#?\/?$/.test(location.hash)) untracked(() => follow("#/overview", false));
});
// The next user must not see what the previous one did.
effect(() => {
  if (identity.value !== undefined || signedOut.value !== "left") return;
  untracked(() => {
    dropWork();
    waiting.value = new Map();
    chooseAnother();
    forgetTrail();
    // Drops the previous user's filter.
    follow(location.hash, false);
    toasts.value = [];
    isShortcutsOpen.value = isUnsavedOpen.value = false;
  });
});
// Leaving would lose saves that wait for the connection, an import, the rest of an action, or a secret.
addEventListener("beforeunload", (event) => {
  const isLost = waiting.value.size > 0 || shownOnce.value !== undefined;
  if (isLost || isImporting.value || isUnsent()) event.preventDefault();
});
followDevice(() => unsaved.peek() > 0);
startFeed();
startLists();
followUndos();
startSaving();
effect(() => {
  if (identity.value !== undefined) untracked(() => void resumeWork());
});
startStatus();
listenForScans();
listenForKeys();
listenForFiles();
keepFocus();

render(<Shell />, document.querySelector("#app") as Element);
