/** Checking a file before it is imported: how it is read, and how it compares to the store. */

import type { JSX } from "preact";
import type { Plant } from "../../src/domain/plant.ts";
import { formatCount } from "../state/format.ts";
import { Button, Check, Choice, Notice, Table, Terms } from "../view/controls.tsx";
import { Tag } from "../view/tag.tsx";
import { Version } from "../view/history.tsx";
import { Key, Shares } from "../view/patterns.tsx";
import { type Import, listMissing, type Reading, type RowOutcome } from "./messages.ts";
import { RefusedRows } from "./refused.tsx";
import { chooseAnother, readAs, startImport, updating } from "./state.ts";

const separators = { ",": "Comma", ";": "Semicolon", "\t": "Tab", "|": "Bar" };
const fields = { id: "Id", name: "Name", tag: "Tag" } as const;

export interface NowProps {
  readonly now: Import;
}

interface CheckFileProps extends NowProps {
  readonly reading: Reading;
}

export function CheckFile({ now, reading }: CheckFileProps): JSX.Element {
  const { sheets = [], tops = [], columns = [], table = [], rows = [], isReading = false } = now;
  const { done, ending, differences = [], nameless = 0, isWhole = false } = now;
  const { removed = 0, refused = 0, isTooMuch = false } = now;
  const isKnown = !isWhole || (ending === "done" && refused === 0 && !isTooMuch);
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
            label="Separator"
            value={reading.delimiter}
            options={Object.entries(separators)}
            onText={(delimiter) => change({ ...guess, delimiter })}
          />
        )}
        {sheets.length > 1 && (
          <Choice
            id="import-sheet"
            label="Sheet"
            value={reading.sheet ?? ""}
            options={sheets.map((sheet) => [sheet, sheet] as const)}
            onText={(sheet) => change({ ...guess, sheet })}
          />
        )}
        {columns.length > 0 && (
          <>
            <Choice
              id="import-first"
              label="Column names"
              value={reading.isHeadless === true ? "" : String(reading.firstLine)}
              options={[
                ["", "None, all rows are data"],
                ...tops.map(({ line, text }) => [String(line), `Row ${line}: ${text}`] as const),
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
                fault={missing.some((one) => one === field) ? "Which column is it?" : undefined}
                options={[
                  ["", field === "tag" ? "No tags" : "Choose…"],
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
          <summary>The file's first rows</summary>
          <Table label="The file's first rows" heads={table[0] ?? []} rows={table.slice(1)} />
        </details>
      )}
      {done !== undefined && ending === undefined && (
        <progress aria-label="Comparing with the store" value={done} max={1} />
      )}
      {ending !== undefined && <Compared now={now} reading={reading} />}
      {(nameless > 0 || !reading.needsName) && (
        <Check
          checked={!reading.needsName}
          onChange={(event) => change({ needsName: !event.currentTarget.checked })}
        >
          Import rows without a name too
        </Check>
      )}
      {rows.length > 0 && (
        <FirstRows rows={rows} isWorkbook={reading.kind === "xlsx"} isWhole={isWhole} />
      )}
      <div class="form-actions">
        <Button
          kind={isWhole && removed > 0 ? "danger" : "main"}
          disabled={isReading || rows.length === 0 || !isKnown}
          onClick={() => startImport(now, updating.value || isWhole ? differences : [])}
        >
          {isWhole && removed > 0
            ? `Start import and delete ${formatCount(removed, "plant")}`
            : "Start import"}
        </Button>
        <Button onClick={chooseAnother}>Another file</Button>
      </div>
    </>
  );
}

interface FirstRowsProps {
  readonly rows: NonNullable<Import["rows"]>;
  readonly isWorkbook: boolean;
  readonly isWhole: boolean;
}

/** Without a comparison it is unknown what becomes of them. */
function FirstRows({ rows, isWorkbook, isWhole }: FirstRowsProps): JSX.Element {
  const isCompared = rows.some(({ outcome }) => outcome !== undefined);
  return (
    <Table
      label="Preview"
      caption={isCompared ? "The first rows, as they will be stored" : "The first rows, as read"}
      heads={[isWorkbook ? "Row" : "Line", ...(isCompared ? ["Result"] : []), "Id", "Name", "Tag"]}
      rows={rows.map(({ line, plant, outcome }) => [
        <span class="digits faint">{line}</span>,
        ...(isCompared ? [foreseen[toCounted(outcome ?? "refused", isWhole)]] : []),
        ...(typeof plant === "string"
          ? [<span class="field-fault">{plant}</span>]
          : [<Id of={plant} />, <span class="exact">{plant.name}</span>, <Tag tag={plant.tag} />]),
      ])}
    />
  );
}

const SHOWN_MAX = 50;

function Compared({ now, reading }: CheckFileProps): JSX.Element {
  const { counted = 0, differences = [], missing = [], failure, refused = 0 } = now;
  const { isWhole = false, isTooMuch = false, ending } = now;
  const different = formatCount(differences.length, "plant");
  return (
    <section class="stack compared" aria-label="Compared with the store">
      <Figures now={now} />
      {failure !== undefined && (
        <p class="faint">
          Only the first {formatCount(counted, "row")} could be compared. {failure}
        </p>
      )}
      {differences.length > 0 && (
        <Check
          checked={updating.value || isWhole}
          disabled={isWhole}
          onChange={(event) => (updating.value = event.currentTarget.checked)}
        >
          Change the {different} that {differences.length === 1 ? "is" : "are"} different
        </Check>
      )}
      {ending === "done" && (
        <Check
          checked={isWhole}
          disabled={refused > 0 && !isWhole}
          onChange={(event) => readAs(now, reading, event.currentTarget.checked)}
        >
          Make the store match this file: also remove the plants that it lacks
          {refused > 0 && (
            <small class="faint">
              {" "}
              First correct the rows with a fault: nothing may be missing.
            </small>
          )}
        </Check>
      )}
      {isTooMuch && (
        <Notice
          kind="warning"
          title="Too many plants to delete from this page"
          text="Use the command line: plantstore import --remove-missing."
        />
      )}
      {missing.length > 0 && (
        <Table
          label="Plants to delete"
          caption={`Only in the store, to be deleted, at most ${SHOWN_MAX} of them`}
          heads={["Id", "In the store"]}
          rows={missing
            .slice(0, SHOWN_MAX)
            .map((plant) => [<Id of={plant} />, <Version plant={plant} />])}
        />
      )}
      {differences.length > 0 && (
        <Table
          label="Different plants"
          caption={`Different in the store, at most ${SHOWN_MAX} of them`}
          heads={["Id", "In the store", "In the file"]}
          rows={differences
            .slice(0, SHOWN_MAX)
            .map(({ stored, given }) => [
              <Id of={stored} />,
              <Version plant={stored} since={given} />,
              <Version plant={given} before={stored} />,
            ])}
        />
      )}
      {refused > 0 && (
        <details>
          <summary>Rows with a fault: {formatCount(refused)}</summary>
          <RefusedRows now={now} />
        </details>
      )}
    </section>
  );
}

const foreseen = {
  created: "To add",
  replayed: "Already there",
  updated: "To change",
  kept: "Different, to keep",
  removed: "To delete",
  refused: "To refuse",
};
const imported = {
  created: "Added",
  replayed: "Already there",
  updated: "Changed",
  kept: "Different, kept",
  removed: "Deleted",
  refused: "Refused",
};
type Figure = keyof typeof imported;

/** A different plant is changed only if the user chooses it. */
function toCounted(outcome: RowOutcome, isWhole = false): Figure {
  const isChanged = updating.value || isWhole;
  if (outcome === "updated") return isChanged ? "updated" : "kept";
  if (outcome === "updatedAgain") return isChanged ? "replayed" : "kept";
  return outcome;
}

const outcomes = ["created", "replayed", "updated", "updatedAgain", "kept", "refused"] as const;

/** The figures before an import are those after it. */
export function Figures({ now }: NowProps): JSX.Element {
  const { isWhole = false, removed = 0, updates } = now;
  const isForeseen = updates === undefined;
  const count = (figure: Figure): number =>
    figure === "removed"
      ? removed
      : outcomes
          .filter((outcome) => (isForeseen ? toCounted(outcome, isWhole) : outcome) === figure)
          .reduce((sum, outcome) => sum + (now[outcome] ?? 0), 0);
  const isShown = (figure: Figure): boolean => {
    if (figure === "removed") return isWhole;
    if (figure === "kept") return count("kept") > 0;
    return figure !== "updated" || count("updated") > 0 || count("kept") === 0;
  };
  const names = isForeseen ? foreseen : imported;
  const shown = (Object.keys(imported) as Figure[]).filter(isShown);
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
        label="Rows of the file"
        parts={rows.map((figure) => [names[figure], count(figure)] as const)}
      />
      {now.refusedAlong !== undefined && now.refusedAlong.lines > 0 && (
        <RefusedAlong along={now.refusedAlong} />
      )}
    </div>
  );
}

/** Where in the file rows were refused: a mark for each part of it. */
function RefusedAlong({ along: { slots, size, lines } }: RefusedAlongProps): JSX.Element | null {
  const parts = Math.ceil(lines / size);
  const marked = slots.slice(0, parts).map((count, at) => ({ count, at }));
  const faulty = marked.filter(({ count }) => count > 0);
  if (faulty.length === 0) return null;
  const most = Math.max(...faulty.map(({ count }) => count));
  const name = (at: number): string =>
    `${formatCount(at * size + 1)} to ${formatCount(Math.min(lines, (at + 1) * size))}`;
  return (
    <figure class="along">
      <figcaption class="faint">Refused along the file, from its first row to its last</figcaption>
      <svg
        viewBox={`0 0 ${parts} 20`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Refused rows: ${faulty
          .slice(0, 20)
          .map(({ at, count }) => `${formatCount(count)} in lines ${name(at)}`)
          .join(", ")}${faulty.length > 20 ? " and more" : ""}`}
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
            <title>{`Lines ${name(at)}: ${formatCount(count)} refused`}</title>
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
    return <Notice kind="fault" title="The file can't be read this way" text={problem} />;
  if (rows?.length === 0 && listMissing(reading).length === 0)
    return <Notice kind="warning" title="There are no rows in this file" />;
  if (reading.encoding === "utf-8") return null;
  return (
    <Notice
      kind="warning"
      title={`Read as ${reading.encoding.toUpperCase()}`}
      text="The file is not in UTF-8. Check that the names below look right before you start."
    />
  );
}
