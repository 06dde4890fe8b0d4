/** What happened to plants, from the journal: the history of one, and those deleted lately. Both bring plants back. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { Change, ChangeQuery } from "../../../client/client.ts";
import { isSame, type Plant } from "../../domain/plant.ts";
import { call, explain, isAbort, isStatus } from "../api/service.ts";
import { useNews } from "../state/feed.ts";
import { formatTime } from "../state/format.ts";
import { list, restore } from "../state/plants.ts";
import { mayWrite } from "../state/session.ts";
import { Button, Tag } from "./controls.tsx";
import { useLater } from "./form.tsx";
import { Panel } from "./panel.tsx";

/** The newest ones are kept. */
const CHANGES_MAX = 100;
/** The keys of the list walk past many plants. */
const DELAY_MS = 150;

interface Changes {
  /** Newest first. */
  readonly changes: readonly Change[];
  /** Why there are none. */
  readonly note?: string;
}

/** Reads them again when a new one arrives. */
function useChanges({ id, types }: ChangeQuery): Changes {
  const read = useSignal<Changes>({ changes: [], note: "Loading…" });
  const news = useNews((change) => id === change.id || types?.includes(change.type) === true);
  const readAll = async (signal: AbortSignal): Promise<void> => {
    const found: Change[] = [];
    try {
      await call(async (client) => {
        for await (const change of client.changes({ id, types }, { signal }))
          if (found.push(change) > 2 * CHANGES_MAX) found.splice(0, CHANGES_MAX);
      });
      read.value = { changes: found.toReversed() };
    } catch (error) {
      if (isAbort(error)) return;
      const note = isStatus(error, 410) ? "This store keeps no history." : explain(error);
      read.value = { changes: [], note };
    }
  };
  useLater(DELAY_MS, readAll, [id, news?.seq]);
  return read.value;
}

const verbs = { created: "Added", replaced: "Changed", removed: "Deleted" } as const;

interface Version {
  /** Undefined for the version before the journal began. */
  readonly change: Change | undefined;
  readonly plant: Plant;
}

const toVersion = (change: Change | undefined, id: bigint, content: Change["plant"]): Version => ({
  change,
  plant: { id, name: content?.name ?? "", tag: content?.tag },
});

interface VersionsProps {
  readonly note: string | undefined;
  readonly versions: readonly Version[];
  /** What is not lost needs no button. */
  readonly isThere: (plant: Plant) => boolean;
  readonly onBringBack: (plant: Plant) => unknown;
}

function Versions({ note, versions, isThere, onBringBack }: VersionsProps): JSX.Element {
  if (versions.length === 0) return <p class="faint late">{note ?? "None in the last days."}</p>;
  return (
    <ul class="entries">
      {versions.map(({ change, plant }) => (
        <li class="entry" key={change?.seq ?? 0}>
          <p class="faint">
            {change === undefined ? "Before" : verbs[change.type]}
            {change?.by !== undefined && ` by ${change.by}`}
            {change !== undefined && ` · ${formatTime(change.time)}`}
          </p>
          <p>
            {plant.name.trim() === "" ? <i class="faint">no name</i> : plant.name}{" "}
            <Tag tag={plant.tag} />
          </p>
          {mayWrite.value && !isThere(plant) && (
            <Button kind="small" onClick={() => onBringBack(plant)}>
              Bring back
            </Button>
          )}
        </li>
      ))}
    </ul>
  );
}

interface HistoryProps {
  readonly id: bigint;
  /** Undefined if it was deleted. */
  readonly current: Plant | undefined;
  readonly onBringBack: (plant: Plant) => unknown;
}

export function History({ id, current, onBringBack }: HistoryProps): JSX.Element {
  const { changes, note } = useChanges({ id });
  const oldest = changes.at(-1);
  const versions = changes.map((change) => toVersion(change, id, change.plant ?? change.before));
  if (oldest?.type === "replaced") versions.push(toVersion(undefined, id, oldest.before));
  return (
    <section class="history" aria-labelledby="history-title">
      <h3 id="history-title">History</h3>
      <Versions
        note={note}
        versions={versions}
        isThere={(plant) => current !== undefined && isSame(plant, current)}
        onBringBack={onBringBack}
      />
    </section>
  );
}

export function DeletedPanel(): JSX.Element {
  const { changes, note } = useChanges({ types: ["removed"] });
  void list.value.version.value;
  return (
    <Panel title="Recently deleted">
      <Versions
        note={note}
        versions={changes.map((change) => toVersion(change, change.id, change.before))}
        isThere={({ id }) => list.value.indexOf(id) >= 0}
        onBringBack={restore}
      />
    </Panel>
  );
}
