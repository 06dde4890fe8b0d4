/** The console: puts the page together. */

import { effect, untracked } from "@preact/signals";
import { render } from "preact";
import { forgetActivity } from "./state/activity.ts";
import { exporting } from "./state/export.ts";
import { forgetImport } from "./state/import.ts";
import { startLists } from "./state/plants.ts";
import { route } from "./state/route.ts";
import { identity, signedOut } from "./state/session.ts";
import { listenForKeys } from "./state/shortcuts.ts";
import { forgetTags } from "./state/tags.ts";
import { dismissAll } from "./state/toasts.ts";
import { Shell } from "./view/shell.tsx";

const titles = { plants: "Plants", import: "Import", activity: "Activity" } as const;

effect(() => {
  const view = identity.value === undefined ? "Sign in" : titles[route.value.view];
  document.title = `${view} · Plant Store`;
});
effect(() => {
  if (identity.value !== undefined) return;
  const isLeft = signedOut.value === "left";
  untracked(() => {
    forgetTags();
    forgetActivity();
    if (!isLeft) return;
    exporting.value?.cancel();
    forgetImport();
    dismissAll();
  });
});
startLists();
listenForKeys();

const root = document.querySelector("#app");
if (root !== null) render(<Shell />, root);
