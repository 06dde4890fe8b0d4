/** Importing: choose a file, check how it is read, watch the progress, see what was refused. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { PlantField } from "../../format/csv.ts";
import type { Encoding } from "../../format/encoding.ts";
import { formatBytes } from "../state/format.ts";
import { Button, Notice, Tag } from "../view/controls.tsx";
import { Drawing } from "../view/empty-states.tsx";
import { type FileKind, type Mapping, type Preview, UNREADABLE } from "./messages.ts";
import { ImportProgress } from "./progress.tsx";
import { chooseAnother, chooseFile, current, mapColumns, readAs, startImport } from "./state.ts";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single">
      <h1>Import</h1>
      {(now.step === "choose" || now.step === "reading") && (
        <ImportChoose isReading={now.step === "reading"} />
      )}
      {now.step === "map" && <ImportMap file={now.file} preview={now.preview} />}
      {(now.step === "running" || now.step === "ended") && <ImportProgress now={now} />}
    </div>
  );
}

const hints = [
  ["Columns", "The first row names them. You check which is which before anything is stored."],
  ["Tags", "An empty cell means no tag."],
  ["Safe to re-import", "Plants that are already stored are recognised. Nothing is overwritten."],
] as const;

function ImportChoose({ isReading }: { readonly isReading: boolean }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <div class="drop">
        <Drawing name="sheet" />
        <h2>Drop a file here</h2>
        <p>
          A spreadsheet saved as CSV or TSV, lines of JSON (NDJSON), or a JSON array. Copied rows
          can be pasted here.
        </p>
        <input
          ref={input}
          class="visually-hidden"
          type="file"
          id="import-file"
          aria-label="File to import"
          tabIndex={-1}
          accept=".csv,.tsv,.txt,.ndjson,.jsonl,.json,text/csv,application/json"
          onChange={(event) => {
            const [file] = event.currentTarget.files ?? [];
            if (file !== undefined) chooseFile(file);
            event.currentTarget.value = "";
          }}
        />
        <Button kind="main" isDisabled={isReading} onClick={() => input.current?.click()}>
          {isReading ? "Reading…" : "Choose a file"}
        </Button>
      </div>
      <dl class="hints">
        {hints.map(([title, text]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

const kinds: Readonly<Record<FileKind, string>> = {
  csv: "Table (CSV, TSV)",
  ndjson: "Lines of JSON",
  json: "JSON array",
};
const encodings: Readonly<Record<Encoding, string>> = {
  "utf-8": "UTF-8",
  "utf-16le": "UTF-16",
  "utf-16be": "UTF-16, big-endian",
  "windows-1252": "Windows-1252",
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

function ImportMap({ file, preview }: ImportMapProps): JSX.Element {
  const { reading, problem, missing, rows } = preview;
  const isReadable = problem === undefined && missing.length === 0;
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
        <Choice
          id="import-encoding"
          label="Encoding"
          value={reading.encoding}
          options={Object.entries(encodings)}
          onChange={(encoding) =>
            readAs({ ...reading, encoding: encoding as Encoding, mapping: undefined })
          }
        />
        {reading.kind === "csv" && (
          <Choice
            id="import-delimiter"
            label="Separator"
            value={reading.delimiter}
            options={Object.entries(delimiters)}
            onChange={(delimiter) => readAs({ ...reading, delimiter, mapping: undefined })}
          />
        )}
      </div>
      {reading.kind === "csv" && preview.headings.length > 0 && <Columns preview={preview} />}
      {problem === undefined && reading.encoding !== "utf-8" && (
        <Notice kind="warning" title={`Read as ${encodings[reading.encoding]}`}>
          <p>The file is not in UTF-8. Check that the names below look right before you start.</p>
        </Notice>
      )}
      {problem === UNREADABLE && (
        <Notice kind="fault" title={UNREADABLE}>
          <p>Choose it again, or choose another file.</p>
        </Notice>
      )}
      {problem !== undefined && problem !== UNREADABLE && (
        <Notice kind="fault" title="The file can't be read this way">
          <p>{problem}</p>
        </Notice>
      )}
      {isReadable && rows.length === 0 && (
        <Notice kind="warning" title="There are no rows in this file" />
      )}
      {rows.length > 0 && <FirstRows rows={rows} />}
      <div class="form-actions">
        <Button
          kind="main"
          isDisabled={!isReadable || rows.length === 0}
          onClick={() => startImport(file, reading)}
        >
          Start import
        </Button>
        <Button onClick={chooseAnother}>Another file</Button>
      </div>
    </>
  );
}

const NO_COLUMN = "";
/** Written out here: importing the values would load the CSV library, which only the worker needs. */
const fields: readonly (readonly [PlantField, string])[] = [
  ["id", "Id"],
  ["name", "Name"],
  ["tag", "Tag"],
];

const nothing: Mapping = { id: undefined, name: undefined, tag: undefined };

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

function FirstRows({ rows }: { readonly rows: Preview["rows"] }): JSX.Element {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Preview">
      <table class="table">
        <caption>The first rows, as they will be stored</caption>
        <thead>
          <tr>
            <th scope="col">Line</th>
            <th scope="col">Id</th>
            <th scope="col">Name</th>
            <th scope="col">Tag</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ line, id, name, tag, fault }) => (
            <tr key={line}>
              <td class="digits faint">{line}</td>
              {fault === undefined ? (
                <>
                  <td class="row-id">{id}</td>
                  <td>{name}</td>
                  <td>
                    <Tag tag={tag} />
                  </td>
                </>
              ) : (
                <td colSpan={3} class="field-fault">
                  {fault}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
