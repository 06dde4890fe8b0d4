/** Importing: choose a file, check how it is read, watch the progress, see what was refused. */

import type { ComponentChildren, JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatBytes, formatCount, formatSeconds } from "../state/format.ts";
import { mayRead } from "../state/session.ts";
import { Button, Notice, Tag, Terms } from "../view/controls.tsx";
import { Drawing } from "../view/empty-states.tsx";
import { download } from "../view/export.tsx";
import { Field, fieldProps } from "../view/form.tsx";
import { listMissing, type Preview, type Progress, UNREADABLE } from "./messages.ts";
import {
  cancelImport,
  chooseAnother,
  chooseFile,
  current,
  type Ended,
  importProgress,
  type Mapping,
  readAs,
  type Running,
  startImport,
} from "./state.ts";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single">
      <h1>Import</h1>
      {(now.step === "choose" || now.step === "reading") && (
        <ChooseFile isReading={now.step === "reading"} />
      )}
      {now.step === "map" && <CheckFile now={now} />}
      {(now.step === "running" || now.step === "ended") && <Begun now={now} />}
    </div>
  );
}

const hints = [
  ["Columns", "The first row names them. You check which is which before anything is stored."],
  ["Tags", "An empty cell means no tag."],
  ["Safe to re-import", "Plants that are already stored are recognised. Nothing is overwritten."],
] as const;

function ChooseFile({ isReading }: { readonly isReading: boolean }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <div class="drop">
        <Drawing name="sheet" />
        <h2>Drop a file here</h2>
        <p>
          A spreadsheet saved as CSV or TSV, lines of JSON (NDJSON), or a JSON array. You can also
          paste copied rows.
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
      <Terms class="hints" of={hints} />
    </>
  );
}

/** What can be chosen about a file, and the values. */
const choices = {
  kind: {
    label: "Format",
    options: { csv: "Table (CSV, TSV)", ndjson: "Lines of JSON", json: "JSON array" },
  },
  encoding: {
    label: "Encoding",
    options: {
      "utf-8": "UTF-8",
      "utf-16le": "UTF-16",
      "utf-16be": "UTF-16, big-endian",
      "windows-1252": "Windows-1252",
    },
  },
  delimiter: {
    label: "Separator",
    options: { ",": "Comma", ";": "Semicolon", "\t": "Tab", "|": "Bar" },
  },
} as const;

const fields = { id: "Id", name: "Name", tag: "Tag" } as const;

const entriesOf = <Key extends string, Value>(
  of: Readonly<Record<Key, Value>>,
): readonly (readonly [Key, Value])[] => Object.entries(of) as [Key, Value][];

function CheckFile({ now }: { readonly now: Mapping }): JSX.Element {
  const { file, preview, isReading } = now;
  const { reading, columns, rows } = preview;
  const missing = listMissing(reading);
  return (
    <>
      <p class="import-file">
        <strong>{file.name}</strong> <span class="faint">{formatBytes(file.size)}</span>
      </p>
      <div class="mapping">
        {entriesOf(choices)
          .filter(([what]) => what !== "delimiter" || reading.kind === "csv")
          .map(([what, { label, options }]) => (
            <Choice
              key={what}
              id={`import-${what}`}
              label={label}
              value={reading[what]}
              options={entriesOf<string, string>(options)}
              onChange={(value) => readAs({ ...reading, [what]: value, headings: {} })}
            />
          ))}
      </div>
      {reading.kind === "csv" && columns.length > 0 && (
        <fieldset class="mapping">
          <legend>Columns</legend>
          {entriesOf(fields).map(([field, label]) => (
            <Choice
              key={field}
              id={`import-${field}`}
              label={label}
              value={reading.headings[field] ?? ""}
              isFaulty={missing.includes(field)}
              options={[
                ["", field === "tag" ? "No tags" : "Choose a column…"],
                ...columns.map((heading) => [heading, heading] as const),
              ]}
              onChange={(heading) => {
                const none = field === "tag" ? null : undefined;
                const headings = { ...reading.headings, [field]: heading || none };
                readAs({ ...reading, headings });
              }}
            />
          ))}
        </fieldset>
      )}
      {!isReading && <PreviewNotice preview={preview} />}
      {rows.length > 0 && (
        <Table
          label="Preview"
          caption="The first rows, as they will be stored"
          head={["Line", "Id", "Name", "Tag"]}
        >
          {rows.map(({ line, plant }) => (
            <tr key={line}>
              <td class="digits faint">{line}</td>
              {typeof plant === "string" ? (
                <td colSpan={3} class="field-fault">
                  {plant}
                </td>
              ) : (
                <>
                  <td class="row-id">{String(plant.id)}</td>
                  <td>{plant.name}</td>
                  <td>
                    <Tag tag={plant.tag} />
                  </td>
                </>
              )}
            </tr>
          ))}
        </Table>
      )}
      <div class="form-actions">
        <Button
          kind="main"
          isDisabled={isReading || rows.length === 0}
          onClick={() => startImport(file, reading)}
        >
          Start import
        </Button>
        <Button onClick={chooseAnother}>Another file</Button>
      </div>
    </>
  );
}

function PreviewNotice({ preview }: { readonly preview: Preview }): JSX.Element | null {
  const { reading, problem, rows } = preview;
  if (problem === UNREADABLE)
    return (
      <Notice kind="fault" title={UNREADABLE} text="Choose it again, or choose another file." />
    );
  if (problem !== undefined)
    return <Notice kind="fault" title="The file can't be read this way" text={problem} />;
  return (
    <>
      {reading.encoding !== "utf-8" && (
        <Notice
          kind="warning"
          title={`Read as ${choices.encoding.options[reading.encoding]}`}
          text="The file is not in UTF-8. Check that the names below look right before you start."
        />
      )}
      {rows.length === 0 && listMissing(reading).length === 0 && (
        <Notice kind="warning" title="There are no rows in this file" />
      )}
    </>
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
  const fault = isFaulty === true ? "Which column is it?" : undefined;
  return (
    <Field id={id} label={label} fault={fault}>
      <select
        {...fieldProps(id, fault)}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {options.map(([each, text]) => (
          <option key={each} value={each} selected={each === value}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

interface TableProps {
  readonly label: string;
  readonly caption?: string;
  readonly head: readonly string[];
  readonly children: ComponentChildren;
}

const Table = ({ label, caption, head, children }: TableProps): JSX.Element => (
  <div class="table-frame" tabIndex={0} role="region" aria-label={label}>
    <table class="table">
      {caption !== undefined && <caption>{caption}</caption>}
      <thead>
        <tr>
          {head.map((text) => (
            <th key={text} scope="col">
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  </div>
);

function Begun({ now }: { readonly now: Running | Ended }): JSX.Element {
  const { file, progress } = now;
  return (
    <>
      <p class="import-file">
        <strong>{file.name}</strong>
      </p>
      {now.step === "running" ? <ProgressBar now={now} /> : <EndNotice now={now} />}
      <Terms
        class="figures"
        of={[
          ["Added", formatCount(progress.created)],
          ["Already there", formatCount(progress.replayed)],
          ["Refused", formatCount(progress.refused)],
        ]}
      />
      <div class="form-actions">
        {now.step === "running" ? (
          <Button isDisabled={now.isCancelling} onClick={cancelImport}>
            {now.isCancelling ? "Cancelling…" : "Cancel"}
          </Button>
        ) : (
          <>
            {now.ending.kind !== "done" && (
              <Button kind="main" onClick={() => startImport(file, now.reading)}>
                Import again
              </Button>
            )}
            {mayRead.value && (
              <a class="button" href="#/plants">
                See the plants
              </a>
            )}
            <Button onClick={chooseAnother}>Another file</Button>
          </>
        )}
      </div>
      {progress.firstRefused.length > 0 && <RefusedRows now={now} />}
    </>
  );
}

const countRows = ({ created, replayed, refused }: Progress): number =>
  created + replayed + refused;

function ProgressBar({ now: { file, progress } }: { readonly now: Running }): JSX.Element {
  const share = importProgress.value ?? 0;
  const { bytesDone, seconds } = progress;
  const rate = seconds > 0 ? Math.round(countRows(progress) / seconds) : 0;
  const left = bytesDone > 0 ? ((file.size - bytesDone) * seconds) / bytesDone : undefined;
  return (
    <div class="progress">
      <progress aria-label="Import" value={share} max={1} />
      <p class="progress-text">
        <strong class="tabular">{Math.floor(share * 100)} %</strong>
        {progress.isWaiting ? (
          <span class="progress-waiting">
            The store does not answer. Trying again; nothing is lost.
          </span>
        ) : (
          <span class="tabular">
            {formatCount(rate, "row")} per second
            {left !== undefined && `, ${formatSeconds(left)} left`}
          </span>
        )}
      </p>
    </div>
  );
}

const titles = {
  cancelled: "Import cancelled",
  token: "The token is no longer accepted",
  failed: "The import stopped",
} as const;

function EndNotice({ now: { ending, progress } }: { readonly now: Ended }): JSX.Element {
  if (ending.kind !== "done") {
    const text =
      ending.kind === "failed"
        ? `${ending.message} The rows before it are stored.`
        : "Import the file again to continue. Plants that are already stored are recognised.";
    return <Notice kind="warning" title={titles[ending.kind]} text={text} />;
  }
  const rows = formatCount(countRows(progress), "row");
  const took = formatSeconds(progress.seconds);
  if (progress.refused === 0)
    return <Notice kind="good" title="Import complete" text={`${rows} in ${took}.`} />;
  const verb = progress.refused === 1 ? "was" : "were";
  const title = `${formatCount(progress.refused)} of ${rows} ${verb} refused`;
  return <Notice kind="warning" title={title} text={`All others are stored. It took ${took}.`} />;
}

function RefusedRows({ now }: { readonly now: Running | Ended }): JSX.Element {
  const { firstRefused, refused } = now.progress;
  const all = now.step === "ended" ? now.refused : undefined;
  return (
    <div class="refused">
      <div class="section-head">
        <h2>Refused rows</h2>
        {all !== undefined && (
          <Button kind="small" onClick={() => download(all, `refused.${now.reading.kind}`)}>
            Download all {formatCount(refused)}
          </Button>
        )}
      </div>
      <Table label="Refused rows" head={["Line", "Reason", "Row"]}>
        {firstRefused.map(({ line, reason, text }) => (
          <tr key={line}>
            <td class="digits">{line}</td>
            <td>{reason}</td>
            <td class="digits faint cut">{text}</td>
          </tr>
        ))}
      </Table>
      {refused > firstRefused.length && (
        <p class="faint">Only the first {formatCount(firstRefused.length)} are shown.</p>
      )}
    </div>
  );
}
