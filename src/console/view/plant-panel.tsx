/** One plant: shown, edited, deleted. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { Changed, readPlant, type Versioned } from "../api/plants.ts";
import { explain, isAbort, isStatus, recoveries } from "../api/service.ts";
import { formatName } from "../state/format.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { list, removeWithUndo } from "../state/plants.ts";
import { isOpen } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { Button, FailureNotice, Icon, Notice, Tag } from "./controls.tsx";
import { closePanel, IdLabel, Panel } from "./panel.tsx";
import { ConflictNotice, PlantForm } from "./plant-form.tsx";

type Loaded = Versioned | "loading" | "missing" | { readonly failure: unknown };

export function PlantPanel({ id }: { readonly id: bigint }): JSX.Element {
  const loaded = useSignal<Loaded>("loading");
  const draft = mayWrite.value ? findDraft(id) : undefined;
  const isEditing = useSignal(draft !== undefined);
  const isRemoving = useSignal(false);
  const trouble = useSignal<unknown>(undefined);
  const recovered = recoveries.value;

  /** Undefined means that the plant is gone. */
  const accept = (now: Versioned | undefined): void => {
    loaded.value = now ?? "missing";
    if (now === undefined) list.value.take(id);
    else list.value.put(now.plant);
  };

  useEffect(() => {
    if (typeof loaded.value === "object" && "plant" in loaded.value) return;
    const controller = new AbortController();
    readPlant(id, controller.signal).then(
      (found) => {
        accept(found);
        const index = list.value.indexOf(id);
        if (index >= 0) list.value.active.value = index;
      },
      (error: unknown) => {
        if (isStatus(error, 404)) accept(undefined);
        else if (!isAbort(error)) loaded.value = { failure: error };
      },
    );
    return () => controller.abort();
  }, [id, recovered]);

  const remove = async (which: Versioned): Promise<void> => {
    if (isRemoving.value) return;
    isRemoving.value = true;
    trouble.value = undefined;
    try {
      await removeWithUndo(which);
      // Another plant may be open by now.
      if (isOpen(id)) closePanel();
    } catch (error) {
      trouble.value = error;
    } finally {
      isRemoving.value = false;
    }
  };
  const edit = (): void => {
    isEditing.value = true;
  };

  const current = loaded.value;
  const versioned = typeof current === "object" && "plant" in current ? current : undefined;
  const canChange = versioned !== undefined && mayWrite.value;
  const keys = useMemo(() => {
    if (isEditing.value) return { Escape: () => (isEditing.value = false) };
    return canChange ? { e: edit, Delete: () => void remove(versioned) } : {};
  }, [canChange, versioned, isEditing.value]);

  return (
    <Panel title={isEditing.value ? "Edit plant" : "Plant"} keys={keys}>
      {current === "loading" && <p class="faint">Loading…</p>}
      {current === "missing" && (
        <>
          <IdLabel id={id} />
          <Notice kind="warning" title="There is no plant with this id">
            <p>It may have been deleted.</p>
          </Notice>
        </>
      )}
      {typeof current === "object" && "failure" in current && (
        <Notice kind="fault" title="Couldn't read this plant">
          <p>{explain(current.failure)}</p>
        </Notice>
      )}
      {versioned !== undefined && isEditing.value && (
        <PlantForm
          versioned={versioned}
          onSaved={(saved) => {
            loaded.value = saved;
          }}
          onTake={accept}
          onDone={() => {
            isEditing.value = false;
          }}
        />
      )}
      {versioned !== undefined && !isEditing.value && (
        <>
          <Shown versioned={versioned} />
          {draft !== undefined && (
            <Notice kind="warning" title="Your edit isn't saved yet">
              <p>{formatName({ ...draft, id, tag: draft.tag })}</p>
              <div class="form-actions">
                <Button kind="main" onClick={edit}>
                  Continue editing
                </Button>
                <Button onClick={() => keepDraft(id, undefined)}>Discard my edit</Button>
              </div>
            </Notice>
          )}
          {trouble.value instanceof Changed ? (
            <ConflictNotice
              change={trouble.value}
              doing="delete"
              onTake={(now) => {
                trouble.value = undefined;
                accept(now);
              }}
              onInsist={(now) => void remove(now)}
            />
          ) : (
            trouble.value !== undefined && <FailureNotice of="deletion" error={trouble.value} />
          )}
          {canChange && (
            <div class="form-actions">
              {draft === undefined && (
                <Button shortcut="e" onClick={edit}>
                  <Icon name="edit" />
                  Edit
                </Button>
              )}
              <Button
                kind="danger"
                shortcut="Delete"
                isDisabled={isRemoving.value}
                onClick={() => void remove(versioned)}
              >
                <Icon name="trash" />
                Delete
              </Button>
            </div>
          )}
        </>
      )}
    </Panel>
  );
}

function Shown({ versioned }: { readonly versioned: Versioned }): JSX.Element {
  const { id, name, tag } = versioned.plant;
  return (
    <div class="shown">
      <IdLabel id={id} />
      <p class="shown-name">{name.trim() === "" ? <i class="faint">no name</i> : name}</p>
      {tag === undefined ? <span class="faint">No tag</span> : <Tag tag={tag} />}
    </div>
  );
}
