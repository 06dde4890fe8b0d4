/** Checking a file before it is imported: how it is read, and how it compares to the store. */

import type { JSX } from "preact";
import type { Plant } from "../../src/domain/plant.ts";
import { formatCount } from "../state/format.ts";
import { Button, Check, Choice, Notice, Table, Tag, Terms } from "../view/controls.tsx";
import { Version } from "../view/history.tsx";
import { type Import, listMissing, type Reading } from "./messages.ts";
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
  const { sheets = [], columns = [], table = [], rows = [], isReading = false } = now;
  const { done, ending, differences = [] } = now;
  const missing = listMissing(reading);
  const change = (changed: Partial<Reading>): void => readAs(now, { ...reading, ...changed });
  return (
    <>
      <div class="mapping">
        {reading.kind === "csv" && (
          <Choice
            id="import-delimiter"
            label="Separator"
            value={reading.delimiter}
            options={Object.entries(separators)}
            onText={(delimiter) => change({ delimiter, isHeadless: undefined, headings: {} })}
          />
        )}
        {sheets.length > 1 && (
          <Choice
            id="import-sheet"
            label="Sheet"
            value={reading.sheet ?? ""}
            options={sheets.map((sheet) => [sheet, sheet] as const)}
            onText={(sheet) => change({ sheet, isHeadless: undefined, headings: {} })}
          />
        )}
        {columns.length > 0 && (
          <>
            <Choice
              id="import-first"
              label="First row"
              value={String(reading.isHeadless)}
              options={Object.entries({ false: "Column names", true: "Data" })}
              onText={(value) => change({ isHeadless: value === "true", headings: {} })}
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
      {ending !== undefined && <Compared now={now} />}
      {differences.length > 0 && (
        <Check
          checked={updating.value}
          onChange={(event) => (updating.value = event.currentTarget.checked)}
        >
          Update the different ones
        </Check>
      )}
      {rows.length > 0 && (
        <Table
          label="Preview"
          caption="The first rows, as they will be stored"
          heads={[reading.kind === "xlsx" ? "Row" : "Line", "Id", "Name", "Tag"]}
          rows={rows.map(({ line, plant }) => [
            <span class="digits faint">{line}</span>,
            ...(typeof plant === "string"
              ? [<span class="field-fault">{plant}</span>]
              : [<Id of={plant} />, plant.name, <Tag tag={plant.tag} />]),
          ])}
        />
      )}
      <div class="form-actions">
        <Button
          kind="main"
          disabled={isReading || rows.length === 0}
          onClick={() => startImport(now, updating.value ? differences : [])}
        >
          Start import
        </Button>
        <Button onClick={chooseAnother}>Another file</Button>
      </div>
    </>
  );
}

const SHOWN_MAX = 50;

function Compared({ now }: NowProps): JSX.Element {
  const { counted = 0, differences = [], failure } = now;
  return (
    <section class="stack compared" aria-label="Compared with the store">
      <Figures now={now} />
      {failure !== undefined && (
        <p class="faint">
          Only the first {formatCount(counted, "row")} could be compared. {failure}
        </p>
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
              <Version plant={stored} />,
              <Version plant={given} />,
            ])}
        />
      )}
    </section>
  );
}

const figures = { created: "New", replayed: "Same", updated: "Different", refused: "Refused" };
const imported = { ...figures, created: "Added", replayed: "Already there", updated: "Updated" };

export const Figures = ({ now }: NowProps): JSX.Element => (
  <Terms
    class="figures"
    of={Object.entries(now.updates === undefined ? figures : imported).map(([kind, label]) => [
      label,
      formatCount(now[kind as keyof typeof figures] ?? 0),
    ])}
  />
);

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
