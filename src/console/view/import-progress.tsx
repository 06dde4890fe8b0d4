/** An import that runs, or has ended: how far, how fast, and what was refused. */

import type { JSX } from "preact";
import { download } from "../state/export.ts";
import {
  cancelImport,
  chooseAnother,
  type Import,
  importProgress,
  startImport,
} from "../state/import.ts";
import { formatCount, formatSeconds } from "../state/numbers.ts";
import { mayRead } from "../state/session.ts";
import type { Ending, Progress } from "../worker/messages.ts";
import { Notice } from "./notice.tsx";

type Now = Extract<Import, { readonly step: "running" | "ended" }>;

export function ImportProgress({ now }: { readonly now: Now }): JSX.Element {
  const { file, progress } = now;
  return (
    <>
      <p class="import-file">
        <strong>{file.name}</strong>
      </p>
      {now.step === "running" ? (
        <Running progress={progress} size={file.size} />
      ) : (
        <Ended now={now} />
      )}
      <Figures progress={progress} />
      {now.step === "running" ? (
        <div class="form-actions">
          <button type="button" class="button" onClick={cancelImport}>
            Cancel
          </button>
        </div>
      ) : (
        <div class="form-actions">
          {now.ending.kind !== "done" && (
            <button
              type="button"
              class="button button-main"
              onClick={() => startImport(file, now.reading)}
            >
              Import it again
            </button>
          )}
          {mayRead.value && (
            <a class="button" href="#/plants">
              See the plants
            </a>
          )}
          <button type="button" class="button" onClick={chooseAnother}>
            Another file
          </button>
        </div>
      )}
      <RefusedTable now={now} />
    </>
  );
}

const nameRows = (count: number): string => (count === 1 ? "row" : "rows");

function Running({
  progress,
  size,
}: {
  readonly progress: Progress;
  readonly size: number;
}): JSX.Element {
  const share = importProgress.value ?? 0;
  const rows = progress.created + progress.replayed + progress.refused;
  const rate = progress.seconds > 0 ? Math.round(rows / progress.seconds) : 0;
  const remaining =
    progress.bytesDone > 0
      ? ((size - progress.bytesDone) * progress.seconds) / progress.bytesDone
      : undefined;
  return (
    <div class="progress">
      <progress aria-label="Import" value={share} max={1} />
      <p class="progress-text">
        <strong class="tabular">{Math.floor(share * 100)} %</strong>
        {progress.isHeldUp ? (
          <span class="progress-held">
            The store does not answer. Trying again; nothing is lost.
          </span>
        ) : (
          <span>
            <span class="tabular">{formatCount(rate)}</span> {nameRows(rate)} a second
            {remaining !== undefined && <>, {formatSeconds(remaining)} left</>}
          </span>
        )}
      </p>
    </div>
  );
}

function Ended({ now }: { readonly now: Extract<Now, { readonly step: "ended" }> }): JSX.Element {
  const { ending, progress } = now;
  if (ending.kind !== "done")
    return (
      <Notice kind="warning" title={endings[ending.kind]}>
        <p>{explainEnding(ending)}</p>
      </Notice>
    );
  const rows = progress.created + progress.replayed + progress.refused;
  const took = formatSeconds(progress.seconds);
  return progress.refused === 0 ? (
    <Notice kind="good" title="Everything is stored">
      <p>
        {formatCount(rows)} {nameRows(rows)} in {took}.
      </p>
    </Notice>
  ) : (
    <Notice
      kind="warning"
      title={`${formatCount(progress.refused)} of ${formatCount(rows)} ${nameRows(rows)} ${progress.refused === 1 ? "was" : "were"} refused`}
    >
      <p>Everything else is stored. It took {took}.</p>
    </Notice>
  );
}

const endings = {
  cancelled: "The import was cancelled",
  token: "The token is no longer accepted",
  failed: "The import broke off",
} as const;

const AGAIN = "Import the file again to go on: what is stored already is recognised.";

function explainEnding(ending: Ending): string {
  return ending.kind === "failed" ? `${ending.message} What came before it is stored.` : AGAIN;
}

function Figures({ progress }: { readonly progress: Progress }): JSX.Element {
  const figures = [
    ["Added", progress.created],
    ["Already there", progress.replayed],
    ["Refused", progress.refused],
  ] as const;
  return (
    <dl class="figures">
      {figures.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{formatCount(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

function RefusedTable({ now }: { readonly now: Now }): JSX.Element | null {
  const { firstRefused, refused } = now.progress;
  const all = now.step === "ended" ? now.refused : undefined;
  if (firstRefused.length === 0) return null;
  return (
    <div class="refused">
      <div class="section-head">
        <h2>Refused rows</h2>
        {all !== undefined && (
          <button
            type="button"
            class="button button-small"
            onClick={() => download(all, "refused.csv")}
          >
            Download all {formatCount(refused)}
          </button>
        )}
      </div>
      <div class="table-frame table-tall" tabIndex={0} role="region" aria-label="Refused rows">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Line</th>
              <th scope="col">Reason</th>
              <th scope="col">Row</th>
            </tr>
          </thead>
          <tbody>
            {firstRefused.map((each) => (
              <tr key={each.line}>
                <td class="digits">{each.line}</td>
                <td>{each.reason}</td>
                <td class="digits faint cut">{each.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {refused > firstRefused.length && (
        <p class="faint">The first {formatCount(firstRefused.length)} are shown.</p>
      )}
    </div>
  );
}
