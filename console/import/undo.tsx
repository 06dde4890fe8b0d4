/** Undo of an import, a bulk action or a single change: first the preview, then the revert. */

import { signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Content, RevertPreview } from "../../client/client.ts";
import { call, explain, isAbort, isReason, isStatus } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { askUndo, undo } from "../state/undo.ts";
import { Button, Notice, Table } from "../view/controls.tsx";
import { useTask } from "../view/form.tsx";
import { Dialog } from "../view/manage.tsx";

/** The batches that were undone as a whole since the page was loaded. */
const undone = signal<ReadonlySet<string | undefined>>(new Set());

export function UndoImport({ batch }: { readonly batch: string }): JSX.Element {
  const isUndone = undone.value.has(batch);
  return (
    <Button disabled={isUndone} onClick={() => askUndo(batch)}>
      {isUndone ? "Import undone" : "Undo this import"}
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
      const others = left === 0 ? "" : ` ${formatCount(left, "plant")} skipped.`;
      const back = { label: "Undo", run: () => askUndo(batch) };
      toast(`Undone: ${formatCount(reverted, "plant")}.${others}`, reverted > 0 ? back : undefined);
      if (left === 0) undone.value = new Set([...undone.value, range.batch]);
    });
    if (trouble.value === undefined && undo.value?.batch === batch) close();
  };
  const found = preview.value;
  const count = typeof found === "object" ? found.revertible : undefined;
  return (
    <Dialog title={title} onClose={close}>
      <div class="stack">
        {found === undefined && trouble.value === undefined && <p class="faint">Loading…</p>}
        {found === "large" && <p>These are too many plants for a preview.</p>}
        {typeof found === "object" && <Preview preview={found} />}
        {(found === "large" || (count ?? 0) > 0) && (
          <p class="faint">Plants that changed since are skipped. You can undo this as well.</p>
        )}
        {trouble.value !== undefined && (
          <Notice kind="fault" title="That didn't work" text={explainUndo(trouble.value)} />
        )}
        <div class="form-actions">
          {count !== 0 && (
            <Button
              kind="danger"
              disabled={isBusy.value || found === undefined}
              onClick={() => void revert()}
            >
              {isBusy.value && found !== undefined
                ? "Undoing…"
                : `Undo ${count === undefined ? "all" : formatCount(count, "plant")}`}
            </Button>
          )}
          <Button onClick={close}>{count === 0 ? "Close" : "Cancel"}</Button>
        </div>
      </div>
    </Dialog>
  );
}

const explainUndo = (error: unknown): string =>
  isStatus(error, 410) ? "The store no longer has a record of this change." : explain(error);

const tell = (plant: Content | undefined): string =>
  plant === undefined ? "–" : [plant.name, plant.tag].filter(Boolean).join(" · ");

function Preview({ preview }: { readonly preview: RevertPreview }): JSX.Element {
  const { revertible, changedSince, sample } = preview;
  const skipped =
    changedSince > 0 && ` ${formatCount(changedSince)} changed since and will be skipped.`;
  return (
    <>
      {revertible === 0 ? (
        <p>
          {changedSince > 0
            ? `Nothing to undo:${skipped}`
            : "Nothing to undo: the plants are as before already."}
        </p>
      ) : (
        <p>
          {formatCount(revertible, "plant")} will be as before.{skipped}
        </p>
      )}
      {sample.length > 0 && (
        <Table
          label="Some of the plants"
          heads={["Id", "Now", "After undo"]}
          rows={sample
            .slice(0, 5)
            .map(({ id, now, before }) => [
              <span class="digits">{String(id)}</span>,
              now === undefined ? <span class="faint">deleted</span> : tell(now),
              before === undefined ? <span class="faint">deleted</span> : tell(before),
            ])}
        />
      )}
    </>
  );
}
