/** Follows the journal of changes. */

import { effect, signal, untracked } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Change } from "../../client/client.ts";
import { call, isStatus, tryAgain } from "../api/service.ts";
import { t } from "../text/text.ts";
import { follow, linkToChanges } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { toast } from "./toasts.ts";

/** The last batch of changes, in order. */
export const arrived = signal<readonly Change[]>([]);
/** Counts the times that changes may have been missed: views then reload. */
export const gaps = signal(0);

/** Whether the service keeps a journal. */
export const hasHistory = signal(true);

/** The last change that matches. */
export function useNews(isMine: (change: Change) => boolean): Change | undefined {
  const news = useRef<Change>(undefined);
  news.current = arrived.value.findLast(isMine) ?? news.current;
  return news.current;
}

/** Changes are coalesced: rendering each change of an import would saturate the page. */
const COLLECT_MS = 100;
const RETRY_MS = 5_000;
const RETRYING = { delaysMs: [300, 1_000, 3_000], retriesMax: Number.POSITIVE_INFINITY };

/** The cursor: the number of the last change seen. */
let after: number | undefined;
let beginning: Promise<void> | undefined;

/** The number of the newest change that this page knows of. */
export const findNewest = (): number | undefined => after;

/** Resolves when the feed has its cursor, or when changes cannot be followed. */
export const untilFollowing = (): Promise<void> => beginning ?? Promise.resolve();

const isVisible = signal(true);
const look = (): void => void (isVisible.value = !document.hidden);

/** Hidden tabs do not follow, because a browser opens only six connections to a host. They catch up when shown. */
export function startFeed(): void {
  look();
  document.addEventListener("visibilitychange", look);
  effect(() => {
    if (token.value === undefined || !mayRead.value) after = beginning = undefined;
    else if (isVisible.value) {
      const stopping = new AbortController();
      untracked(() => void followJournal(stopping.signal));
      return () => stopping.abort();
    }
    return undefined;
  });
}

async function followJournal(stopped: AbortSignal): Promise<void> {
  let hasGap = false;
  while (!stopped.aborted) {
    const begun = after === undefined ? begin(stopped) : Promise.resolve();
    beginning = begun.catch(() => undefined);
    try {
      await begun;
      if (hasGap) {
        gaps.value++;
        toast(t.changes.missed, { label: t.imports.see, run: () => follow(linkToChanges({})) });
      }
      hasGap = false;
      await call(async (client) => {
        const options = { ...RETRYING, signal: stopped, onRetry: () => void tryAgain() };
        for await (const change of client.changes({ after, follow: true }, options)) {
          after = change.seq;
          collect(change);
        }
      });
    } catch (error) {
      if (stopped.aborted) return;
      // The store was restored from a backup, or the changes are too old.
      const isGone = isStatus(error, 410) || isStatus(error, 400);
      if (!isGone) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      // Without a cursor, 410 means that the service keeps no journal.
      else if (after === undefined) {
        hasHistory.value = false;
        return;
      } else {
        after = undefined;
        hasGap = true;
      }
    }
  }
}

/** Sets the cursor to the newest change. */
async function begin(stopped: AbortSignal): Promise<void> {
  const init = { method: "HEAD", signal: stopped };
  const { headers } = await call((client) => client.request("/changes", init));
  after = Number(headers.get("last-change"));
}

let collected: Change[] = [];

function collect(change: Change): void {
  if (collected.push(change) > 1) return;
  setTimeout(() => {
    const changes = collected;
    collected = [];
    if (token.value === undefined) return;
    arrived.value = changes;
  }, COLLECT_MS);
}
