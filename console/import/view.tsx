/** Importing: choose, drop or paste a file, check how it is read, watch the progress, see what was refused. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { formatBytes, formatSeconds } from "../state/format.ts";
import { mayRead } from "../state/session.ts";
import { fill, plural, rich, t } from "../text/text.ts";
import { Button, Icon, Notice } from "../view/controls.tsx";
import { CheckFile, Figures, type NowProps, ProgressBar } from "./check.tsx";
import { RecentImports } from "./recent.tsx";
import { RefusedRows } from "./refused.tsx";
import { cancelImport, checkFile, chooseAnother, current, startImport } from "./state.ts";
import { UndoImport } from "./undo.tsx";

export function ImportView(): JSX.Element {
  const now = current.value;
  return (
    <div class="single">
      <h1>{t.shell.views.import}</h1>
      {now !== undefined && (
        <p class="wrap">
          <strong>{now.file.name}</strong> <span class="faint">{formatBytes(now.file.size)}</span>
        </p>
      )}
      {now?.batch !== undefined ? (
        <Course now={now} />
      ) : now?.reading !== undefined ? (
        <CheckFile now={now} reading={now.reading} />
      ) : (
        <>
          {now?.problem !== undefined && (
            <Notice kind="fault" title={t.imports.notImportable} text={now.problem} />
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
      <h2>{t.imports.drop}</h2>
      <p>{t.imports.kinds}</p>
      <input
        ref={input}
        class="visually-hidden"
        type="file"
        id="import-file"
        aria-label={t.imports.file}
        tabIndex={-1}
        accept=".xlsx,.csv,.tsv,.txt,.ndjson,.jsonl,.json,text/csv,application/json"
        onChange={(event) => {
          const [file] = event.currentTarget.files ?? [];
          if (file !== undefined) checkFile(file);
          event.currentTarget.value = "";
        }}
      />
      <Button kind="main" disabled={isReading} onClick={() => input.current?.click()}>
        {isReading ? t.imports.reading : t.imports.choose}
      </Button>
      <p>{rich(t.imports.safe, { lead: <strong>{t.imports.safeLead}</strong> })}</p>
    </div>
  );
}

function Course({ now }: NowProps): JSX.Element {
  const { ending, refused = 0, batch } = now;
  const { created = 0, updated = 0, removed = 0 } = now;
  return (
    <>
      {ending === undefined ? (
        <ProgressBar now={now} label={t.imports.import} />
      ) : (
        <EndNotice now={now} />
      )}
      <Figures now={now} />
      <div class="form-actions">
        {ending === undefined ? (
          <Button disabled={now.isEnding} onClick={cancelImport}>
            {t.shared.cancel}
          </Button>
        ) : (
          <>
            {ending !== "done" && (
              <Button kind="main" onClick={() => startImport(now)}>
                {t.imports.again}
              </Button>
            )}
            {mayRead.value && (
              <a class="button" href="#/plants">
                {t.imports.seePlants}
              </a>
            )}
            {mayRead.value && batch !== undefined && created + updated + removed > 0 && (
              <UndoImport batch={batch} />
            )}
            <Button onClick={chooseAnother}>{t.imports.another}</Button>
          </>
        )}
      </div>
      {refused > 0 && <RefusedRows now={now} />}
    </>
  );
}

function EndNotice({ now }: NowProps): JSX.Element {
  const { ending, failure, counted = 0, refused = 0, kept = 0, seconds = 0, isUnsure } = now;
  if (ending !== "done") {
    const title = ending === "failed" ? t.imports.stopped : t.imports.cancelled;
    const unsure = isUnsure === true ? [t.imports.unsure] : [];
    const text =
      failure === undefined
        ? [...unsure, t.imports.continueHint].join(" ")
        : fill(t.imports.stoppedBecause, { reason: failure });
    return <Notice kind="warning" title={title} text={text} />;
  }
  const time = formatSeconds(seconds);
  const differing = kept === 0 ? [] : [plural(t.imports.differ, kept)];
  if (refused === 0) {
    const text = [plural(t.imports.completeIn, counted, { time }), ...differing].join(" ");
    return <Notice kind="good" title={t.imports.complete} text={text} />;
  }
  const others = refused === counted ? t.imports.nothingStored : t.imports.othersStored;
  const sentences = [
    ...(kept === 0 ? [others] : differing),
    ...(now.isWhole && !now.removed ? [t.imports.nothingDeleted] : []),
    fill(t.imports.took, { time }),
  ];
  return (
    <Notice
      kind="warning"
      title={plural(t.imports.refusedOf, refused, { rows: plural(t.imports.rows, counted) })}
      text={sentences.join(" ")}
    />
  );
}
