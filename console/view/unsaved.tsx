/** All edits that are not saved: to open, save or discard, one by one or together. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { findInt64 } from "../../src/domain/json.ts";
import { Changed, findFreeId, findPlant, readConflict } from "../api/plants.ts";
import { explain } from "../api/service.ts";
import { Modal } from "../state/dialog.ts";
import { clipName, formatName, quote } from "../state/format.ts";
import { saveEdit } from "../state/plant.ts";
import { addWithUndo } from "../state/plants.ts";
import { openPlant } from "../state/route.ts";
import { discardEdit, edits } from "../state/saving.ts";
import type { Draft } from "../state/storage.ts";
import { fill, plural, t } from "../text/text.ts";
import { Button } from "./controls.tsx";
import { useSubmission } from "./form.tsx";
import { Dialog } from "./manage.tsx";

export const unsavedList = new Modal<object>();

type Of = bigint | "new";

/** On the condition that nobody changed the plant since it was edited. */
async function save(of: Of, draft: Draft): Promise<void> {
  const { name, tag } = draft;
  if (of === "new") {
    const id = findInt64(draft.id ?? "") ?? (await findFreeId(undefined));
    await addWithUndo({ id, name, tag });
    return discardEdit(of);
  }
  const found = await findPlant(of);
  if (found === undefined || found.etag !== draft.etag) throw await readConflict(of);
  await saveEdit(found.plant, { id: of, name, tag }, found.etag, "changed");
}

export function UnsavedDialog(): JSX.Element | null {
  /** Why some were not saved. */
  const faults = useSignal<ReadonlyMap<Of, string>>(new Map());
  const { isBusy, run } = useSubmission();
  if (unsavedList.value === undefined) return null;
  const close = (): void => {
    faults.value = new Map();
    unsavedList.close();
  };
  const saveAll = (): Promise<void> =>
    run(async () => {
      const failed = new Map<Of, string>();
      for (const [of, draft] of edits.value)
        try {
          await save(of, draft);
        } catch (error) {
          failed.set(of, error instanceof Changed ? error.message : explain(error));
        }
      faults.value = failed;
      if (failed.size === 0) close();
    });
  return (
    <Dialog title={t.shell.unsaved} onClose={close}>
      <div class="stack">
        <p>{plural(t.shell.unsavedEdits, edits.value.length)}</p>
        <ul class="unsaved">
          {edits.value.map(([of, { name, tag }]) => (
            <li key={of}>
              <p>
                {of === "new" ? (
                  fill(t.plants.notAdded, { name: quote(clipName(name)) })
                ) : (
                  <>
                    <span class="digits faint">{of}</span> {formatName({ id: of, name, tag })}
                  </>
                )}
                {faults.value.has(of) && <span class="field-fault"> {faults.value.get(of)}</span>}
              </p>
              <div class="with-button">
                <Button
                  kind="small"
                  onClick={() => {
                    close();
                    openPlant(of);
                  }}
                >
                  {t.shared.open} <span class="visually-hidden">{name}</span>
                </Button>
                <Button kind="small" onClick={() => discardEdit(of)}>
                  {t.shell.discard} <span class="visually-hidden">{name}</span>
                </Button>
              </div>
            </li>
          ))}
        </ul>
        <div class="form-actions">
          <Button
            kind="main"
            disabled={isBusy.value || edits.value.length === 0}
            onClick={() => void saveAll()}
          >
            {t.shell.saveAll}
          </Button>
          <Button
            kind="danger"
            disabled={isBusy.value || edits.value.length === 0}
            onClick={() => {
              for (const [of] of edits.value) discardEdit(of);
              close();
            }}
          >
            {t.shell.discardAll}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
