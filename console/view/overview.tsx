/**
 * What happened today and by whom, the changes as a picture, and the plants that need a look. Managers also see the
 * state of backups and webhooks.
 */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ChangeCount, TagCount, Webhook } from "../../client/client.ts";
import { type ChangeType, changeTypes } from "../../src/domain/change.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import { countChanges } from "../api/changes.ts";
import { call, explain, isAbort, isStatus, readActivity } from "../api/service.ts";
import { arrived, gaps } from "../state/feed.ts";
import { formatCount, formatSeconds, formatTime, formatTotal, quote } from "../state/format.ts";
import { everything, linkTo, linkToChanges } from "../state/route.ts";
import { isManager, may } from "../state/session.ts";
import { INTERVAL, type Span, startOf } from "../state/spans.ts";
import { fill, plural, t } from "../text/text.ts";
import { Icon, Notice, Table } from "./controls.tsx";
import { NoPlants } from "./empty-states.tsx";
import { usePolling } from "./form.tsx";
import { Picture, type Range, sumOf } from "./picture.tsx";

export function OverviewView(): JSX.Element {
  return (
    <div class="single overview">
      <h1>{isManager.value ? t.shell.views.overview : t.changes.today}</h1>
      {isManager.value && <Care />}
      <Today key={`today ${gaps.value}`} />
      <Activity key={gaps.value} />
      <Tags key={`tags ${gaps.value}`} />
    </div>
  );
}

/** What the service says of its backups, and of the last minutes. */
interface Facts {
  readonly backups: {
    readonly last: { readonly atMs: number } | null;
    readonly problem: string | null;
  } | null;
  readonly webhooks: readonly Webhook[];
}

/** One line: what it is, and what to do about it. */
interface Line {
  readonly isGood: boolean;
  readonly text: string;
  /** The next step. */
  readonly step?: JSX.Element | string;
}

const healthLink = <a href="#/health">{t.changes.seeHealth}</a>;

function describeBackups(backups: Facts["backups"]): Line {
  if (backups === null)
    return {
      isGood: false,
      text: t.changes.noBackups,
      step: t.changes.setBackups,
    };
  const { last, problem } = backups;
  if (problem !== null)
    return {
      isGood: false,
      text: fill(t.changes.backupsFail, { why: problem }),
      step: healthLink,
    };
  if (last === null) return { isGood: false, text: t.changes.noBackupYet, step: healthLink };
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  return { isGood: true, text: fill(t.changes.lastBackup, { age }) };
}

function describeWebhook({
  name,
  state,
  reason,
  failures,
  nextAttempt,
  attempts,
}: Webhook): Line[] {
  const step = <a href="#/webhooks">{t.changes.openWebhooks}</a>;
  if (state === "paused")
    return [
      {
        isGood: false,
        text: fill(t.changes.webhookPaused, {
          name: quote(name),
          why: reason ?? t.changes.onRequest,
        }),
        step,
      },
    ];
  if (failures === 0) return [];
  const [last] = attempts;
  const why = String(last?.status ?? last?.error ?? t.changes.noAnswer);
  const failed =
    last === undefined
      ? plural(t.changes.webhookFailed, failures, { name: quote(name) })
      : plural(t.changes.webhookFailedWith, failures, { name: quote(name), why });
  const next =
    nextAttempt === null ? "" : fill(t.changes.nextAttempt, { time: formatTime(nextAttempt) });
  const text = `${failed} ${next}`.trim();
  return [{ isGood: false, text, step }];
}

function describeWebhooks(webhooks: readonly Webhook[]): Line[] {
  const failing = webhooks.flatMap(describeWebhook);
  if (failing.length > 0 || webhooks.length === 0) return failing;
  return [{ isGood: true, text: plural(t.changes.webhooksDeliver, webhooks.length) }];
}

async function readFacts(): Promise<Facts> {
  const query = new URLSearchParams({ since: String(Date.now()), limit: "1" });
  const { backups } = await readActivity<Pick<Facts, "backups">>(query);
  const webhooks = may("webhooks:manage") ? await call((client) => client.listWebhooks()) : [];
  return { backups, webhooks };
}

function Care(): JSX.Element {
  const { answer, failure } = usePolling(readFacts);
  // What was read before may be true no longer.
  if (answer === undefined || failure !== undefined)
    return failure === undefined ? (
      <p class="faint late">{t.shared.loading}</p>
    ) : (
      <Notice kind="warning" title={t.changes.stateUnknown} text={explain(failure)} />
    );
  const lines = [describeBackups(answer.backups), ...describeWebhooks(answer.webhooks)];
  return (
    <ul class="care" aria-label={t.changes.stateOfStore}>
      {lines.map(({ isGood, text, step }) => (
        <li key={text} class={isGood ? "care-good" : "care-bad"}>
          <Icon name={isGood ? "check" : "warning"} />
          <p>
            {text} {step}
          </p>
        </li>
      ))}
    </ul>
  );
}

const startOfToday = (): string => new Date(new Date().setHours(0, 0, 0, 0)).toISOString();

/** Who added, changed and deleted how many plants since midnight. */
function Today(): JSX.Element | null {
  const counts = useSignal<readonly ChangeCount[] | undefined>(undefined);
  const from = useRef(startOfToday()).current;
  useEffect(() => {
    const leaving = new AbortController();
    countChanges({ from, group: ["by"] }, leaving.signal).then(
      (found) => (counts.value = found),
      // The picture below says what is wrong.
      () => undefined,
    );
    return () => leaving.abort();
  }, []);
  useEffect(() => {
    if (counts.value === undefined) return;
    const seen = Math.max(0, ...counts.value.map(({ last }) => last));
    const known = counts.value.map((count) => ({ ...count, start: undefined }));
    const all = [...known];
    for (const { seq, type, by, time } of arrived.value.filter((change) => change.seq > seen)) {
      const at = all.findIndex((count) => count.by === by);
      const none = { created: 0, replaced: 0, removed: 0, first: seq, firstTime: time };
      const mine = all[at] ?? { start: undefined, by, ...none, last: seq, lastTime: time };
      const next = { ...mine, [type]: mine[type] + 1, last: seq, lastTime: time };
      if (at === -1) all.push(next);
      else all[at] = next;
    }
    counts.value = all;
  }, [arrived.value]);
  if (counts.value === undefined) return null;
  const rows = counts.value.toSorted((one, other) => sumOf(other) - sumOf(one));
  const toLink = (count: ChangeCount, type: ChangeType): JSX.Element =>
    count[type] === 0 ? (
      <span class="faint">–</span>
    ) : (
      <a class="digits" href={linkToChanges({ from, by: count.by, type })}>
        {formatCount(count[type])}
      </a>
    );
  return (
    <section class="card stack" aria-labelledby="today-title">
      <div class="section-head">
        <h2 id="today-title">{t.changes.sinceMidnight}</h2>
        {rows.length > 0 && (
          <p>
            <a href={linkToChanges({ from })}>{t.changes.seeThem}</a>
          </p>
        )}
      </div>
      {rows.length === 0 ? (
        <p class="faint">{t.changes.nothingToday}</p>
      ) : (
        <Table
          label={t.changes.today}
          isListing
          heads={[t.changes.person, ...changeTypes.map((type) => t.changes.verbs[type])]}
          keys={rows.map(({ by }) => by ?? "")}
          rows={rows.map((count) => [
            count.by === undefined ? (
              <span class="faint">{t.shared.commandLine}</span>
            ) : (
              <a href={linkToChanges({ from, by: count.by })}>{count.by}</a>
            ),
            toLink(count, "created"),
            toLink(count, "replaced"),
            toLink(count, "removed"),
          ])}
        />
      )}
    </section>
  );
}

/** Adds changes that have just arrived, so the picture needs no second count. */
function addArrived(counts: readonly ChangeCount[], seen: number): readonly ChangeCount[] {
  const fresh = arrived.value.filter(({ seq }) => seq > seen);
  const intervalMs = INTERVAL === "1h" ? 3_600_000 : 900_000;
  const all = [...counts];
  for (const { seq, time, type, by } of fresh) {
    const start = new Date(Math.floor(Date.parse(time) / intervalMs) * intervalMs).toISOString();
    const at = all.findIndex((count) => count.start === start && count.by === by);
    const none = { created: 0, replaced: 0, removed: 0, first: seq, firstTime: time };
    const known = all[at] ?? { start, by, ...none, last: seq, lastTime: time };
    const next = { ...known, [type]: known[type] + 1, last: seq, lastTime: time };
    if (at === -1) all.push(next);
    else all[at] = next;
  }
  return all;
}

function Activity(): JSX.Element {
  const counts = useSignal<readonly ChangeCount[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const span = useSignal<Span>("day");
  const type = useSignal<ChangeType | undefined>(undefined);
  const range = useSignal<Range | undefined>(undefined);
  useEffect(() => {
    const leaving = new AbortController();
    const from = new Date(startOf("week")).toISOString();
    const query = { from, group: ["by"], every: INTERVAL } as const;
    countChanges(query, leaving.signal).then(
      (found) => (counts.value = found),
      (error: unknown) => {
        if (!isAbort(error)) failure.value = error;
      },
    );
    return () => leaving.abort();
  }, []);
  useEffect(() => {
    if (counts.value === undefined) return;
    const seen = Math.max(0, ...counts.value.map(({ last }) => last));
    counts.value = addArrived(counts.value, seen);
  }, [arrived.value]);
  if (failure.value !== undefined)
    return (
      <p class="faint">
        {isStatus(failure.value, 410) ? t.shared.noHistory : explain(failure.value)}
      </p>
    );
  const picked = range.value;
  const inRange = (counts.value ?? []).filter(
    ({ start = "" }) => picked !== undefined && start >= picked.from && start <= picked.to,
  );
  const number = inRange.reduce((all, count) => all + sumOf(count, type.value), 0);
  return (
    <section class="card stack" aria-labelledby="activity-title">
      <div class="section-head">
        <h2 id="activity-title">{t.shell.views.changes}</h2>
        <div class="filters">
          <select
            class="narrow"
            aria-label={t.changes.timeShown}
            value={span.value}
            onChange={({ currentTarget: { value } }) => {
              span.value = value as Span;
              range.value = undefined;
            }}
          >
            {Object.entries(t.changes.spans).map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </select>
          <select
            class="narrow"
            aria-label={t.changes.kindShown}
            value={type.value ?? ""}
            onChange={({ currentTarget: { value } }) =>
              (type.value = changeTypes.find((each) => each === value))
            }
          >
            <option value="">{t.changes.allKinds}</option>
            {changeTypes.map((each) => (
              <option key={each} value={each}>
                {t.changes.verbs[each]}
              </option>
            ))}
          </select>
        </div>
      </div>
      {counts.value === undefined ? (
        <p class="faint late">{t.shared.counting}</p>
      ) : (
        <Picture
          key={span.value}
          counts={counts.value}
          span={span.value}
          type={type.value}
          range={picked}
          onPick={(next) => (range.value = next)}
        />
      )}
      {picked === undefined ? (
        <p class="faint">{counts.value?.length === 0 ? "" : t.changes.dragHint}</p>
      ) : (
        <p class="section-head" role="status">
          <span>
            {formatTime(picked.from)} – {formatTime(picked.to)}
          </span>
          <a class="button" href={linkToChanges({ ...picked, type: type.value })}>
            {fill(t.changes.seeOrUndo, { changes: plural(t.shared.changes, number) })}
          </a>
        </p>
      )}
    </section>
  );
}

const TAGS_SHOWN = 12;
const TAGS_MAX = 1_000;
/** Each takes the service about a second at most. */
const TAG_PAGES_MAX = 10;

interface Tally {
  readonly total: PlantCount;
  readonly untagged: PlantCount;
  readonly tags: readonly TagCount[];
  /** Whether all tags were counted. */
  readonly isWhole: boolean;
}

async function countTags(signal: AbortSignal): Promise<Tally> {
  return call(async (client) => {
    const total = await client.countPlants({}, { signal });
    const untagged = await client.countPlants({ tagged: false }, { signal });
    const tags: TagCount[] = [];
    let after: string | undefined;
    for (let pages = 0; pages < TAG_PAGES_MAX && tags.length < TAGS_MAX; pages++) {
      const page = await client.countTagPage({ after, limit: TAGS_MAX }, { signal });
      tags.push(...page.tags);
      after = page.next;
      if (after === undefined) break;
    }
    return { total, untagged, tags, isWhole: after === undefined };
  });
}

const sum = (counts: readonly TagCount[]): PlantCount => ({
  count: counts.reduce((all, { count }) => all + count, 0),
  exact: counts.every(({ exact }) => exact),
});

function Tags(): JSX.Element {
  const tally = useSignal<Tally | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  useEffect(() => {
    const leaving = new AbortController();
    countTags(leaving.signal).then(
      (found) => (tally.value = found),
      (error: unknown) => {
        if (!isAbort(error)) failure.value = error;
      },
    );
    return () => leaving.abort();
  }, []);
  if (failure.value !== undefined)
    return <Notice kind="warning" title={t.changes.notCounted} text={explain(failure.value)} />;
  if (tally.value === undefined) return <p class="faint late">{t.shared.counting}</p>;
  const { total } = tally.value;
  if (total.count === 0 && total.exact) return <NoPlants />;
  return (
    <>
      <TagBars tally={tally.value} />
      <RepeatedNames />
    </>
  );
}

function TagBars({ tally }: { readonly tally: Tally }): JSX.Element {
  const { total, untagged, tags, isWhole } = tally;
  const sorted = tags.toSorted((one, other) => other.count - one.count);
  const shown = sorted.slice(0, TAGS_SHOWN);
  const others = sorted.slice(TAGS_SHOWN);
  const largest = Math.max(1, ...shown.map(({ count }) => count));
  return (
    <section class="card stack" aria-labelledby="tags-title">
      <div class="section-head">
        <h2 id="tags-title">{t.shell.views.plants}</h2>
        <p>
          <a href={linkTo(undefined, everything)}>
            {fill(t.changes.inAll, { count: formatTotal(total) })}
          </a>
          {(untagged.count > 0 || !untagged.exact) && (
            <>
              {" · "}
              <a href={linkTo(undefined, { ...everything, tagged: false })}>
                {fill(t.changes.withoutTag, { count: formatTotal(untagged) })}
              </a>
            </>
          )}
        </p>
      </div>
      <ul class="tag-bars" aria-label={t.changes.byTag}>
        {shown.map(({ tag, ...count }) => (
          <li key={tag}>
            <a class="tag-bar" href={linkTo(undefined, { ...everything, tag })}>
              <span class="cut">{tag === "" ? <i>{t.shared.emptyTag}</i> : tag}</span>
              <span class="tag-track" aria-hidden="true">
                <span style={{ width: `${(count.count / largest) * 100}%` }} />
              </span>
              <span class="digits">{formatTotal(count)}</span>
            </a>
          </li>
        ))}
      </ul>
      {(others.length > 0 || !isWhole) && (
        <p class="faint">
          {others.length > 0 &&
            `${plural(t.changes.otherTags, others.length, { plants: formatTotal(sum(others)) })} `}
          {!isWhole && fill(t.changes.firstTags, { count: tags.length })}
        </p>
      )}
    </section>
  );
}

const NAMES_SHOWN = 50;
/** A longer name is looked for by its beginning. */
const LINK_CHARACTERS_MAX = 100;

/** Names that occur more than once, the most frequent first, each with its number of plants. */
async function findRepeated(signal: AbortSignal): Promise<readonly (readonly [string, number])[]> {
  const counts = new Map<string, number>();
  await call(async (client) => {
    for await (const block of client.exportBlocks({}, { signal }))
      for (const { name } of block) counts.set(name, (counts.get(name) ?? 0) + 1);
  });
  return [...counts]
    .filter(([, count]) => count > 1)
    .toSorted(([name, count], [other, its]) => its - count || name.localeCompare(other));
}

function linkToName(whole: string): string {
  const name = Array.from(whole).slice(0, LINK_CHARACTERS_MAX).join("");
  return linkTo(undefined, { ...everything, name, sort: "name" });
}

/** On request: the page reads every plant for it. */
function RepeatedNames(): JSX.Element {
  const found = useSignal<Awaited<ReturnType<typeof findRepeated>> | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const reading = useSignal<AbortController | undefined>(undefined);
  useEffect(() => () => reading.value?.abort(), []);
  const read = (): void => {
    reading.value = new AbortController();
    failure.value = undefined;
    findRepeated(reading.value.signal)
      .then(
        (names) => (found.value = names),
        (error: unknown) => {
          if (!isAbort(error)) failure.value = error;
        },
      )
      .finally(() => (reading.value = undefined));
  };
  if (failure.value !== undefined)
    return <Notice kind="warning" title={t.changes.notCounted} text={explain(failure.value)} />;
  if (found.value === undefined)
    return (
      <p>
        <button type="button" class="button" disabled={reading.value !== undefined} onClick={read}>
          {reading.value === undefined ? t.changes.findRepeated : t.shared.counting}
        </button>
      </p>
    );
  const names = found.value;
  return (
    <section class="card stack" role="status">
      <p>
        {names.length === 0 ? t.changes.noRepeated : plural(t.changes.repeated, names.length)}{" "}
        {names.length > NAMES_SHOWN && fill(t.changes.mostRepeated, { count: NAMES_SHOWN })}
      </p>
      <ul class="repeated">
        {names.slice(0, NAMES_SHOWN).map(([name, count]) => (
          <li key={name}>
            <a class="cut" href={linkToName(name)}>
              {name}
            </a>
            <span class="digits">{formatCount(count)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
