/** Checking a file before it is imported: how it is read, and how it compares to the store. */

import type { JSX } from "preact";
import type { Plant } from "../../src/domain/plant.ts";
import { formatCount, formatSeconds } from "../state/format.ts";
import { fill, plural, t } from "../text/text.ts";
import { Button, Check, Choice, Notice, Table, Terms } from "../view/controls.tsx";
import { Version } from "../view/history.tsx";
import { Key, Shares } from "../view/patterns.tsx";
import { Tag } from "../view/tag.tsx";
import { DIFFERENCES_SHOWN, type Import, listMissing, type Reading } from "./messages.ts";
import { RefusedRows } from "./refused.tsx";
import { chooseAnother, readAs, startImport, updating } from "./state.ts";
import type { RowOutcome } from "./tally.ts";

const fields = { id: t.shared.id, name: t.shared.name, tag: t.shared.tag } as const;

export interface NowProps {
  readonly now: Import;
}

/** More plants are missing in the file than the page can remove. */
const isTooMuch = ({ removed = 0, missing = [] }: Import): boolean => removed > missing.length;

interface CheckFileProps extends NowProps {
  readonly reading: Reading;
}

export function CheckFile({ now, reading }: CheckFileProps): JSX.Element {
  const { sheets = [], tops = [], columns = [], table = [], rows = [], isReading = false } = now;
  const { done, ending, different, nameless = 0, isWhole = false } = now;
  const { removed = 0, refused = 0 } = now;
  const isKnown = !isWhole || (ending === "done" && refused === 0 && !isTooMuch(now));
  const missing = listMissing(reading);
  const change = (changed: Partial<Reading>): void => readAs(now, { ...reading, ...changed });
  /** For another table, all is guessed again. */
  const guess = { isHeadless: undefined, firstLine: undefined, headings: {} };
  return (
    <>
      <div class="mapping">
        {reading.kind === "csv" && (
          <Choice
            id="import-delimiter"
            label={t.imports.separator}
            value={reading.delimiter}
            options={Object.entries(t.imports.separators)}
            onText={(delimiter) => change({ ...guess, delimiter })}
          />
        )}
        {sheets.length > 1 && (
          <Choice
            id="import-sheet"
            label={t.imports.sheet}
            value={reading.sheet ?? ""}
            options={sheets.map((sheet) => [sheet, sheet] as const)}
            onText={(sheet) => change({ ...guess, sheet })}
          />
        )}
        {columns.length > 0 && (
          <>
            <Choice
              id="import-first"
              label={t.imports.columnNames}
              value={reading.isHeadless === true ? "" : String(reading.firstLine)}
              options={[
                ["", t.imports.noColumnNames],
                ...tops.map(({ line, text }) => {
                  const label = fill(t.imports.namesInRow, { line: String(line), text });
                  return [String(line), label] as const;
                }),
              ]}
              onText={(line) =>
                change(
                  line === ""
                    ? { ...guess, isHeadless: true }
                    : { ...guess, isHeadless: false, firstLine: Number(line) },
                )
              }
            />
            {Object.entries(fields).map(([field, label]) => (
              <Choice
                key={field}
                id={`import-${field}`}
                label={label}
                value={reading.headings[field as keyof typeof fields] ?? ""}
                fault={missing.some((one) => one === field) ? t.imports.whichColumn : undefined}
                options={[
                  ["", field === "tag" ? t.imports.noTags : t.imports.chooseColumn],
                  ...columns.map((heading) => [heading, heading] as const),
                ]}
                onText={(heading) => {
                  const none = field === "tag" ? null : undefined;
                  change({ headings: { ...reading.headings, [field]: heading || none } });
                }}
              />
            ))}
          </>
        )}
      </div>
      {!isReading && <PreviewNotice now={now} reading={reading} />}
      {table.length > 0 && (
        <details open={missing.length > 0}>
          <summary>{t.imports.firstRows}</summary>
          <Table label={t.imports.firstRows} heads={table[0] ?? []} rows={table.slice(1)} />
        </details>
      )}
      {done !== undefined && ending === undefined && (
        <ProgressBar now={now} label={t.imports.comparing} />
      )}
      {ending !== undefined && <Compared now={now} reading={reading} />}
      {(nameless > 0 || !reading.needsName) && (
        <Check
          checked={!reading.needsName}
          onChange={(event) => change({ needsName: !event.currentTarget.checked })}
        >
          {t.imports.allowNameless}
        </Check>
      )}
      {rows.length > 0 && <FirstRows now={now} reading={reading} />}
      <div class="form-actions">
        <Button
          kind={isWhole && removed > 0 ? "danger" : "main"}
          disabled={isReading || rows.length === 0 || !isKnown}
          onClick={() => startImport(now, updating.value || isWhole ? different : undefined)}
        >
          {isWhole && removed > 0 ? plural(t.imports.startAndDelete, removed) : t.imports.start}
        </Button>
        <Button onClick={chooseAnother}>{t.imports.another}</Button>
      </div>
    </>
  );
}

/** Without a comparison it is unknown what becomes of them. */
function FirstRows({ now, now: { rows = [] }, reading }: CheckFileProps): JSX.Element {
  const isCompared = rows.some(({ outcome }) => outcome !== undefined);
  return (
    <Table
      label={t.imports.preview}
      caption={isCompared ? t.imports.previewCompared : t.imports.previewRead}
      heads={[
        reading.kind === "xlsx" ? t.imports.row : t.imports.line,
        ...(isCompared ? [t.imports.result] : []),
        ...Object.values(fields),
      ]}
      keys={rows.map(({ line }) => line)}
      rows={rows.map(({ line, plant, outcome }) => [
        <span class="digits faint">{line}</span>,
        ...(isCompared ? [t.imports.foreseen[toCounted(outcome ?? "refused", now)]] : []),
        ...(typeof plant === "string"
          ? [<span class="field-fault">{plant}</span>]
          : [<Id of={plant} />, <span class="exact">{plant.name}</span>, <Tag tag={plant.tag} />]),
      ])}
    />
  );
}

interface ProgressBarProps extends NowProps {
  readonly label: string;
}

export function ProgressBar({ now, label }: ProgressBarProps): JSX.Element {
  const { counted = 0, done = 0, seconds = 0, isWaiting, isEnding } = now;
  const rate = seconds > 0 ? Math.round(counted / seconds) : 0;
  return (
    <div class="stack">
      <progress aria-label={label} value={done} max={1} />
      <p class="section-head">
        <strong>{fill(t.imports.percent, { percent: Math.floor(done * 100) })}</strong>
        {isEnding === true ? (
          <span>{t.imports.cancelling}</span>
        ) : isWaiting === true ? (
          <span class="field-note">{t.imports.waiting}</span>
        ) : (
          <span>
            {done > 0
              ? plural(t.imports.rateLeft, rate, {
                  time: formatSeconds((seconds * (1 - done)) / done),
                })
              : plural(t.imports.rate, rate)}
          </span>
        )}
      </p>
    </div>
  );
}

const SHOWN_MAX = 50;

function Compared({ now, reading }: CheckFileProps): JSX.Element {
  const { counted = 0, differences = [], updated = 0, missing = [] } = now;
  const { isWhole = false, ending, failure, refused = 0 } = now;
  return (
    <section class="stack compared" aria-label={t.imports.compared}>
      <Figures now={now} />
      {failure !== undefined && (
        <p class="faint">{plural(t.imports.comparedFirst, counted, { reason: failure })}</p>
      )}
      {differences.length > 0 && (
        <Check
          checked={updating.value || isWhole}
          disabled={isWhole}
          onChange={(event) => (updating.value = event.currentTarget.checked)}
        >
          {plural(t.imports.changeDifferent, updated)}
        </Check>
      )}
      {ending === "done" && (
        <Check
          checked={isWhole}
          disabled={refused > 0 && !isWhole}
          onChange={(event) => readAs(now, reading, event.currentTarget.checked)}
        >
          <span>
            {t.imports.matchFile}
            {refused > 0 && <small class="faint"> {t.imports.matchFileFirst}</small>}
          </span>
        </Check>
      )}
      {isTooMuch(now) && (
        <Notice kind="warning" title={t.imports.tooMany} text={t.imports.tooManyHint} />
      )}
      {missing.length > 0 && (
        <Table
          label={t.imports.toDelete}
          caption={fill(t.imports.toDeleteCaption, { max: SHOWN_MAX })}
          heads={[t.shared.id, t.imports.inStore]}
          keys={missing.slice(0, SHOWN_MAX).map(({ id }) => String(id))}
          rows={missing
            .slice(0, SHOWN_MAX)
            .map((plant) => [<Id of={plant} />, <Version plant={plant} />])}
        />
      )}
      {differences.length > 0 && (
        <Table
          label={t.imports.different}
          caption={fill(t.imports.differentCaption, { max: DIFFERENCES_SHOWN })}
          heads={[t.shared.id, t.imports.inStore, t.imports.inFile]}
          rows={differences.map(({ stored, given }) => [
            <Id of={stored} />,
            <Version plant={stored} since={given} />,
            <Version plant={given} before={stored} />,
          ])}
        />
      )}
      {refused > 0 && (
        <details>
          <summary>{fill(t.imports.faulty, { count: refused })}</summary>
          <RefusedRows now={now} />
        </details>
      )}
    </section>
  );
}

type Figure = keyof typeof t.imports.imported;

/** A different plant is changed only if the user chooses it. An import says itself what it changed. */
function toCounted(outcome: RowOutcome, { isWhole = false, batch }: Import): Figure {
  const isChanged = updating.value || isWhole || batch !== undefined;
  if (outcome === "updated") return isChanged ? "updated" : "kept";
  if (outcome === "updatedAgain") return isChanged ? "replayed" : "kept";
  return outcome;
}

const outcomes = ["created", "replayed", "updated", "updatedAgain", "kept", "refused"] as const;

/** The figures before an import are those after it. */
export function Figures({ now }: NowProps): JSX.Element {
  const { isWhole = false, removed = 0, batch } = now;
  const count = (figure: Figure): number =>
    figure === "removed"
      ? removed
      : outcomes
          .filter((outcome) => toCounted(outcome, now) === figure)
          .reduce((sum, outcome) => sum + (now[outcome] ?? 0), 0);
  const isShown = (figure: Figure): boolean => {
    if (figure === "removed") return isWhole;
    if (figure === "kept") return count("kept") > 0;
    return figure !== "updated" || count("updated") > 0 || count("kept") === 0;
  };
  const names = batch === undefined ? t.imports.foreseen : t.imports.imported;
  const shown = (Object.keys(t.imports.imported) as Figure[]).filter(isShown);
  // What is deleted is not in the file.
  const rows = shown.filter((figure) => figure !== "removed");
  return (
    <div class="figures-frame">
      <Terms
        class="figures"
        of={shown.map((figure) => [
          <span class="key">
            {figure !== "removed" && <Key at={rows.indexOf(figure)} />}
            {names[figure]}
          </span>,
          formatCount(count(figure)),
        ])}
      />
      <Shares
        label={t.imports.fileRows}
        parts={rows.map((figure) => [names[figure], count(figure)] as const)}
      />
      {now.refusedAlong !== undefined && now.refusedAlong.lines > 0 && (
        <RefusedAlong along={now.refusedAlong} />
      )}
    </div>
  );
}

const PARTS_SAID_MAX = 20;

/** Where in the file rows were refused: a mark for each part of it. */
function RefusedAlong({ along: { slots, size, lines } }: RefusedAlongProps): JSX.Element | null {
  const slotCount = Math.ceil(lines / size);
  const marked = slots.slice(0, slotCount).map((count, at) => ({ count, at }));
  const faulty = marked.filter(({ count }) => count > 0);
  if (faulty.length === 0) return null;
  const most = Math.max(...faulty.map(({ count }) => count));
  const span = (at: number) => ({ from: at * size + 1, to: Math.min(lines, (at + 1) * size) });
  const parts = faulty
    .slice(0, PARTS_SAID_MAX)
    .map(({ at, count }) => fill(t.imports.alongPart, { count, ...span(at) }))
    .join(", ");
  return (
    <figure class="along">
      <figcaption class="faint">{t.imports.along}</figcaption>
      <svg
        viewBox={`0 0 ${slotCount} 20`}
        preserveAspectRatio="none"
        role="img"
        aria-label={fill(
          faulty.length > PARTS_SAID_MAX ? t.imports.alongPartsMore : t.imports.alongParts,
          { parts },
        )}
      >
        {faulty.map(({ count, at }) => (
          <rect
            key={at}
            class="along-mark"
            x={at}
            y={10 - 10 * (count / most)}
            width={1}
            height={10 + 10 * (count / most)}
          >
            <title>{fill(t.imports.alongTitle, { count, ...span(at) })}</title>
          </rect>
        ))}
      </svg>
    </figure>
  );
}

interface RefusedAlongProps {
  readonly along: NonNullable<Import["refusedAlong"]>;
}

const Id = ({ of: { id } }: { readonly of: Plant }): JSX.Element => (
  <span class="row-id">{String(id)}</span>
);

function PreviewNotice({ now, reading }: CheckFileProps): JSX.Element | null {
  const { problem, rows } = now;
  if (problem !== undefined)
    return <Notice kind="fault" title={t.imports.unreadable} text={problem} />;
  if (rows?.length === 0 && listMissing(reading).length === 0)
    return <Notice kind="warning" title={t.imports.noRows} />;
  if (reading.encoding === "utf-8") return null;
  return (
    <Notice
      kind="warning"
      title={fill(t.imports.readAs, { encoding: reading.encoding.toUpperCase() })}
      text={t.imports.readAsHint}
    />
  );
}
