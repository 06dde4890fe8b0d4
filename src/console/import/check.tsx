/** Checking a file before it is imported: how it is read, and how it compares to the store. */

import type { JSX } from "preact";
import type { Plant } from "../../domain/plant.ts";
import { formatBytes, formatCount } from "../state/format.ts";
import { Button, Check, Choice, Notice, Table, Tag, Terms } from "../view/controls.tsx";
import {
  type Difference,
  type Import,
  listMissing,
  type Progress,
  type Reading,
} from "./messages.ts";
import { chooseAnother, readAs, startImport, updating } from "./state.ts";

const separators = { ",": "Comma", ";": "Semicolon", "\t": "Tab", "|": "Bar" };
const fields = { id: "Id", name: "Name", tag: "Tag" } as const;

interface CheckFileProps {
  readonly now: Import;
  readonly reading: Reading;
}

export function CheckFile({ now, reading }: CheckFileProps): JSX.Element {
  const { file, sheets = [], columns = [], table = [], rows = [], isReading = false } = now;
  const { progress, differences = [] } = now;
  const missing = listMissing(reading);
  const change = (changed: Partial<Reading>): void => readAs(now, { ...reading, ...changed });
  return (
    <>
      <p class="wrap">
        <strong>{file.name}</strong> <span class="faint">{formatBytes(file.size)}</span>
      </p>
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
      {progress !== undefined &&
        (now.ending === undefined ? (
          <progress aria-label="Comparing with the store" value={progress.done} max={1} />
        ) : (
          <Compared progress={progress} differences={differences} failure={now.failure} />
        ))}
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

interface ComparedProps {
  readonly progress: Progress;
  readonly differences: readonly Difference[];
  readonly failure: string | undefined;
}

function Compared({ progress, differences, failure }: ComparedProps): JSX.Element {
  const { created, replayed, updated, refused, rows } = progress;
  return (
    <section class="stack compared" aria-label="Compared with the store">
      <Terms
        class="figures"
        of={[
          ["New", formatCount(created)],
          ["Same", formatCount(replayed)],
          ["Different", formatCount(updated)],
          ["Refused", formatCount(refused)],
        ]}
      />
      {failure !== undefined && (
        <p class="faint">
          Only the first {formatCount(rows, "row")} could be compared. {failure}
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
              <Version of={stored} />,
              <Version of={given} />,
            ])}
        />
      )}
    </section>
  );
}

const Id = ({ of: { id } }: { readonly of: Plant }): JSX.Element => (
  <span class="row-id">{String(id)}</span>
);

const Version = ({ of: { name, tag } }: { readonly of: Plant }): JSX.Element => (
  <>
    {name} {tag === undefined ? <span class="faint">no tag</span> : <Tag tag={tag} />}
  </>
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
