/** A running import, on every page and in every tab of the same person. */

import { effect, untracked } from "@preact/signals";
import { personal } from "../state/person.ts";
import { route } from "../state/route.ts";
import { identity } from "../state/session.ts";
import { keyOf } from "../state/storage.ts";
import { announce, toast } from "../state/toasts.ts";
import { offerUndo } from "../state/undo.ts";
import { fill, plural, t } from "../text/text.ts";
import { current, isImporting } from "./state.ts";

/** What other tabs learn of an import. */
interface Status {
  /** The name of the token: other people's tabs show nothing. */
  readonly by: string | undefined;
  readonly file: string;
  readonly done: number;
  /** Once it has ended. */
  readonly outcome: string | undefined;
}

/** The import of another tab. */
export const elsewhere = personal<Status | undefined>(undefined);

/** A closed tab says so. One that is silent for this long has crashed, or sleeps and goes on later. */
const SILENT_MS = 60_000;
let silence: ReturnType<typeof setTimeout> | undefined;

function hear({ data }: MessageEvent<Status>): void {
  if (data.by !== identity.value?.name) return;
  clearTimeout(silence);
  elsewhere.value = data.outcome === undefined ? data : undefined;
  if (data.outcome !== undefined) toast(data.outcome);
  else
    silence = setTimeout(() => {
      elsewhere.value = undefined;
      toast(fill(t.imports.silent, { file: data.file }));
    }, SILENT_MS);
}

const describeEnd = (): string => {
  const { file, ending, created = 0, updated = 0, removed = 0, refused = 0 } = current.value ?? {};
  const counts = [
    plural(t.imports.added, created),
    ...(updated > 0 ? [plural(t.imports.changed, updated)] : []),
    ...(removed > 0 ? [plural(t.imports.deleted, removed)] : []),
    ...(refused > 0 ? [plural(t.imports.refused, refused)] : []),
  ];
  const text = t.imports.ended[ending ?? "done"];
  return fill(text, { file: file?.name ?? "", counts: counts.join(", ") });
};

function sayEnd(): void {
  if (route.value.view === "import") return announce(describeEnd());
  const { batch = "", created = 0, updated = 0, removed = 0 } = current.value ?? {};
  const see = { label: t.imports.see, run: () => (location.hash = "#/import") };
  const undo = offerUndo(batch, created + updated + removed);
  toast(describeEnd(), undo ?? see, undo && see);
}

function tellOthers(channel: BroadcastChannel, outcome?: string): void {
  const { file, done = 0 } = current.peek() ?? {};
  if (file === undefined) return;
  const status = { by: identity.peek()?.name, file: file.name, done, outcome };
  channel.postMessage(status satisfies Status);
}

/** Tells other tabs about the import of this one, and this tab's other pages when it has ended. */
export function startStatus(): void {
  // The path is in the name, because all services of a host share channels.
  const channel = new BroadcastChannel(keyOf("session"));
  channel.addEventListener("message", hear);
  let isRunning = false;
  addEventListener("pagehide", () => {
    const file = current.peek()?.file.name ?? "";
    if (isRunning) tellOthers(channel, fill(t.imports.lost, { file }));
  });
  effect(() => {
    const hasEnded = isRunning && current.value?.ending !== undefined;
    isRunning = isImporting.value;
    if (isRunning || hasEnded) tellOthers(channel, hasEnded ? describeEnd() : undefined);
    if (hasEnded) untracked(sayEnd);
  });
}
