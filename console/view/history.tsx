/** History from the journal: of one plant, and of recent deletions. Both can restore plants. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { Change, ChangeQuery } from "../../client/client.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { call, explain, isAbort, isStatus } from "../api/service.ts";
import { useNews } from "../state/feed.ts";
import { formatTime } from "../state/format.ts";
import { list, restore } from "../state/plants.ts";
import { mayWrite } from "../state/session.ts";
import { Button, Tag } from "./controls.tsx";
import { useLater } from "./form.tsx";
import { Panel } from "./panel.tsx";

/** Between this many and twice as many of the newest changes are shown. */
const CHANGES_MAX = 100;
/** Debounce: keyboard navigation passes many plants. */
const DELAY_MS = 150;

const verbs = { created: "Added", replaced: "Changed", removed: "Deleted" } as const;

interface HistoryProps {
  readonly of: ChangeQuery;
  /** A plant that is still there gets no button. */
  readonly isThere: (plant: Plant) => boolean;
  readonly onBringBack: (plant: Plant) => unknown;
}

export function History({ of: { id, types }, isThere, onBringBack }: HistoryProps): JSX.Element {
  /** Newest first. */
  const changes = useSignal<readonly Change[]>([]);
  /** Shown in place of the changes. */
  const note = useSignal("Loading…");
  const news = useNews((change) => id === change.id || types?.includes(change.type) === true);
  const readAll = async (signal: AbortSignal): Promise<void> => {
    const found: Change[] = [];
    try {
      await call(async (client) => {
        for await (const change of client.changes({ id, types }, { signal }))
          if (found.push(change) > 2 * CHANGES_MAX) found.splice(0, CHANGES_MAX);
      });
      note.value = "No recent changes.";
      changes.value = found.toReversed();
    } catch (error) {
      if (isAbort(error)) return;
      note.value = isStatus(error, 410) ? "This store keeps no history." : explain(error);
      changes.value = [];
    }
  };
  useLater(DELAY_MS, readAll, [id, news?.seq]);

  const oldest = changes.value.at(-1);
  if (oldest === undefined) return <p class="faint late">{note}</p>;
  const show = (change: Change, title: string, content: Change["plant"]): JSX.Element => {
    const plant = { id: change.id, name: content?.name ?? "", tag: content?.tag };
    return (
      <li class="entry" key={`${change.seq} ${title}`}>
        <p class="faint">{title}</p>
        <p>
          <Version plant={plant} />
        </p>
        {mayWrite.value && !isThere(plant) && (
          <Button kind="small" onClick={() => onBringBack(plant)}>
            Bring back
          </Button>
        )}
      </li>
    );
  };
  return (
    <ul>
      {changes.value.map((change) => {
        const by = change.by === undefined ? "" : ` by ${change.by}`;
        const title = `${verbs[change.type]}${by} · ${formatTime(change.time)}`;
        return show(change, title, change.plant ?? change.before);
      })}
      {oldest.type === "replaced" && show(oldest, "Before", oldest.before)}
    </ul>
  );
}

export const Version = ({ plant: { name, tag } }: { readonly plant: Plant }): JSX.Element => (
  <>
    {name.trim() === "" ? <i class="faint">no name</i> : name}{" "}
    {tag === undefined ? <i class="faint">no tag</i> : <Tag tag={tag} />}
  </>
);

export function DeletedPanel(): JSX.Element {
  void list.value.version.value;
  return (
    <Panel title="Recently deleted">
      <History
        of={{ types: ["removed"] }}
        isThere={({ id }) => list.value.indexOf(id) >= 0}
        onBringBack={restore}
      />
    </Panel>
  );
}
