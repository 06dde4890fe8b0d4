/**
 * What happened today and by whom, the changes as a picture, and the plants that need a look. Managers also see the
 * state of backups and webhooks.
 */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { ChangeCount, TagCount, Webhook } from "../../client/client.ts";
import { type ChangeType, changeTypes } from "../../src/domain/change.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import { call, explain, readActivity } from "../api/service.ts";
import { gaps } from "../state/feed.ts";
import { formatCount, formatSeconds, formatTime, formatTotal, quote } from "../state/format.ts";
import { sumOf } from "../state/journal.ts";
import { everything, linkTo, linkToChanges } from "../state/route.ts";
import { isForAll, isManager, may } from "../state/session.ts";
import { INTERVAL, type Span, startOf } from "../state/spans.ts";
import { fill, plural, t } from "../text/text.ts";
import { Button, Icon, Notice, Table } from "./controls.tsx";
import { useCounts } from "./counts.ts";
import { NoPlants } from "./empty-states.tsx";
import { explainHistory } from "./history.tsx";
import { Picture, type Range } from "./picture.tsx";
import { POLL, useRead } from "./read.ts";

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
  /** null if none are made. */
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

/** A token for some tags is not told of the backups, which are of the whole store. */
async function readFacts(): Promise<Pick<Facts, "webhooks"> & Partial<Facts>> {
  const query = new URLSearchParams({ since: String(Date.now()), limit: "1" });
  const facts = isForAll.value ? await readActivity<Pick<Facts, "backups">>(query) : {};
  const webhooks = may("webhooks:manage") ? await call((client) => client.listWebhooks()) : [];
  return { ...facts, webhooks };
}

function Care(): JSX.Element {
  const { answer, failure } = useRead(readFacts, [], POLL);
  // What was read before may be true no longer.
  if (answer === undefined || failure !== undefined)
    return failure === undefined ? (
      <p class="faint late">{t.shared.loading}</p>
    ) : (
      <Notice kind="warning" title={t.changes.stateUnknown} text={explain(failure)} />
    );
  const { backups, webhooks } = answer;
  const lines = [
    ...(backups === undefined ? [] : [describeBackups(backups)]),
    ...describeWebhooks(webhooks),
  ];
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
  const from = useRef(startOfToday()).current;
  // If it fails, the picture below says what is wrong.
  const { answer: counts } = useCounts({ from }, { group: ["by"] });
  if (counts === undefined) return null;
  const rows = counts.toSorted((one, other) => sumOf(other) - sumOf(one));
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

function Activity(): JSX.Element {
  const from = useRef(new Date(startOf("week")).toISOString()).current;
  const { answer: counts, failure } = useCounts({ from }, { group: ["by"], every: INTERVAL });
  const span = useSignal<Span>("day");
  const type = useSignal<ChangeType | undefined>(undefined);
  const range = useSignal<Range | undefined>(undefined);
  if (failure !== undefined) return <p class="faint">{explainHistory(failure)}</p>;
  const picked = range.value;
  const inRange = (counts ?? []).filter(
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
      {counts === undefined ? (
        <p class="faint late">{t.shared.counting}</p>
      ) : (
        <Picture
          key={span.value}
          counts={counts}
          span={span.value}
          type={type.value}
          range={picked}
          onPick={(next) => (range.value = next)}
        />
      )}
      {picked === undefined ? (
        <p class="faint">{counts?.length === 0 ? "" : t.changes.dragHint}</p>
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
  const { answer: tally, failure } = useRead(countTags);
  if (failure !== undefined)
    return <Notice kind="warning" title={t.changes.notCounted} text={explain(failure)} />;
  if (tally === undefined) return <p class="faint late">{t.shared.counting}</p>;
  const { total } = tally;
  if (total.count === 0 && total.exact) return <NoPlants />;
  return (
    <>
      <TagBars tally={tally} />
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
  const isWanted = useSignal(false);
  const { answer: names, failure } = useRead(
    async (ended) => (isWanted.value ? findRepeated(ended) : undefined),
    [isWanted.value],
  );
  if (failure !== undefined)
    return <Notice kind="warning" title={t.changes.notCounted} text={explain(failure)} />;
  if (names === undefined)
    return (
      <p>
        <Button disabled={isWanted.value} onClick={() => (isWanted.value = true)}>
          {isWanted.value ? t.shared.counting : t.changes.findRepeated}
        </Button>
      </p>
    );
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
