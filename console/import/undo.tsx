/** Undo of an import, a bulk action or a single change: first the preview, then the revert. */

import { signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Content, RevertPreview } from "../../client/client.ts";
import { call, explain, isAbort, isReason, isStatus } from "../api/service.ts";
import { toast } from "../state/toasts.ts";
import { askUndo, undo } from "../state/undo.ts";
import { plural, t } from "../text/text.ts";
import { Button, Notice, Table } from "../view/controls.tsx";
import { useTask } from "../view/form.tsx";
import { Dialog } from "../view/manage.tsx";

/** The batches that were undone as a whole since the page was loaded. */
const undone = signal<ReadonlySet<string | undefined>>(new Set());

export function UndoImport({ batch }: { readonly batch: string }): JSX.Element {
  const isUndone = undone.value.has(batch);
  return (
    <Button disabled={isUndone} onClick={() => askUndo(batch)}>
      {isUndone ? t.imports.importUndone : t.imports.undoImport}
    </Button>
  );
}

export const UndoDialog = (): JSX.Element | null =>
  undo.value === undefined ? null : <OpenDialog key={undo.value.batch} asked={undo.value} />;

/** More plants than the service previews. */
const isTooLarge = (error: unknown): boolean => isReason(error, "range_too_large");

interface OpenDialogProps {
  readonly asked: NonNullable<typeof undo.value>;
}

const close = (): void => void (undo.value = undefined);

function OpenDialog({ asked: { title, range, batch } }: OpenDialogProps): JSX.Element {
  const preview = useSignal<RevertPreview | "large" | undefined>(undefined);
  const { isBusy, trouble, run } = useTask();
  useEffect(() => {
    const closing = new AbortController();
    void run(async () => {
      try {
        preview.value = await call((client) => client.previewRevert(range, closing));
      } catch (error) {
        if (isTooLarge(error)) preview.value = "large";
        else if (!isAbort(error)) throw error;
      }
    });
    return () => closing.abort();
  }, []);
  const revert = async (): Promise<void> => {
    await run(async () => {
      const { reverted, changedSince, refused } = await call((client) =>
        client.revert(range, { batch, respondAsync: true }),
      );
      const left = changedSince + refused;
      const said = [
        plural(t.imports.undonePlants, reverted),
        ...(left === 0 ? [] : [plural(t.imports.skippedPlants, left)]),
      ];
      const back = { label: t.shared.undo, run: () => askUndo(batch) };
      toast(said.join(" "), reverted > 0 ? back : undefined);
      if (left === 0) undone.value = new Set([...undone.value, range.batch]);
    });
    if (trouble.value === undefined && undo.value?.batch === batch) close();
  };
  const found = preview.value;
  const count = typeof found === "object" ? found.revertible : undefined;
  return (
    <Dialog title={title} onClose={close}>
      <div class="stack">
        {found === undefined && trouble.value === undefined && (
          <p class="faint">{t.shared.loading}</p>
        )}
        {found === "large" && <p>{t.imports.tooManyToPreview}</p>}
        {typeof found === "object" && <Preview preview={found} />}
        {(found === "large" || (count ?? 0) > 0) && <p class="faint">{t.imports.undoHint}</p>}
        {trouble.value !== undefined && (
          <Notice
            kind="fault"
            title={t.operators.manage.failed}
            text={explainUndo(trouble.value)}
          />
        )}
        <div class="form-actions">
          {count !== 0 && (
            <Button
              kind="danger"
              disabled={isBusy.value || found === undefined}
              onClick={() => void revert()}
            >
              {isBusy.value && found !== undefined
                ? t.imports.undoing
                : count === undefined
                  ? t.imports.undoAll
                  : plural(t.imports.undoPlants, count)}
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

const tell = (plant: Content | undefined): string =>
  plant === undefined ? "–" : [plant.name, plant.tag].filter(Boolean).join(" · ");

function Preview({ preview }: { readonly preview: RevertPreview }): JSX.Element {
  const { revertible, changedSince, sample } = preview;
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
      {sample.length > 0 && (
        <Table
          label={t.imports.somePlants}
          heads={[t.shared.id, t.imports.now, t.imports.afterUndo]}
          rows={sample
            .slice(0, 5)
            .map(({ id, now, before }) => [
              <span class="digits">{String(id)}</span>,
              now === undefined ? <span class="faint">{t.imports.isDeleted}</span> : tell(now),
              before === undefined ? (
                <span class="faint">{t.imports.isDeleted}</span>
              ) : (
                tell(before)
              ),
            ])}
        />
      )}
    </>
  );
}
