/** Importing: choose, drop or paste a file, check how it is read, watch the progress, see what was refused. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatBytes, formatCount, formatSeconds } from "../state/format.ts";
import { route } from "../state/route.ts";
import { mayRead, mayWrite } from "../state/session.ts";
import { announce } from "../state/toasts.ts";
import { Button, Icon, Notice } from "../view/controls.tsx";
import { isTyping } from "../view/shortcuts.tsx";
import { CheckFile, Figures, type NowProps } from "./check.tsx";
import { RecentImports } from "./recent.tsx";
import { RefusedRows } from "./refused.tsx";
import {
  cancelImport,
  checkFile,
  chooseAnother,
  current,
  isImporting,
  startImport,
} from "./state.ts";
import { UndoImport } from "./undo.tsx";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single">
      <h1>Import</h1>
      {now !== undefined && (
        <p class="wrap">
          <strong>{now.file.name}</strong> <span class="faint">{formatBytes(now.file.size)}</span>
        </p>
      )}
      {now?.updates !== undefined ? (
        <Course now={now} />
      ) : now?.reading !== undefined ? (
        <CheckFile now={now} reading={now.reading} />
      ) : (
        <>
          {now?.problem !== undefined && (
            <Notice kind="fault" title="The file can't be imported" text={now.problem} />
          )}
          <ChooseFile isReading={now?.isReading === true} />
          {mayRead.value && <RecentImports />}
        </>
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

function Course({ now }: NowProps): JSX.Element {
  const { updates = [], ending, refused = 0, batch } = now;
  const { created = 0, updated = 0, removed = 0 } = now;
  return (
    <>
      {ending === undefined ? <ProgressBar now={now} /> : <EndNotice now={now} />}
      <Figures now={now} />
      <div class="form-actions">
        {ending === undefined ? (
          <Button disabled={now.isEnding} onClick={cancelImport}>
            Cancel
          </Button>
        ) : (
          <>
            {ending !== "done" && (
              <Button kind="main" onClick={() => startImport(now, updates)}>
                Import again
              </Button>
            )}
            {mayRead.value && (
              <a class="button" href="#/plants">
                See the plants
              </a>
            )}
            {mayRead.value && batch !== undefined && created + updated + removed > 0 && (
              <UndoImport batch={batch} />
            )}
            <Button onClick={chooseAnother}>Another file</Button>
          </>
        )}
      </div>
      {refused > 0 && <RefusedRows now={now} />}
    </>
  );
}

function ProgressBar({ now }: NowProps): JSX.Element {
  const { counted = 0, done = 0, seconds = 0, isWaiting, isEnding } = now;
  const rate = seconds > 0 ? Math.round(counted / seconds) : 0;
  return (
    <div class="stack">
      <progress aria-label="Import" value={done} max={1} />
      <p class="section-head">
        <strong>{Math.floor(done * 100)} %</strong>
        {isEnding === true ? (
          <span>Cancelling. The rows that were sent are still stored.</span>
        ) : isWaiting === true ? (
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

function EndNotice({ now }: NowProps): JSX.Element {
  const { ending, failure, counted = 0, refused = 0, kept = 0, seconds = 0, isUnsure } = now;
  if (ending !== "done") {
    const title = ending === "failed" ? "The import stopped" : "Import cancelled";
    const unsure = "The store did not answer for the last rows: more plants may be stored. ";
    const text =
      failure === undefined
        ? `${isUnsure === true ? unsure : ""}Import the file again to continue. Plants that are already stored are recognised.`
        : `${failure} The rows before it are stored.`;
    return <Notice kind="warning" title={title} text={text} />;
  }
  const rows = formatCount(counted, "row");
  const took = formatSeconds(seconds);
  const differing =
    kept === 0
      ? ""
      : ` ${formatCount(kept)} ${kept === 1 ? "differs" : "differ"} from the store, and ${kept === 1 ? "was" : "were"} not stored.`;
  if (refused === 0)
    return <Notice kind="good" title="Import complete" text={`${rows} in ${took}.${differing}`} />;
  const title = `${formatCount(refused)} of ${rows} ${refused === 1 ? "was" : "were"} refused`;
  const others = refused === counted ? "Nothing was stored." : "All others are stored.";
  const removal = now.isWhole && !now.removed ? " Nothing was deleted." : "";
  const text = `${kept === 0 ? others : differing.trim()}${removal} It took ${took}.`;
  return <Notice kind="warning" title={title} text={text} />;
}

/** A file does not replace a running import, nor a view that may show a one-time secret. */
const canTake = (): boolean =>
  mayWrite.value && ["plants", "import"].includes(route.value.view) && !isImporting.value;

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
    // By default the browser leaves the page and opens the file.
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
