/** Editing a plant. A change that someone else made meanwhile is shown, not overwritten. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Plant } from "../../domain/plant.ts";
import { Changed, isSame, replacePlant, type Versioned } from "../api/plants.ts";
import { explain } from "../api/service.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { formatName } from "../state/format.ts";
import { list, noteTag } from "../state/plants.ts";
import { isOpen, openPlant } from "../state/route.ts";
import { token } from "../state/session.ts";
import { announce, toast } from "../state/toasts.ts";
import { Button, FailureNotice, Notice } from "./controls.tsx";
import { findTextFault, NameField, TagField } from "./form.tsx";
import { IdLabel } from "./panel.tsx";

interface PlantFormProps {
  readonly versioned: Versioned;
  /** Also called when the answer comes after the form was closed. */
  readonly onSaved: (saved: Versioned) => void;
  /** The person keeps what someone else stored; undefined means that the plant is gone. */
  readonly onTake: (now: Versioned | undefined) => void;
  readonly onDone: () => void;
}

export function PlantForm({ versioned, onSaved, onTake, onDone }: PlantFormProps): JSX.Element {
  const { plant } = versioned;
  const draft = findDraft(plant.id);
  const name = useSignal(draft === undefined ? plant.name : draft.name);
  const tag = useSignal(draft === undefined ? plant.tag : draft.tag);
  const etag = useRef(draft?.etag ?? versioned.etag);
  const trouble = useSignal<unknown>(undefined);
  const isSending = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const isLeft = useRef(false);

  useEffect(() => {
    input.current?.focus();
    input.current?.select();
    return () => {
      isLeft.current = true;
      const isShown = token.value === undefined || isOpen(plant.id);
      if (isShown || isSending.value || findDraft(plant.id) === undefined) return;
      toast(`Your edit of ${formatName(plant)} isn't saved yet.`, {
        label: "Open",
        run: () => openPlant(plant.id),
      });
    };
  }, []);
  // An earlier save of this form was confirmed late. The edit builds on it.
  const known = useRef(versioned);
  if (known.current !== versioned) {
    known.current = versioned;
    etag.current = versioned.etag;
  }

  const edited: Plant = { id: plant.id, name: name.value, tag: tag.value };
  const keep = (): void => {
    const now: Plant = { id: plant.id, name: name.value, tag: tag.value };
    const kept = { name: now.name, tag: now.tag, etag: etag.current };
    keepDraft(plant.id, isSame(now, plant) ? undefined : kept);
  };

  const save = async (over: string): Promise<void> => {
    const isFaulty = [edited.name, edited.tag ?? ""].some((text) => findTextFault(text));
    if (isFaulty || isSending.value) return;
    if (isSame(edited, plant) && over === versioned.etag) return onDone();
    isSending.value = true;
    trouble.value = undefined;
    try {
      const saved = await replacePlant(edited, over);
      const kept = findDraft(plant.id);
      // The person may have begun a further edit meanwhile.
      const isFurther =
        kept !== undefined && (kept.name !== edited.name || kept.tag !== edited.tag);
      keepDraft(plant.id, isFurther ? { ...kept, etag: saved.etag } : undefined);
      list.value.put(saved.plant);
      noteTag(saved.plant.tag);
      toast(`Saved ${formatName(saved.plant)}.`);
      onSaved(saved);
      if (!isLeft.current) onDone();
    } catch (error) {
      trouble.value = error;
      if (isLeft.current)
        toast(`Couldn't confirm that ${formatName(edited)} was saved. ${explain(error)}`, {
          label: "Open",
          isNeeded: true,
          run: () => openPlant(plant.id),
        });
      else if (error instanceof Changed) announce("Someone else changed this plant.");
    } finally {
      isSending.value = false;
    }
  };

  return (
    <form
      class="form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save(etag.current);
      }}
    >
      <IdLabel id={plant.id} />
      <NameField
        id="edit-name"
        inputRef={input}
        hasLines={/[\r\n]/.test(plant.name)}
        value={name.value}
        onInput={(text) => {
          name.value = text;
          keep();
        }}
      />
      <TagField
        id="edit-tag"
        value={tag.value}
        onInput={(text) => {
          tag.value = text;
          keep();
        }}
      />
      {trouble.value instanceof Changed ? (
        <ConflictNotice
          change={trouble.value}
          doing="save"
          onTake={(now) => {
            keepDraft(plant.id, undefined);
            onTake(now);
            onDone();
          }}
          onInsist={(now) => void save(now.etag)}
        />
      ) : (
        <>
          {trouble.value !== undefined && <FailureNotice of="save" error={trouble.value} />}
          <div class="form-actions">
            <button type="submit" class="button button-main" disabled={isSending.value}>
              {isSending.value ? "Saving…" : "Save"}
            </button>
            <Button
              onClick={() => {
                keepDraft(plant.id, undefined);
                onDone();
              }}
            >
              Cancel
            </Button>
          </div>
        </>
      )}
    </form>
  );
}

interface ConflictProps {
  readonly change: Changed;
  readonly doing: "save" | "delete";
  /** Leave the plant as it is now. */
  readonly onTake: (now: Versioned | undefined) => void;
  /** Go ahead, over the version that was just shown. */
  readonly onInsist: (now: Versioned) => void;
}

const conflictTexts = {
  save: {
    effect: "Your edit isn't saved yet.",
    take: "Discard my edit",
    insist: "Overwrite with mine",
  },
  delete: { effect: "It isn't deleted yet.", take: "Keep it", insist: "Delete anyway" },
} as const;

export function ConflictNotice({ change, doing, onTake, onInsist }: ConflictProps): JSX.Element {
  const now = change.current;
  if (now === undefined)
    return (
      <Notice kind="warning" title="Someone else deleted this plant.">
        <div class="form-actions">
          <Button onClick={() => onTake(undefined)}>OK</Button>
        </div>
      </Notice>
    );
  const { name, tag } = now.plant;
  const { effect, take, insist } = conflictTexts[doing];
  // Either way of settling a save loses someone's edit, so neither is recommended.
  const [takeKind, insistKind] = doing === "delete" ? (["main", "danger"] as const) : [];
  return (
    <Notice kind="warning" title={`Someone else changed this plant. ${effect}`}>
      <p>It is now:</p>
      <dl class="now">
        <dt>Name</dt>
        <dd>{name === "" ? <i>no name</i> : name}</dd>
        <dt>Tag</dt>
        <dd>{tag === undefined ? <i>none</i> : tag === "" ? <i>empty</i> : tag}</dd>
      </dl>
      <div class="form-actions">
        <Button kind={takeKind} onClick={() => onTake(now)}>
          {take}
        </Button>
        <Button kind={insistKind} onClick={() => onInsist(now)}>
          {insist}
        </Button>
      </div>
    </Notice>
  );
}
