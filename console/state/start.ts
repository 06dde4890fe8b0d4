/** What acts by itself begins here, in order. Every module of the state is inert until then. */

import { startIssuer } from "../api/issuer.ts";
import { startImports } from "../import/state.ts";
import { startStatus } from "../import/status.ts";
import { startWork } from "./action.ts";
import { startDialogs } from "./dialog.ts";
import { startFeed } from "./feed.ts";
import { startLists } from "./plants.ts";
import { startRoute } from "./route.ts";
import { startSaving, unsaved } from "./saving.ts";
import { startSession } from "./session.ts";
import { startStorage } from "./storage.ts";
import { startToasts } from "./toasts.ts";
import { followUndos } from "./undo.ts";

/** What the page and its storage say. */
export function readPage(): void {
  startStorage();
  startRoute();
  startSession(() => unsaved.peek() > 0);
  startIssuer();
}

export function startState(): void {
  startDialogs();
  startToasts();
  startFeed();
  startLists();
  followUndos();
  startSaving();
  startWork();
  startImports();
  startStatus();
}
