/** An import that is running or has ended: how far, how fast, and which rows were refused. */

import type { JSX } from "preact";
import { formatCount, formatSeconds } from "../state/format.ts";
import { mayRead } from "../state/session.ts";
import { Button, Notice } from "../view/controls.tsx";
import { download } from "../view/export.tsx";
import type { Ending, Progress } from "./messages.ts";
import { cancelImport, chooseAnother, type Import, importProgress, startImport } from "./state.ts";

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
      <RefusedTable now={now} />
    </>
  );
}

const rowsOf = ({ created, replayed, refused }: Progress): number => created + replayed + refused;

interface RunningProps {
  readonly progress: Progress;
  readonly size: number;
}

function Running({ progress, size }: RunningProps): JSX.Element {
  const share = importProgress.value ?? 0;
  const { bytesDone, seconds } = progress;
  const rate = seconds > 0 ? Math.round(rowsOf(progress) / seconds) : 0;
  const left = bytesDone > 0 ? ((size - bytesDone) * seconds) / bytesDone : undefined;
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

const AGAIN = "Import the file again to continue. Plants that are already stored are recognised.";

const titles = {
  cancelled: "Import cancelled",
  token: "The token is no longer accepted",
  failed: "The import stopped",
} as const;

const explainEnding = (ending: Ending): string =>
  ending.kind === "failed" ? `${ending.message} The rows before it are stored.` : AGAIN;

function Ended({ now }: { readonly now: Extract<Now, { readonly step: "ended" }> }): JSX.Element {
  const { ending, progress } = now;
  if (ending.kind !== "done")
    return (
      <Notice kind="warning" title={titles[ending.kind]}>
        <p>{explainEnding(ending)}</p>
      </Notice>
    );
  const rows = formatCount(rowsOf(progress), "row");
  const took = formatSeconds(progress.seconds);
  if (progress.refused === 0)
    return (
      <Notice kind="good" title="Import complete">
        <p>
          {rows} in {took}.
        </p>
      </Notice>
    );
  const verb = progress.refused === 1 ? "was" : "were";
  return (
    <Notice kind="warning" title={`${formatCount(progress.refused)} of ${rows} ${verb} refused`}>
      <p>All others are stored. It took {took}.</p>
    </Notice>
  );
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
          <Button kind="small" onClick={() => download(all, `refused.${now.reading.kind}`)}>
            Download all {formatCount(refused)}
          </Button>
        )}
      </div>
      <div class="table-frame" tabIndex={0} role="region" aria-label="Refused rows">
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
        <p class="faint">Only the first {formatCount(firstRefused.length)} are shown.</p>
      )}
    </div>
  );
}
