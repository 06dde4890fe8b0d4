/** Importing: choose, drop or paste a file, check how it is read, watch the progress, see what was refused. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatCount, formatSeconds } from "../state/format.ts";
import { route } from "../state/route.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import { Button, Notice, Table, Terms } from "../view/controls.tsx";
import { Drawing } from "../view/empty-states.tsx";
import { download } from "../view/export.tsx";
import { isTyping } from "../view/shortcuts.tsx";
import { CheckFile } from "./check.tsx";
import type { Begun, Ending, Progress } from "./messages.ts";
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
      {now.step === "begun" ? (
        <Course now={now} />
      ) : now.step === "check" && now.preview !== undefined ? (
        <CheckFile now={now} preview={now.preview} />
      ) : (
        <ChooseFile isReading={now.step === "check"} />
      )}
    </div>
  );
}

const hints = [
  ["Columns", "You check which is which before anything is stored."],
  ["Tags", "An empty cell means no tag."],
  [
    "Safe to re-import",
    "Plants that are already stored are recognised. Nothing is overwritten unless you say so.",
  ],
] as const;

function ChooseFile({ isReading }: { readonly isReading: boolean }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <div class="drop">
        <Drawing name="sheet" />
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
      </div>
      <Terms class="hints" of={hints} />
    </>
  );
}

function Course({ now }: { readonly now: Begun }): JSX.Element {
  const { file, progress, ending } = now;
  return (
    <>
      <p class="import-file">
        <strong>{file.name}</strong>
      </p>
      {ending === undefined ? (
        <ProgressBar now={now} />
      ) : (
        <EndNotice ending={ending} progress={progress} />
      )}
      <Terms
        class="figures"
        of={[
          ["Added", formatCount(progress.created)],
          ...(now.updates.length === 0
            ? []
            : [["Updated", formatCount(progress.updated)] as const]),
          ["Already there", formatCount(progress.replayed)],
          ["Refused", formatCount(progress.refused)],
        ]}
      />
      <div class="form-actions">
        {ending === undefined ? (
          <Button disabled={now.isCancelling} onClick={cancelImport}>
            {now.isCancelling ? "Cancelling…" : "Cancel"}
          </Button>
        ) : (
          <>
            {ending.kind !== "done" && (
              <Button kind="main" onClick={() => startImport(file, now.reading, now.updates)}>
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

const countRows = ({ created, updated, replayed, refused }: Progress): number =>
  created + updated + replayed + refused;

function ProgressBar({ now: { file, progress } }: { readonly now: Begun }): JSX.Element {
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

interface EndNoticeProps {
  readonly ending: Ending;
  readonly progress: Progress;
}

function EndNotice({ ending, progress }: EndNoticeProps): JSX.Element {
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

function RefusedRows({ now }: { readonly now: Begun }): JSX.Element {
  const { firstRefused, refused } = now.progress;
  const {
    refused: all,
    reading: { kind },
  } = now;
  return (
    <div class="refused">
      <div class="section-head">
        <h2>Refused rows</h2>
        {all !== undefined && (
          <Button
            kind="small"
            onClick={() => download(all, `refused.${kind === "xlsx" ? "csv" : kind}`)}
          >
            Download all {formatCount(refused)}
          </Button>
        )}
      </div>
      <Table
        label="Refused rows"
        heads={[kind === "xlsx" ? "Row" : "Line", "Reason", "Content"]}
        rows={firstRefused.map(({ line, reason, text }) => [
          line,
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

/** A running import is not replaced. */
const canTake = (): boolean =>
  mayWrite.value && route.value.view !== "activity" && importProgress.value === undefined;

function take(file: File | undefined): void {
  if (file === undefined || !canTake()) return;
  checkFile(file);
  location.hash = "#/import";
  announce(`Reading ${file.name}.`);
}

const isOver = signal(false);

export const DropTarget = (): JSX.Element | null =>
  isOver.value ? <div class="drop-over">Drop the file to import it</div> : null;

const hasFiles = (event: DragEvent): boolean =>
  event.dataTransfer?.types.includes("Files") ?? false;

document.addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  // Without this the browser would leave the page and open the file.
  event.preventDefault();
  isOver.value = canTake();
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) isOver.value = false;
});
document.addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  isOver.value = false;
  take(event.dataTransfer?.files[0]);
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
