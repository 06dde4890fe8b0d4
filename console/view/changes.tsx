/**
 * Changes: who did what and when, newest first. The changes of one batch, such as an import, are one line, and so are
 * creates of one person that follow each other. What the filter shows can be undone.
 */

import { signal, useSignal } from "@preact/signals";
import type { JSX, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Change, RevertRange } from "../../client/client.ts";
import { nameBatch } from "../../src/domain/change.ts";
import { findInt64 } from "../../src/domain/json.ts";
import { call } from "../api/service.ts";
import { arrived, findNewest, gaps } from "../state/feed.ts";
import { formatName, formatTime, quote } from "../state/format.ts";
import { type Counts, isRun, type Line, sumOf } from "../state/journal.ts";
import { JournalLines } from "../state/lines.ts";
import { type ChangeFilter, follow, linkTo, linkToChanges, route } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { findTimeMs } from "../../src/domain/time.ts";
import {
  askRevert,
  askUndo,
  describeBatch,
  isUndone,
  nameShown,
  nameUndo,
  undos,
} from "../state/undo.ts";
import { en } from "../text/en.ts";
import { fill, locale, plural, pluralInEnglish, t } from "../text/text.ts";
import { Blank, Button, Notice, Table, type TableRow } from "./controls.tsx";
import { useCounts } from "./counts.ts";
import { describeCounts, explainHistory, toPlant, Version } from "./history.tsx";
import { later } from "./later.tsx";
import { useLater } from "./read.ts";

const ChangesPicture = later(async () => (await import("./changes-picture.tsx")).ChangesPicture);

export function ChangesView(): JSX.Element {
  const filter = route.value.changes;
  const people = usePeople();
  const link = linkToChanges(filter);
  return (
    <div class="single changes">
      <div class="section-head">
        <h1>{t.shell.views.changes}</h1>
        {filter.batch !== undefined && (
          <p class="faint wrap">
            {fill(t.changes.only, { what: quote(describeBatch(filter.batch)) })}
          </p>
        )}
      </div>
      <Filters filter={filter} people={people} />
      {filter.id === undefined && filter.batch === undefined && (
        <details class="picture-frame" open={isPictureOpen.value}>
          <summary
            onClick={(event) => {
              event.preventDefault();
              isPictureOpen.value = !isPictureOpen.value;
            }}
          >
            {t.changes.pickTime}
          </summary>
          {isPictureOpen.value && (
            <ChangesPicture filter={filter} onPick={(range) => narrow(filter, range)} />
          )}
        </details>
      )}
      {mayWrite.value && !isAll(filter) && filter.id === undefined && (
        <UndoShown key={`undo ${gaps.value} ${link}`} filter={filter} />
      )}
      <Lines key={`${gaps.value} ${link}`} filter={filter} />
    </div>
  );
}

const isPictureOpen = signal(false);

const byName = new Intl.Collator(locale).compare;

/** Those of the newest changes. If they cannot be counted, the list says what is wrong. */
function usePeople(): readonly string[] {
  const { answer: counts = [] } = useCounts({}, { group: ["by"], pagesMax: 1 });
  return counts.flatMap(({ by }) => (by === undefined ? [] : [by])).toSorted(byName);
}

/** With more changes a preview takes the service long. */
const PREVIEWED_MAX = 1_000;
const PREVIEW_DELAY_MS = 250;

/** Undoes everything that the filter shows. */
function UndoShown({ filter }: { readonly filter: ChangeFilter }): JSX.Element | null {
  /** All of it is as it was before, or was changed since. */
  const isOver = useSignal(false);
  const known = useRef(undos.peek());
  const { by, batch, from, to, type } = filter;
  const types = type && [type];
  const { answer: counts } = useCounts(filter, {});
  const count = counts?.reduce((all, each) => all + sumOf(each), 0);
  // Changes that come later are not those that are shown.
  const findRange = (): RevertRange => ({ by, batch, from, to: to ?? findNewest(), types });
  const look = async (signalOff: AbortSignal): Promise<void> => {
    const isFew = (count ?? 0) <= PREVIEWED_MAX;
    if ((count ?? 0) === 0 || !(isFew || undos.value !== known.current)) return;
    const options = { signal: signalOff };
    const found = await call((client) => client.previewRevert(findRange(), options));
    isOver.value = found.revertible === 0;
  };
  // Without an answer the button stays, and its dialog says what is wrong.
  useLater(PREVIEW_DELAY_MS, (ended) => look(ended).catch(() => undefined), [count, undos.value]);
  if (count === undefined || count === 0) return null;
  if (isOver.value) return <p class="faint">{t.changes.nothingLeft}</p>;
  const ask = (): void => {
    if (batch !== undefined && [by, from, to, type].every((part) => part === undefined))
      return askUndo(batch);
    askRevert({
      title: t.changes.askUndoThese,
      range: findRange(),
      batch: nameUndo(nameBatch(nameShown(filter))),
    });
  };
  return (
    <div class="form-actions">
      <Button onClick={ask}>{plural(t.changes.undoThese, count)}</Button>
      <span class="faint">{t.changes.previewFirst}</span>
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
  readonly placeholder: string;
  readonly value: string;
  readonly list?: string;
  readonly onPick: (text: string, field: HTMLInputElement) => void;
}

function Field({ label, placeholder, value, list, onPick }: FieldProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  // Uncontrolled: a render, as when changes arrive, would overwrite what is being typed.
  useLayoutEffect(() => {
    if (field.current !== null) field.current.value = value;
  }, [value]);
  return (
    <input
      class="narrow"
      aria-label={label}
      placeholder={placeholder}
      list={list}
      autocomplete="off"
      ref={field}
      onChange={({ currentTarget }) => onPick(currentTarget.value.trim(), currentTarget)}
    />
  );
}

/** In any case. A name that is not known is searched for as it is. */
function findPerson(text: string, people: readonly string[]): string | undefined {
  if (text === "" || people.includes(text)) return text || undefined;
  return people.find((name) => name.toLowerCase() === text.toLowerCase()) ?? text;
}

/** For a field of the browser's calendar, in the time of this place. */
function toLocal(iso: string | undefined): string {
  const ms = findTimeMs(iso ?? "");
  if (ms === undefined) return "";
  const date = new Date(ms);
  return new Date(ms - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const MINUTE_MS = 60_000;

/** The last minute belongs to the range. */
function fromLocal(text: string, end: "from" | "to"): string | undefined {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return undefined;
  return new Date(end === "to" ? ms + MINUTE_MS - 1 : ms).toISOString();
}

/** The browser has six stops in a time. The arrow keys lead to them, and Tab to what comes after the time. */
function leaveByTab(event: TargetedKeyboardEvent<HTMLInputElement>): void {
  if (event.key !== "Tab" || event.altKey || event.ctrlKey || event.metaKey) return;
  const stops = [...document.querySelectorAll<HTMLElement>("a, button, input, select, summary")];
  const open = stops.filter((each) => each.tabIndex >= 0 && each.checkVisibility());
  const next = open[open.indexOf(event.currentTarget) + (event.shiftKey ? -1 : 1)];
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}

/** Uncontrolled: while it is being typed it is a time already, of another day or of the year 2. */
function Moment({ filter, end }: MomentProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const { [end]: value } = filter;
  useLayoutEffect(() => {
    if (field.current !== null && fromLocal(field.current.value, end) !== value)
      field.current.value = toLocal(value);
  }, [value]);
  return (
    <label class="moment">
      {t.changes.ends[end]}
      <input
        type="datetime-local"
        min="1970-01-01T00:00"
        ref={field}
        onKeyDown={leaveByTab}
        onChange={({ currentTarget: { value: text, validity } }) => {
          if (validity.valid) narrow(filter, { [end]: fromLocal(text, end) });
        }}
      />
    </label>
  );
}

interface MomentProps {
  readonly filter: ChangeFilter;
  readonly end: "from" | "to";
}

function Filters({ filter, people }: FiltersProps): JSX.Element {
  return (
    <search class="filters">
      <Field
        label={t.changes.person}
        placeholder={t.changes.anyPerson}
        value={filter.by ?? ""}
        list="people"
        onPick={(text) => narrow(filter, { by: findPerson(text, people) })}
      />
      <datalist id="people">
        {people.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <Field
        label={t.changes.plantId}
        placeholder={t.changes.anyPlantId}
        value={filter.id === undefined ? "" : String(filter.id)}
        onPick={(text, field) => {
          const id = findInt64(text);
          if (id === undefined) field.value = "";
          narrow(filter, { id });
        }}
      />
      <select
        class="narrow"
        aria-label={t.changes.kind}
        value={filter.type ?? ""}
        onChange={({ currentTarget: { value } }) =>
          narrow(filter, { type: value === "" ? undefined : (value as Change["type"]) })
        }
      >
        <option value="">{t.changes.allKinds}</option>
        {Object.entries(t.changes.verbs).map(([type, verb]) => (
          <option key={type} value={type}>
            {verb}
          </option>
        ))}
      </select>
      <div class="moments">
        {(["from", "to"] as const).map((end) => (
          <Moment key={end} filter={filter} end={end} />
        ))}
      </div>
      {!isAll(filter) && (
        <a class="button" href={linkToChanges({})}>
          {t.changes.all}
        </a>
      )}
    </search>
  );
}

const none = { title: t.changes.none, text: t.changes.noneHint };
const noMatch = { title: t.shared.noMatch, text: t.changes.noMatchHint };

function Lines({ filter }: { readonly filter: ChangeFilter }): JSX.Element {
  const journal = useMemo(() => new JournalLines(filter), []);
  const { lines, next, isLoading, failure, isBehind, since } = journal;
  useEffect(() => {
    void journal.loadMore();
    return () => journal.stop();
  }, []);
  useEffect(() => journal.hear(arrived.value), [arrived.value]);

  if (failure.value !== undefined && lines.value.length === 0)
    return <Notice kind="warning" title={explainHistory(failure.value)} />;
  return (
    <>
      {isBehind.value && <Button onClick={() => journal.reload()}>{t.changes.showNewest}</Button>}
      {lines.value.length > 0 && (
        <Table
          label={t.shell.views.changes}
          isListing
          heads={[...Object.values(t.changes.heads), ""]}
          emptyHead={t.shared.actions}
          keys={lines.value.map(({ change: { seq, by, batch }, counts, end }) =>
            counts === undefined || end !== undefined ? (end ?? seq) : `${by}\n${batch}`,
          )}
          rows={toRows(lines.value, since.value)}
        />
      )}
      {failure.value !== undefined && (
        <Notice kind="fault" title={t.changes.moreFailed} text={explainHistory(failure.value)} />
      )}
      {isLoading.value ? (
        <p class="faint late">{t.shared.loading}</p>
      ) : next.value !== undefined ? (
        <Button onClick={() => void journal.loadMore()}>{t.changes.showMore}</Button>
      ) : lines.value.length > 0 ? (
        <p class="faint">{t.changes.noOlder}</p>
      ) : (
        <Blank icon="changes" {...(isAll(filter) ? none : noMatch)} />
      )}
    </>
  );
}

function toRows(lines: readonly Line[], since: ReadonlyMap<bigint, number>): TableRow[] {
  const batches = new Set(lines.map(({ change }) => change.batch));
  /** Only the last change of a plant can be undone alone. */
  const seen = new Set<bigint>();
  return lines.map((line) => {
    const { change, counts } = line;
    const { id, by, batch, time } = change;
    const isLast = !seen.has(id) && !((since.get(id) ?? 0) > change.seq);
    const isLong = isRun(line) && counts?.created !== 1;
    if (counts === undefined || (isRun(line) && !isLong)) seen.add(id);
    const isAlone = counts === undefined || (batch === undefined && !isLong);
    const [name, what, ask] = isAlone
      ? ([nameChange(change), describe(change, t), () => askUndoOf(change)] as const)
      : batch === undefined
        ? ([nameRunOf(change, counts), nameRun(counts), () => askUndoOfRun(line)] as const)
        : ([batch, describeBatch(batch), () => askUndo(batch)] as const);
    const undoing = isUndone(name, batches) ? (
      <span class="faint">{t.changes.undone}</span>
    ) : (
      (!isAlone || isLast) && <UndoButton what={what} onClick={ask} />
    );
    return [
      isLong && counts !== undefined ? (
        <strong>{nameRun(counts)}</strong>
      ) : counts !== undefined && batch !== undefined ? (
        <BatchName batch={batch} counts={counts} />
      ) : (
        <OneChange change={change} />
      ),
      by === undefined ? (
        <span class="faint">{t.shared.commandLine}</span>
      ) : (
        <a href={linkToChanges({ by })}>{by}</a>
      ),
      <time>{formatTime(time)}</time>,
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
    {t.shared.undo} <span class="visually-hidden">{what}</span>
  </Button>
);

/** What its undo is about, in the journal. */
const nameChange = (change: Change): string => `${describe(change, en)} ${change.time}`;

const nameRunOf = ({ time }: Change, { created }: Counts): string =>
  `${pluralInEnglish(en.changes.addedMany, created)} ${time}`;

function askUndoOf(change: Change): void {
  const { seq } = change;
  askRevert({
    title: t.changes.askUndoThis,
    range: { from: seq, to: seq },
    batch: nameUndo(nameChange(change)),
  });
}

const nameRun = ({ created }: Counts): string => plural(t.changes.addedMany, created);

/** Between the creates of a run, no other change matches this filter. */
function askUndoOfRun({ change, counts, end }: Line): void {
  if (counts === undefined) return;
  const { seq, by } = change;
  askRevert({
    title: fill(t.changes.askUndo, { what: quote(nameRun(counts)) }),
    range: { from: end, to: seq, by, types: ["created"] },
    batch: nameUndo(nameRunOf(change, counts)),
  });
}

const describe = (change: Change, texts: typeof t): string =>
  fill(texts.changes.what[change.type], {
    plant: formatName(toPlant(change, change.plant ?? change.before)),
  });

interface BatchNameProps {
  readonly batch: string;
  readonly counts: Counts;
}

function BatchName({ batch, counts }: BatchNameProps): JSX.Element {
  return (
    <>
      <a href={linkToChanges({ batch })}>
        <strong>{describeBatch(batch)}</strong>
      </a>{" "}
      <span class="faint">{describeCounts(counts)}</span>
    </>
  );
}

function OneChange({ change }: { readonly change: Change }): JSX.Element {
  const { id, type, plant, before } = change;
  return (
    <>
      <span class="faint">{t.changes.verbs[type]}</span>{" "}
      <a class="digits" href={linkTo(id)}>
        {String(id)}
      </a>{" "}
      {type === "replaced" ? (
        <>
          <Version plant={toPlant(change, before)} since={toPlant(change, plant)} /> →{" "}
          <Version plant={toPlant(change, plant)} before={toPlant(change, before)} />
        </>
      ) : (
        <Version plant={toPlant(change, plant ?? before)} />
      )}
    </>
  );
}
