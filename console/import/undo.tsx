/** Undo of an import, a bulk action or a single change: first the preview, then the revert. */

import type { JSX } from "preact";
import type { Content, RevertPreview } from "../../client/client.ts";
import { explain, isStatus } from "../api/service.ts";
import { startAction } from "../state/action.ts";
import { askUndo, isUndone, undo } from "../state/undo.ts";
import { plural, t } from "../text/text.ts";
import { Button, Notice, Table } from "../view/controls.tsx";
import { Dialog } from "../view/manage.tsx";

export const UndoImport = ({ batch }: { readonly batch: string }): JSX.Element => (
  <Button disabled={isUndone(batch)} onClick={() => askUndo(batch)}>
    {isUndone(batch) ? t.imports.importUndone : t.imports.undoImport}
  </Button>
);

type Asked = NonNullable<typeof undo.value>;

export const UndoDialog = (): JSX.Element | null =>
  undo.value === undefined ? null : <OpenDialog key={undo.value.about.batch} asked={undo.value} />;

function OpenDialog({ asked }: { readonly asked: Asked }): JSX.Element {
  const { title, range, batch } = asked.about;
  const close = (): void => undo.close(asked);
  const found = asked.found.value;
  const trouble = asked.failure.value;
  const count = typeof found === "object" ? found.revertible : undefined;
  const revert = (): void => {
    close();
    startAction({ kind: "undo", range }, { plants: [] }, count, batch);
  };
  return (
    <Dialog title={title} onClose={close}>
      <div class="stack">
        {found === undefined && trouble === undefined && <p class="faint">{t.shared.loading}</p>}
        {found === "large" && <p>{t.imports.tooManyToPreview}</p>}
        {typeof found === "object" && <Preview preview={found} />}
        {(found === "large" || (count ?? 0) > 0) && <p class="faint">{t.imports.undoHint}</p>}
        {trouble !== undefined && (
          <Notice kind="fault" title={t.operators.manage.failed} text={explainUndo(trouble)} />
        )}
        <div class="form-actions">
          {count !== 0 && (
            <Button kind="danger" disabled={found === undefined} onClick={revert}>
              {count === undefined ? t.imports.undoAll : plural(t.imports.undoPlants, count)}
            </Button>
          )}
          <Button onClick={close}>{count === 0 ? t.shared.close : t.shared.cancel}</Button>
        </div>
      </div>
    </Dialog>
  );
}

const explainUndo = (error: unknown): string =>
  isStatus(error, 410) ? t.imports.noRecord : explain(error);

const SHOWN_MAX = 5;

const showId = (id: bigint): JSX.Element => <span class="row-id">{String(id)}</span>;

const showState = (plant: Content | undefined): JSX.Element =>
  plant === undefined ? (
    <span class="faint">{t.imports.isDeleted}</span>
  ) : (
    <>{[plant.name, plant.tag].filter(Boolean).join(" · ")}</>
  );

function Preview({ preview }: { readonly preview: RevertPreview }): JSX.Element {
  const { revertible, changedSince, sample, skipped = [] } = preview;
  return (
    <>
      {revertible === 0 ? (
        <p>
          {changedSince > 0
            ? plural(t.imports.nothingToUndoChanged, changedSince)
            : t.imports.nothingToUndo}
        </p>
      ) : (
        <p>
          {plural(t.imports.revertible, revertible)}
          {changedSince > 0 && ` ${plural(t.imports.changedSince, changedSince)}`}
        </p>
      )}
      {sample.length + skipped.length > 0 && (
        <Table
          label={t.imports.somePlants}
          isListing
          heads={[t.shared.id, t.imports.now, t.imports.afterUndo]}
          rows={[
            ...sample
              .slice(0, SHOWN_MAX)
              .map(({ id, now, before }) => [showId(id), showState(now), showState(before)]),
            ...skipped
              .slice(0, SHOWN_MAX)
              .map(({ id, now }) => [
                showId(id),
                showState(now),
                <span class="faint">{t.imports.isSkipped}</span>,
              ]),
          ]}
        />
      )}
    </>
  );
}
