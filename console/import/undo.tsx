/** Reverts an import: first the preview, then the revert. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { Content, RevertPreview } from "../../client/client.ts";
import { call, explain } from "../api/service.ts";
import { formatCount } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { Button, Notice, Table } from "../view/controls.tsx";
import { useTask } from "../view/form.tsx";
import { Dialog } from "../view/manage.tsx";

interface UndoProps {
  readonly batch: string;
}

export function UndoImport({ batch }: UndoProps): JSX.Element {
  const preview = useSignal<RevertPreview | undefined>(undefined);
  const isUndone = useSignal(false);
  const { isBusy, trouble, run } = useTask();
  const show = (): Promise<void> =>
    run(async () => {
      preview.value = await call((client) => client.previewRevert({ batch }));
    });
  const revert = async (): Promise<void> => {
    await run(async () => {
      const { reverted, changedSince, refused } = await call((client) => client.revert({ batch }));
      const left = changedSince + refused;
      const others = left === 0 ? "" : ` ${formatCount(left, "plant")} skipped.`;
      toast(`Import undone: ${formatCount(reverted, "plant")}.${others}`);
      isUndone.value = left === 0;
    });
    if (trouble.value === undefined) preview.value = undefined;
  };
  const close = (): void => void (preview.value = undefined);
  return (
    <>
      <Button disabled={isBusy.value || isUndone.value} onClick={() => void show()}>
        {isUndone.value ? "Import undone" : "Undo this import"}
      </Button>
      {preview.value !== undefined && (
        <Dialog title="Undo this import?" onClose={close}>
          <div class="stack">
            <Preview preview={preview.value} />
            {trouble.value !== undefined && (
              <Notice kind="fault" title="That didn't work" text={explain(trouble.value)} />
            )}
            <div class="form-actions">
              <Button
                kind="danger"
                disabled={isBusy.value || preview.value.revertible === 0}
                onClick={() => void revert()}
              >
                Undo {formatCount(preview.value.revertible, "plant")}
              </Button>
              <Button onClick={close}>Cancel</Button>
            </div>
          </div>
        </Dialog>
      )}
      {preview.value === undefined && trouble.value !== undefined && (
        <Notice kind="fault" title="That didn't work" text={explain(trouble.value)} />
      )}
    </>
  );
}

const tell = (plant: Content | undefined): string =>
  plant === undefined ? "–" : [plant.name, plant.tag].filter(Boolean).join(" · ");

function Preview({ preview }: { readonly preview: RevertPreview }): JSX.Element {
  const { revertible, changedSince, sample } = preview;
  return (
    <div class="stack">
      <p>
        {formatCount(revertible, "plant")} will be as before the import.
        {changedSince > 0 && ` ${formatCount(changedSince)} changed since and will be skipped.`}
      </p>
      {sample.length > 0 && (
        <Table
          label="Some of the plants"
          heads={["Id", "Now", "After undo"]}
          rows={sample
            .slice(0, 5)
            .map(({ id, now, before }) => [
              <span class="digits">{String(id)}</span>,
              tell(now),
              before === undefined ? <span class="faint">deleted</span> : tell(before),
            ])}
        />
      )}
    </div>
  );
}
