/** The last imports of anyone, by this page, the command line or a program: what each did, and its undo. */

import type { JSX } from "preact";
import { nameOfBatch } from "../../src/domain/change.ts";
import { countChanges } from "../api/changes.ts";
import { arrived, gaps } from "../state/feed.ts";
import { formatTime } from "../state/format.ts";
import { linkToChanges } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { askUndo, isImport, isUndone } from "../state/undo.ts";
import { t } from "../text/text.ts";
import { Button, Table } from "../view/controls.tsx";
import { describeCounts } from "../view/history.tsx";
import { useRead } from "../view/read.ts";

const SHOWN_MAX = 10;
/** Each takes the service a second at most. The newest imports are on the first. */
const PAGES_MAX = 3;

export function RecentImports(): JSX.Element | null {
  // An import sends many changes: it is counted again when a new batch begins, or an undo.
  const last = arrived.value.findLast(({ batch }) => batch !== undefined)?.batch;
  // Without a journal there is nothing to undo.
  const { answer: counts = [] } = useRead(
    (ended) => countChanges({ group: ["by", "batch"] }, ended, PAGES_MAX),
    [gaps.value, last],
  );
  const batches = new Set(counts.map(({ batch }) => batch));
  const imports = counts
    .filter(({ batch }) => batch !== undefined && isImport(batch))
    .slice(0, SHOWN_MAX);
  if (imports.length === 0) return null;
  return (
    <div class="stack">
      <h2>{t.imports.recent}</h2>
      <Table
        label={t.imports.recent}
        isListing
        heads={[t.imports.import, t.imports.by, t.imports.when, ""]}
        emptyHead={t.shared.actions}
        keys={imports.map(({ by, batch }) => `${by}\n${batch}`)}
        rows={imports.map(({ by, batch = "", lastTime, ...count }) => {
          const name = nameOfBatch(batch);
          return [
            <>
              <a href={linkToChanges({ batch })}>
                <strong>{name}</strong>
              </a>{" "}
              <span class="faint">{describeCounts(count)}</span>
            </>,
            by ?? <span class="faint">{t.shared.commandLine}</span>,
            <time>{formatTime(lastTime)}</time>,
            isUndone(batch, batches) ? (
              <span class="faint">{t.imports.undone}</span>
            ) : (
              mayWrite.value && (
                <Button kind="small" onClick={() => askUndo(batch)}>
                  {t.shared.undo} <span class="visually-hidden">{name}</span>
                </Button>
              )
            ),
          ];
        })}
      />
    </div>
  );
}
