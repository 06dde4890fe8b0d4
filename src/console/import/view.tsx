/** Importing: choose, drop or paste a file, check how it is read, watch the progress, see what was refused. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatCount, formatSeconds } from "../state/format.ts";
import { route } from "../state/route.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import { Button, Icon, Notice, Table, Terms } from "../view/controls.tsx";
import { download } from "../view/export.tsx";
import { isTyping } from "../view/shortcuts.tsx";
import { CheckFile } from "./check.tsx";
import type { Ending, Progress, Reading, Task } from "./messages.ts";
import {
  cancelImport,
  checkFile,
  chooseAnother,
  current,
  importProgress,
  startImport,
} from "./state.ts";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single">
      <h1>Import</h1>
      {now?.progress !== undefined ? (
        <Course task={now.task} progress={now.progress} ending={now.ending} />
      ) : now?.preview !== undefined ? (
        <CheckFile now={now} preview={now.preview} />
      ) : (
        <ChooseFile isReading={now !== undefined} />
      )}
    </div>
  );
}

function ChooseFile({ isReading }: { readonly isReading: boolean }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <div class="drop blank">
      <Icon name="import" />
      <h2>Drop a file here</h2>
      <p>
        An Excel workbook, CSV or TSV, lines of JSON (NDJSON), or a JSON array. You can also paste
        copied rows.
      </p>
      <input
        ref={input}
        class="visually-hidden"
        type="file"
        id="import-file"
        aria-label="File to import"
        tabIndex={-1}
        accept=".xlsx,.csv,.tsv,.txt,.ndjson,.jsonl,.json,text/csv,application/json"
        onChange={(event) => {
          const [file] = event.currentTarget.files ?? [];
          if (file !== undefined) checkFile(file);
          event.currentTarget.value = "";
        }}
      />
      <Button kind="main" disabled={isReading} onClick={() => input.current?.click()}>
        {isReading ? "Reading…" : "Choose a file"}
      </Button>
      <p>
        <strong>Safe to re-import.</strong> Plants that are already stored are recognised. Nothing
        is overwritten unless you say so.
      </p>
    </div>
  );
}

interface CourseProps {
  readonly task: Task;
  readonly progress: Progress;
  readonly ending: Ending | undefined;
}

function Course({ task, progress, ending }: CourseProps): JSX.Element {
  const { file, reading, updates = [] } = task;
  return (
    <>
      <p class="wrap">
        <strong>{file.name}</strong>
      </p>
      {ending === undefined ? (
        <ProgressBar progress={progress} />
      ) : (
        <EndNotice ending={ending} progress={progress} />
      )}
      <Terms
        class="figures"
        of={[
          ["Added", formatCount(progress.created)],
          ...(updates.length === 0 ? [] : [["Updated", formatCount(progress.updated)] as const]),
          ["Already there", formatCount(progress.replayed)],
          ["Refused", formatCount(progress.refused)],
        ]}
      />
      <div class="form-actions">
        {ending === undefined ? (
          <Button onClick={cancelImport}>Cancel</Button>
        ) : (
          <>
            {ending.kind !== "done" && reading !== undefined && (
              <Button kind="main" onClick={() => startImport(file, reading, updates)}>
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
      {progress.refused > 0 && <RefusedRows progress={progress} kind={reading?.kind} />}
    </>
  );
}

const countRows = ({ created, updated, replayed, refused }: Progress): number =>
  created + updated + replayed + refused;

function ProgressBar({ progress }: { readonly progress: Progress }): JSX.Element {
  const { done, seconds, isWaiting } = progress;
  const rate = seconds > 0 ? Math.round(countRows(progress) / seconds) : 0;
  return (
    <div class="stack">
      <progress aria-label="Import" value={done} max={1} />
      <p class="section-head">
        <strong>{Math.floor(done * 100)} %</strong>
        {isWaiting ? (
          <span class="field-note">The store does not answer. Trying again; nothing is lost.</span>
        ) : (
          <span>
            {formatCount(rate, "row")} per second
            {done > 0 && `, ${formatSeconds((seconds * (1 - done)) / done)} left`}
          </span>
        )}
      </p>
    </div>
  );
}

const titles = {
  cancelled: "Import cancelled",
  failed: "The import stopped",
  expired: "The token has expired",
  refused: "The token is no longer accepted",
} as const;

interface EndNoticeProps {
  readonly ending: Ending;
  readonly progress: Progress;
}

function EndNotice({ ending, progress }: EndNoticeProps): JSX.Element {
  if (ending.kind !== "done") {
    const text =
      ending.message === undefined
        ? "Import the file again to continue. Plants that are already stored are recognised."
        : `${ending.message} The rows before it are stored.`;
    return <Notice kind="warning" title={titles[ending.kind]} text={text} />;
  }
  const rows = formatCount(countRows(progress), "row");
  const took = formatSeconds(progress.seconds);
  if (progress.refused === 0)
    return <Notice kind="good" title="Import complete" text={`${rows} in ${took}.`} />;
  const isNone = progress.refused === countRows(progress);
  const title = `${formatCount(progress.refused)} of ${rows} ${progress.refused === 1 ? "was" : "were"} refused`;
  const text = `${isNone ? "Nothing was" : "All others are"} stored. It took ${took}.`;
  return <Notice kind="warning" title={title} text={text} />;
}

interface RefusedRowsProps {
  readonly progress: Progress;
  readonly kind: Reading["kind"] | undefined;
}

function RefusedRows({ progress, kind = "csv" }: RefusedRowsProps): JSX.Element {
  const { firstRefused, refused, rejects } = progress;
  return (
    <div class="stack refused">
      <div class="section-head">
        <h2>Refused rows</h2>
        <Button
          kind="small"
          onClick={() => download(rejects, `refused.${kind === "xlsx" ? "csv" : kind}`)}
        >
          Download all {formatCount(refused)}
        </Button>
      </div>
      <Table
        label="Refused rows"
        heads={[kind === "xlsx" ? "Row" : "Line", "Reason", "Content"]}
        rows={firstRefused.map(({ line, reason, text }) => [
          <span class="digits">{line}</span>,
          reason,
          <span class="digits faint cut">{text}</span>,
        ])}
      />
      {refused > firstRefused.length && (
        <p class="faint">Only the first {formatCount(firstRefused.length)} are shown.</p>
      )}
    </div>
  );
}

/** A running import is not replaced. Other views may show a secret that is shown once. */
const canTake = (): boolean =>
  mayWrite.value &&
  ["plants", "import"].includes(route.value.view) &&
  importProgress.value === undefined;

function take(file: File | undefined): void {
  if (file === undefined || !canTake()) return;
  checkFile(file);
  location.hash = "#/import";
  announce(`Reading ${file.name}.`);
}

for (const type of ["dragover", "drop"] as const)
  document.addEventListener(type, (event) => {
    const { dataTransfer } = event;
    if (dataTransfer?.types.includes("Files") !== true) return;
    // Without this the browser would leave the page and open the file.
    event.preventDefault();
    dataTransfer.dropEffect = canTake() ? "copy" : "none";
    if (type === "drop") take(dataTransfer.files[0]);
  });
document.addEventListener("paste", (event) => {
  if (isTyping(event.target) || !canTake()) return;
  const [file] = event.clipboardData?.files ?? [];
  const text = event.clipboardData?.getData("text") ?? "";
  // A single value is not a row.
  const isRows = /[\t\n]|^[[{]/.test(text.trim());
  if (file === undefined && !isRows) return;
  event.preventDefault();
  take(file ?? new File([text], "Pasted rows"));
});
