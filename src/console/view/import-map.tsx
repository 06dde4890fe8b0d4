/** How a file is understood: which column is which, and the first rows as they would be stored. */

import type { JSX } from "preact";
import type { PlantField } from "../../format/csv-table.ts";
import { chooseAnother, mapColumns, readAs, startImport } from "../state/import.ts";
import { formatBytes } from "../state/numbers.ts";
import { type FileKind, type Mapping, type Preview, UNREADABLE } from "../worker/messages.ts";
import { Notice } from "./notice.tsx";

const kinds: Readonly<Record<FileKind, string>> = {
  csv: "Table (CSV, TSV)",
  ndjson: "Lines of JSON",
  json: "JSON array",
};
const delimiters: Readonly<Record<string, string>> = {
  ",": "Comma",
  ";": "Semicolon",
  "\t": "Tab",
  "|": "Bar",
};

interface ImportMapProps {
  readonly file: File;
  readonly preview: Preview;
}

export function ImportMap({ file, preview }: ImportMapProps): JSX.Element {
  const { reading, problem, missing } = preview;
  const canStart = problem === undefined && missing.length === 0 && preview.rows.length > 0;
  return (
    <>
      <p class="import-file">
        <strong>{file.name}</strong> <span class="faint">{formatBytes(file.size)}</span>
      </p>
      <div class="mapping">
        <Choice
          id="import-kind"
          label="Format"
          value={reading.kind}
          options={Object.entries(kinds)}
          onChange={(kind) => readAs({ ...reading, kind: kind as FileKind, mapping: undefined })}
        />
        {reading.kind === "csv" && (
          <Choice
            id="import-delimiter"
            label="Cells end with"
            value={reading.delimiter}
            options={Object.entries(delimiters)}
            onChange={(delimiter) => readAs({ ...reading, delimiter, mapping: undefined })}
          />
        )}
      </div>
      {reading.kind === "csv" && preview.headings.length > 0 && <Columns preview={preview} />}
      {problem === UNREADABLE && (
        <Notice kind="fault" title={UNREADABLE}>
          <p>Choose it once more, or another file.</p>
        </Notice>
      )}
      {problem !== undefined && problem !== UNREADABLE && (
        <Notice kind="fault" title="The file cannot be read this way">
          <p>{problem}</p>
        </Notice>
      )}
      {problem === undefined && missing.length === 0 && preview.rows.length === 0 && (
        <Notice kind="warning" title="There are no rows in this file" />
      )}
      <FirstRows preview={preview} />
      <div class="form-actions">
        <button
          type="button"
          class="button button-main"
          disabled={!canStart}
          onClick={() => startImport(file, reading)}
        >
          Start import
        </button>
        <button type="button" class="button" onClick={chooseAnother}>
          Another file
        </button>
      </div>
    </>
  );
}

const NO_COLUMN = "";
/** The values are not imported with their type: the library behind them belongs to the other thread. */
const fields: readonly (readonly [PlantField, string])[] = [
  ["id", "Id"],
  ["name", "Name"],
  ["tag", "Tag"],
];

const nothing: Mapping = { id: undefined, name: undefined, tag: undefined };

/** A column for each field. */
function Columns({ preview }: { readonly preview: Preview }): JSX.Element {
  const { headings, reading, missing } = preview;
  const mapping = reading.mapping ?? nothing;
  return (
    <fieldset class="mapping">
      <legend>Columns</legend>
      {fields.map(([field, label]) => (
        <Choice
          key={field}
          id={`import-${field}`}
          label={label}
          value={mapping[field] ?? NO_COLUMN}
          isFaulty={missing.includes(field)}
          options={[
            [NO_COLUMN, field === "tag" ? "No tags" : "Choose a column…"] as const,
            ...headings.map((heading) => [heading, heading] as const),
          ]}
          onChange={(heading) =>
            mapColumns({ ...mapping, [field]: heading === NO_COLUMN ? undefined : heading })
          }
        />
      ))}
    </fieldset>
  );
}

interface ChoiceProps {
  readonly id: string;
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [string, string])[];
  readonly isFaulty?: boolean;
  readonly onChange: (value: string) => void;
}

function Choice({ id, label, value, options, isFaulty, onChange }: ChoiceProps): JSX.Element {
  return (
    <div class={isFaulty === true ? "field field-faulty" : "field"}>
      <label for={id}>{label}</label>
      <select
        id={id}
        aria-invalid={isFaulty === true ? "true" : "false"}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {options.map(([each, text]) => (
          <option key={each} value={each} selected={each === value}>
            {text}
          </option>
        ))}
      </select>
      {isFaulty === true && <p class="field-fault">Which column is it?</p>}
    </div>
  );
}

function FirstRows({ preview }: { readonly preview: Preview }): JSX.Element | null {
  if (preview.rows.length === 0) return null;
  return (
    <div
      class="table-frame"
      tabIndex={0}
      role="region"
      aria-label="The first rows, as they would be stored"
    >
      <table class="table">
        <caption>The first rows, as they would be stored</caption>
        <thead>
          <tr>
            <th scope="col">Line</th>
            <th scope="col">Id</th>
            <th scope="col">Name</th>
            <th scope="col">Tag</th>
          </tr>
        </thead>
        <tbody>
          {preview.rows.map((row) =>
            row.fault === undefined ? (
              <tr key={row.line}>
                <td class="digits faint">{row.line}</td>
                <td class="row-id">{row.id}</td>
                <td>{row.name}</td>
                <td>
                  {row.tag !== undefined && (
                    <span class="tag">{row.tag === "" ? <i>empty</i> : row.tag}</span>
                  )}
                </td>
              </tr>
            ) : (
              <tr key={row.line}>
                <td class="digits faint">{row.line}</td>
                <td colSpan={3} class="field-fault">
                  {row.fault}
                </td>
              </tr>
            ),
          )}
        </tbody>
      </table>
    </div>
  );
}
