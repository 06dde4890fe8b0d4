/** One plant: read, corrected in place, deleted. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { Changed, readPlant, type Versioned } from "../api/plants.ts";
import { explain, isAbort, isStatus } from "../api/service.ts";
import { recoveries } from "../state/connection.ts";
import { list, removeWithUndo } from "../state/plants.ts";
import { isOpen } from "../state/route.ts";
import { mayWrite } from "../state/session.ts";
import { ConflictNotice } from "./conflict.tsx";
import { Icon } from "./icons.tsx";
import { Notice } from "./notice.tsx";
import { closePanel, IdLabel, Panel } from "./panel.tsx";
import { PlantForm } from "./plant-form.tsx";

type Loaded = Versioned | "loading" | "missing" | { readonly failure: unknown };

export function PlantPanel({ id }: { readonly id: bigint }): JSX.Element {
  const loaded = useSignal<Loaded>("loading");
  const isEditing = useSignal(false);
  const isRemoving = useSignal(false);
  const trouble = useSignal<unknown>(undefined);
  const recovered = recoveries.value;

  useEffect(() => {
    if (typeof loaded.value === "object" && "plant" in loaded.value) return;
    const controller = new AbortController();
    readPlant(id, controller.signal).then(
      (found) => {
        loaded.value = found;
        list.value.put(found.plant);
        const index = list.value.indexOf(id);
        if (index >= 0) list.value.active.value = index;
      },
      (error: unknown) => {
        if (isAbort(error)) return;
        loaded.value = isStatus(error, 404) ? "missing" : { failure: error };
        if (isStatus(error, 404)) list.value.take(id);
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
      // By now somebody may be looking at something else.
      if (isOpen(id)) closePanel();
    } catch (error) {
      trouble.value = error;
    } finally {
      isRemoving.value = false;
    }
  };

  const current = loaded.value;
  const versioned = typeof current === "object" && "plant" in current ? current : undefined;
  const canChange = versioned !== undefined && mayWrite.value;
  const keys = useMemo(
    () =>
      canChange && versioned !== undefined && !isEditing.value
        ? { e: () => (isEditing.value = true), Delete: () => void remove(versioned) }
        : isEditing.value
          ? { Escape: () => (isEditing.value = false) }
          : {},
    [canChange, versioned, isEditing.value],
  );

  return (
    <Panel title={isEditing.value ? "Edit plant" : "Plant"} keys={keys}>
      {current === "loading" && <p class="faint">Loading…</p>}
      {current === "missing" && (
        <>
          <IdLabel id={id} />
          <Notice kind="warning" title="There is no plant with this id">
            <p>It may have been deleted. The link to it leads nowhere by now.</p>
          </Notice>
        </>
      )}
      {typeof current === "object" && "failure" in current && (
        <Notice kind="fault" title="The plant cannot be read">
          <p>{explain(current.failure)}</p>
        </Notice>
      )}
      {versioned !== undefined && isEditing.value && (
        <PlantForm
          versioned={versioned}
          onDone={(saved) => {
            if (saved !== undefined) loaded.value = saved;
            isEditing.value = false;
          }}
          onSavedLate={(saved) => {
            loaded.value = saved;
          }}
          onGone={() => {
            list.value.take(id);
            loaded.value = "missing";
            isEditing.value = false;
          }}
        />
      )}
      {versioned !== undefined && !isEditing.value && (
        <>
          <Shown versioned={versioned} />
          {trouble.value instanceof Changed ? (
            <ConflictNotice
              change={trouble.value}
              doing="delete"
              onTake={(now) => {
                trouble.value = undefined;
                loaded.value = now ?? "missing";
                if (now === undefined) list.value.take(id);
                else list.value.put(now.plant);
              }}
              onInsist={(now) => void remove(now)}
            />
          ) : (
            trouble.value !== undefined && (
              <Notice kind="fault" title="Not deleted for certain">
                <p>{explain(trouble.value)} Try again: it does no harm.</p>
              </Notice>
            )
          )}
          {canChange && (
            <div class="form-actions">
              <button
                type="button"
                class="button"
                aria-keyshortcuts="e"
                onClick={() => {
                  isEditing.value = true;
                }}
              >
                <Icon name="edit" />
                Edit
              </button>
              <button
                type="button"
                class="button button-danger"
                aria-keyshortcuts="Delete"
                disabled={isRemoving.value}
                onClick={() => void remove(versioned)}
              >
                <Icon name="trash" />
                Delete
              </button>
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
      <p class="shown-tag">
        {tag === undefined ? (
          <span class="faint">No tag</span>
        ) : (
          <span class="tag">{tag === "" ? <i>empty tag</i> : tag}</span>
        )}
      </p>
    </div>
  );
}
