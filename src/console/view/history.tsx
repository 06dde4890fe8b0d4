/** What happened to plants, from the journal: the history of one, and those deleted lately. Both bring plants back. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Change, ChangeQuery } from "../../../client/client.ts";
import type { Plant } from "../../domain/plant.ts";
import { findTaken, isSame } from "../api/plants.ts";
import { call, explain, isAbort, isStatus } from "../api/service.ts";
import { arrived } from "../state/feed.ts";
import { formatTime } from "../state/format.ts";
import { restore } from "../state/plants.ts";
import { linkTo } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { Button, Tag } from "./controls.tsx";
import { Panel } from "./panel.tsx";

/** The newest ones are kept. */
const CHANGES_MAX = 200;
/** The keys of the list walk past many plants. */
const DELAY_MS = 150;

type Changes = readonly Change[] | "reading" | { readonly problem: string };

/** Oldest first, read once and then followed. */
function useChanges({ id, types }: ChangeQuery): Changes {
  const changes = useSignal<Changes>("reading");
  useEffect(() => {
    const controller = new AbortController();
    const read = async (): Promise<void> => {
      try {
        const found: Change[] = [];
        await call(async (client) => {
          for await (const change of client.changes({ id, types }, controller))
            if (found.push(change) > 2 * CHANGES_MAX) found.splice(0, CHANGES_MAX);
        });
        changes.value = found;
      } catch (error) {
        if (isAbort(error)) return;
        const problem = isStatus(error, 410) ? "This store keeps no history." : explain(error);
        changes.value = { problem };
      }
    };
    const timer = setTimeout(() => void read(), DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [id]);
  useEffect(() => {
    const known = changes.value;
    if (!Array.isArray(known)) return;
    const last = known.at(-1)?.seq ?? 0;
    const news = arrived.value.filter(
      (change) =>
        change.seq > last &&
        (id === undefined || change.id === id) &&
        (types?.includes(change.type) ?? true),
    );
    if (news.length > 0) changes.value = [...known, ...news];
  }, [arrived.value, changes.value]);
  return changes.value;
}

const verbs = { created: "Added", replaced: "Changed", removed: "Deleted" } as const;

interface EntryProps {
  readonly change: Change | undefined;
  readonly plant: Plant;
  readonly children?: ComponentChildren;
}

const Entry = ({ change, plant, children }: EntryProps): JSX.Element => (
  <li class="entry">
    <p class="faint">
      {change === undefined ? "Before" : verbs[change.type]}
      {change?.by !== undefined && ` by ${change.by}`}
      {change !== undefined && <time dateTime={change.time}> · {formatTime(change.time)}</time>}
    </p>
    <p class="entry-plant">
      {plant.name.trim() === "" ? <i class="faint">no name</i> : plant.name} <Tag tag={plant.tag} />
    </p>
    {children}
  </li>
);

/** What stands in the place of the entries if there are none. */
function explainNone(changes: Changes, none: string): JSX.Element | undefined {
  if (changes === "reading") return <p class="faint late">Loading…</p>;
  if ("problem" in changes) return <p class="faint">{changes.problem}</p>;
  return changes.length === 0 ? <p class="faint">{none}</p> : undefined;
}

const listChanges = (changes: Changes): readonly Change[] =>
  Array.isArray(changes) ? changes.toReversed() : [];

const toPlant = (id: bigint, { name, tag }: NonNullable<Change["plant"]>): Plant => ({
  id,
  name,
  tag,
});

interface HistoryProps {
  readonly id: bigint;
  /** Undefined if it was deleted. */
  readonly current: Plant | undefined;
  readonly onBringBack: (plant: Plant) => void;
}

export function History({ id, current, onBringBack }: HistoryProps): JSX.Element {
  const changes = useChanges({ id });
  const entries = listChanges(changes);
  const oldest = entries.at(-1);
  const versions = [
    ...entries.map((change) => ({ change, content: change.plant ?? change.before })),
    // The version before the journal began. That of a deletion is shown already.
    ...(oldest?.type === "replaced" ? [{ change: undefined, content: oldest.before }] : []),
  ];
  return (
    <section class="history" aria-labelledby="history-title">
      <h3 id="history-title">History</h3>
      {explainNone(changes, "No changes in the last days.")}
      <ul class="entries">
        {versions.map(({ change, content }) => {
          const plant = toPlant(id, content ?? { name: "" });
          const isCurrent = current !== undefined && isSame(plant, current);
          return (
            <Entry key={change?.seq ?? 0} change={change} plant={plant}>
              {mayWrite.value && !isCurrent && (
                <Button kind="small" onClick={() => onBringBack(plant)}>
                  Bring back
                </Button>
              )}
            </Entry>
          );
        })}
      </ul>
    </section>
  );
}

const SHOWN_AT_ONCE = 20;

export function DeletedPanel(): JSX.Element {
  const changes = useChanges({ types: ["removed"] });
  const shown = useSignal(SHOWN_AT_ONCE);
  const latest = [
    ...new Map(
      listChanges(changes)
        .toReversed()
        .map((change) => [change.id, change]),
    ),
  ]
    .map(([, change]) => change)
    .toSorted((one, other) => other.seq - one.seq);
  return (
    <Panel title="Recently deleted">
      {explainNone(changes, "No plant was deleted in the last days.")}
      <ul class="entries">
        {latest.slice(0, shown.value).map((change) => (
          <Deleted key={change.seq} change={change} />
        ))}
      </ul>
      {latest.length > shown.value && (
        <Button onClick={() => (shown.value += SHOWN_AT_ONCE)}>Show more</Button>
      )}
    </Panel>
  );
}

function Deleted({ change }: { readonly change: Change }): JSX.Element {
  const plant = toPlant(change.id, change.before ?? { name: "" });
  const holder = useSignal<Plant | undefined>(undefined);
  const news = arrived.value.findLast(({ id }) => id === plant.id);
  useEffect(() => {
    const controller = new AbortController();
    findTaken(plant.id, controller.signal).then(
      (found) => {
        holder.value = found;
      },
      () => undefined,
    );
    return () => controller.abort();
  }, [news]);
  return (
    <Entry change={change} plant={plant}>
      {holder.value !== undefined ? (
        <a href={linkTo(plant.id)}>
          {isSame(holder.value, plant) ? "It is back" : "Another plant has the id now"}
        </a>
      ) : (
        mayWrite.value && (
          <Button kind="small" onClick={() => void restore(plant)}>
            Bring back
          </Button>
        )
      )}
    </Entry>
  );
}
