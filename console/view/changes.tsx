/** Changes: who did what and when, newest first. The changes of one batch, such as an import, are one line. */

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Change } from "../../client/client.ts";
import { nameOfBatch } from "../../src/domain/change.ts";
import { findInt64 } from "../../src/domain/json.ts";
import { readBack } from "../api/changes.ts";
import { isAbort } from "../api/service.ts";
import { arrived, gaps, untilFollowing } from "../state/feed.ts";
import { formatCount, formatName, formatTime } from "../state/format.ts";
import { type ChangeFilter, follow, linkTo, linkToChanges, route } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { askUndo, nameUndo, undo } from "../state/undo.ts";
import { Blank, Button, Notice, Table, type TableRow } from "./controls.tsx";
import { explainHistory, toPlant, verbs, Version } from "./history.tsx";

const PAGE_LENGTH = 100;
/** Past this many lines, new changes are not added. */
const LINES_MAX = 1000;

type Counts = NonNullable<Change["folded"]>;

/** A change, or all changes of a batch by one person: then the newest of them, and their number. */
interface Line {
  readonly change: Change;
  readonly counts?: Counts | undefined;
}

const countOf = ({ batch, folded, type }: Change): Counts | undefined =>
  batch === undefined ? undefined : (folded ?? { created: 0, replaced: 0, removed: 0, [type]: 1 });

const add = (one: Counts, other: Counts): Counts => ({
  created: one.created + other.created,
  replaced: one.replaced + other.replaced,
  removed: one.removed + other.removed,
});

/** Adds older changes, newest first. Other changes may lie between those of a batch. */
function addOlder(lines: readonly Line[], changes: readonly Change[], isFolded: boolean): Line[] {
  const all = [...lines];
  for (const change of changes) {
    const counts = isFolded ? countOf(change) : undefined;
    const at = counts === undefined ? -1 : all.findIndex((line) => isSameBatch(line, change));
    const line = all[at];
    if (line?.counts === undefined || counts === undefined) all.push({ change, counts });
    else all[at] = { ...line, counts: add(line.counts, counts) };
  }
  return all;
}

const isSameBatch = ({ change }: Line, { by, batch }: Change): boolean =>
  change.batch === batch && change.by === by;

function addNewer(lines: readonly Line[], changes: readonly Change[], isFolded: boolean): Line[] {
  const added = addOlder([], changes.toReversed(), isFolded);
  const isAdded = ({ change, counts }: Line): boolean =>
    counts !== undefined && added.some((line) => isSameBatch(line, change));
  const sum = (line: Line): Line => {
    const known = lines.find((each) => each.counts && isSameBatch(each, line.change));
    return line.counts === undefined || known?.counts === undefined
      ? line
      : { ...line, counts: add(line.counts, known.counts) };
  };
  return [...added.map(sum), ...lines.filter((line) => !isAdded(line))];
}

const isShown = ({ by, batch, id, type }: ChangeFilter, change: Change): boolean =>
  (by === undefined || by === change.by) &&
  (batch === undefined || batch === change.batch) &&
  (id === undefined || id === change.id) &&
  (type === undefined || type === change.type);

export function ChangesView(): JSX.Element {
  const filter = route.value.changes;
  const people = useSignal<readonly string[]>([]);
  return (
    <div class="single">
      <div class="section-head">
        <h1>Changes</h1>
        {filter.batch !== undefined && <p class="faint wrap">Only “{nameOfBatch(filter.batch)}”</p>}
      </div>
      <Filters filter={filter} people={people.value} />
      <Lines key={`${gaps.value} ${linkToChanges(filter)}`} filter={filter} people={people} />
    </div>
  );
}

const narrow = (filter: ChangeFilter, change: ChangeFilter): void =>
  follow(linkToChanges({ ...filter, ...change }));

interface FiltersProps {
  readonly filter: ChangeFilter;
  /** Those whose changes were seen. */
  readonly people: readonly string[];
}

const isAll = (filter: ChangeFilter): boolean =>
  Object.values(filter).every((value) => value === undefined);

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly list?: string;
  readonly onPick: (text: string, field: HTMLInputElement) => void;
}

function Field({ label, value, list, onPick }: FieldProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  // Uncontrolled: a render, as when changes arrive, would overwrite what is being typed.
  useLayoutEffect(() => {
    if (field.current !== null) field.current.value = value;
  }, [value]);
  return (
    <input
      class="narrow"
      aria-label={label}
      placeholder={`Any ${label.toLowerCase()}`}
      list={list}
      autocomplete="off"
      ref={field}
      onChange={({ currentTarget }) => onPick(currentTarget.value.trim(), currentTarget)}
    />
  );
}

function Filters({ filter, people }: FiltersProps): JSX.Element {
  return (
    <search class="filters">
      <Field
        label="Person"
        value={filter.by ?? ""}
        list="people"
        onPick={(text) => narrow(filter, { by: text === "" ? undefined : text })}
      />
      <datalist id="people">
        {people.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <Field
        label="Plant id"
        value={filter.id === undefined ? "" : String(filter.id)}
        onPick={(text, field) => {
          const id = findInt64(text);
          if (id === undefined) field.value = "";
          narrow(filter, { id });
        }}
      />
      <select
        class="narrow"
        aria-label="Kind"
        value={filter.type ?? ""}
        onChange={({ currentTarget: { value } }) =>
          narrow(filter, { type: value === "" ? undefined : (value as Change["type"]) })
        }
      >
        <option value="">All kinds</option>
        {Object.entries(verbs).map(([type, verb]) => (
          <option key={type} value={type}>
            {verb}
          </option>
        ))}
      </select>
      {!isAll(filter) && (
        <a class="button" href={linkToChanges({})}>
          All changes
        </a>
      )}
    </search>
  );
}

interface LinesProps {
  readonly filter: ChangeFilter;
  readonly people: Signal<readonly string[]>;
}

const none = {
  title: "No changes yet",
  text: "Every plant that is added, changed or deleted is listed here.",
};
const noMatch = { title: "No match", text: "No change in the journal matches these filters." };

function Lines({ filter, people }: LinesProps): JSX.Element {
  const lines = useSignal<readonly Line[]>([]);
  /** The cursor of the older changes; undefined at the start of the journal. */
  const next = useSignal<number | undefined>(0);
  const isLoading = useSignal(true);
  const failure = useSignal<unknown>(undefined);
  const left = useRef(new AbortController());
  /** The newest change that is shown, and those that arrived while the first page was read. */
  const newest = useRef(-1);
  const late = useRef<Change[]>([]);
  const isBehind = useSignal(false);
  const isFolded = filter.batch === undefined;

  const loadMore = async (): Promise<void> => {
    isLoading.value = true;
    failure.value = undefined;
    const { type, ...query } = filter;
    const wanted = {
      ...query,
      types: type && [type],
      fold: isFolded ? ("batch" as const) : undefined,
      limit: PAGE_LENGTH,
    };
    const end = lines.value.length + PAGE_LENGTH / 2;
    try {
      await untilFollowing();
      // A page may have only more of a batch that is shown.
      while (next.value !== undefined && lines.value.length < end) {
        const page = await readBack({ ...wanted, after: next.value }, left.current.signal);
        if (newest.current === -1) newest.current = page.changes[0]?.seq ?? 0;
        lines.value = addOlder(lines.value, page.changes, isFolded);
        next.value = page.next;
      }
    } catch (error) {
      if (isAbort(error)) return;
      failure.value = error;
    }
    isLoading.value = false;
    accept();
  };
  const accept = (): void => {
    if (newest.current === -1) return;
    const fresh = late.current.splice(0).filter(({ seq }) => seq > newest.current);
    newest.current = fresh.at(-1)?.seq ?? newest.current;
    if (fresh.length === 0) return;
    if (lines.value.length >= LINES_MAX) isBehind.value = true;
    else lines.value = addNewer(lines.value, fresh, isFolded);
  };
  const reload = (): void => {
    lines.value = [];
    next.value = 0;
    newest.current = -1;
    isBehind.value = false;
    void loadMore();
  };
  useEffect(() => {
    void loadMore();
    return () => left.current.abort();
  }, []);
  useEffect(() => {
    const seen = new Set(people.value);
    for (const { change } of lines.value) if (change.by !== undefined) seen.add(change.by);
    if (seen.size > people.value.length) people.value = [...seen].toSorted();
  }, [lines.value]);
  useEffect(() => {
    late.current.push(...arrived.value.filter((change) => isShown(filter, change)));
    accept();
  }, [arrived.value]);

  if (failure.value !== undefined && lines.value.length === 0)
    return <Notice kind="warning" title={explainHistory(failure.value)} />;
  return (
    <>
      {isBehind.value && <Button onClick={reload}>Show the newest changes</Button>}
      {lines.value.length > 0 && (
        <Table
          label="Changes"
          isListing
          heads={["Change", "By", "When", ""]}
          rows={toRows(lines.value, isFolded)}
        />
      )}
      {failure.value !== undefined && (
        <Notice kind="fault" title="Couldn't load more" text={explainHistory(failure.value)} />
      )}
      {isLoading.value ? (
        <p class="faint late">Loading…</p>
      ) : next.value !== undefined ? (
        <Button onClick={() => void loadMore()}>Show more</Button>
      ) : lines.value.length > 0 ? (
        <p class="faint">No older changes are kept.</p>
      ) : (
        <Blank icon="changes" {...(isAll(filter) ? none : noMatch)} />
      )}
    </>
  );
}

function toRows(lines: readonly Line[], isFolded: boolean): TableRow[] {
  const batches = new Set(lines.map(({ change }) => change.batch));
  /** An undo that was undone itself does not count. */
  const isUndone = (batch: string): boolean =>
    batches.has(nameUndo(batch)) && !isUndone(nameUndo(batch));
  /** Only the last change of a plant can be undone alone. */
  const seen = new Set<bigint>();
  return lines.map(({ change, counts }) => {
    const { id, by, batch, time } = change;
    const isLast = !seen.has(id);
    if (counts === undefined) seen.add(id);
    const undoing =
      counts === undefined || batch === undefined ? (
        isLast && <UndoButton what={describe(change)} onClick={() => askUndoOf(change)} />
      ) : isUndone(batch) ? (
        <span class="faint">Undone</span>
      ) : (
        <UndoButton what={nameOfBatch(batch)} onClick={() => askUndo(batch)} />
      );
    return [
      isFolded && counts !== undefined ? (
        <BatchName batch={batch ?? ""} counts={counts} />
      ) : (
        <OneChange change={change} />
      ),
      by === undefined ? (
        <span class="faint">the command line</span>
      ) : (
        <a href={linkToChanges({ by })}>{by}</a>
      ),
      formatTime(time),
      mayWrite.value && undoing,
    ];
  });
}

interface UndoButtonProps {
  readonly what: string;
  readonly onClick: () => void;
}

const UndoButton = ({ what, onClick }: UndoButtonProps): JSX.Element => (
  <Button kind="small" onClick={onClick}>
    Undo <span class="visually-hidden">{what}</span>
  </Button>
);

function askUndoOf(change: Change): void {
  const { seq, time } = change;
  undo.value = {
    title: "Undo this change?",
    range: { from: seq, to: seq },
    batch: nameUndo(`${describe(change)} ${time}`),
  };
}

const describe = (change: Change): string =>
  `${verbs[change.type]} ${formatName(toPlant(change, change.plant ?? change.before))}`;

interface BatchNameProps {
  readonly batch: string;
  readonly counts: Counts;
}

function BatchName({ batch, counts }: BatchNameProps): JSX.Element {
  const parts = (Object.keys(verbs) as Change["type"][])
    .filter((type) => counts[type] > 0)
    .map((type) => `${formatCount(counts[type])} ${verbs[type].toLowerCase()}`);
  return (
    <>
      <a href={linkToChanges({ batch })}>
        <strong>{nameOfBatch(batch)}</strong>
      </a>{" "}
      <span class="faint">{parts.join(", ")}</span>
    </>
  );
}

function OneChange({ change }: { readonly change: Change }): JSX.Element {
  const { id, type, plant, before } = change;
  return (
    <>
      <span class="faint">{verbs[type]}</span>{" "}
      <a class="digits" href={linkTo(id)}>
        {String(id)}
      </a>{" "}
      {before !== undefined && <Version plant={toPlant(change, before)} />}
      {type === "replaced" && " → "}
      {plant !== undefined && <Version plant={toPlant(change, plant)} />}
    </>
  );
}
