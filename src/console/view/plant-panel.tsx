/** One plant: shown, edited, deleted. A change that someone else made meanwhile is shown, not overwritten. */

import { effect, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Change } from "../../../client/client.ts";
import { isSame, type Plant } from "../../domain/plant.ts";
import { Changed, readPlant, replacePlant, type Versioned } from "../api/plants.ts";
import { explain, isAbort, isStatus, recoveries } from "../api/service.ts";
import { arrived } from "../state/feed.ts";
import { formatName } from "../state/format.ts";
import { list, removeWithUndo, restore } from "../state/plants.ts";
import { isOpen, openPlant, refine } from "../state/route.ts";
import { mayWrite, token } from "../state/session.ts";
import { findDraft, keepDraft } from "../state/storage.ts";
import { toast } from "../state/toasts.ts";
import { Button, Icon, Notice, Tag, Terms } from "./controls.tsx";
import { FailureNotice, findTextFault, Form, NameField, TagField, useTask } from "./form.tsx";
import { History } from "./history.tsx";
import { closePanel, IdLabel, Panel } from "./panel.tsx";

export function PlantPanel({ id }: { readonly id: bigint }): JSX.Element {
  const loaded = useSignal<Versioned | "loading" | "missing" | Error>("loading");
  const draft = mayWrite.value ? findDraft(id) : undefined;
  const isEditing = useSignal(draft !== undefined);
  /** What someone else made of the plant while it is edited here. */
  const rival = useSignal<Changed | undefined>(undefined);
  const { isBusy, trouble, run } = useTask();
  const news = useRef<Change | undefined>(undefined);
  news.current = arrived.value.findLast((change) => change.id === id) ?? news.current;

  const current = loaded.value;
  const versioned = typeof current === "object" && "plant" in current ? current : undefined;

  /** Undefined means that the plant is gone. */
  const accept = (now: Versioned | undefined): void => {
    loaded.value = now ?? "missing";
    if (now === undefined) list.value.take(id);
    else list.value.put(now.plant);
  };

  /** Shows the plant, unless it would replace what an edit began with. */
  const meet = (now: Versioned | undefined): void => {
    const before = loaded.value;
    const isKnown = typeof before === "object" && "plant" in before;
    if (isEditing.value && isKnown && now?.etag !== before.etag) rival.value = new Changed(id, now);
    else accept(now);
  };
  useEffect(() => {
    if (news.current?.type === "removed" && loaded.value !== "loading")
      // It may have been deleted here, which closes the panel.
      return isBusy.value ? undefined : meet(undefined);
    const controller = new AbortController();
    readPlant(id, controller.signal).then(
      (found) => {
        meet(found);
        list.value.active.value = id;
      },
      (error: Error) => {
        if (isStatus(error, 404)) meet(undefined);
        else if (!isAbort(error) && versioned === undefined) loaded.value = error;
      },
    );
    return () => controller.abort();
  }, [id, recoveries.value, news.current?.seq]);

  const bringBack = (earlier: Plant): Promise<void> =>
    run(async () => {
      if (versioned === undefined) {
        await restore(earlier);
        return accept(await readPlant(id));
      }
      try {
        accept(await replacePlant(earlier, versioned.etag));
        toast(`Brought back ${formatName(earlier)}.`);
      } catch (error) {
        if (!(error instanceof Changed)) throw error;
        accept(error.current);
        toast("Someone else changed this plant. Nothing was brought back.");
      }
    });
  const remove = (which: Versioned): Promise<void> =>
    run(async () => {
      await removeWithUndo(which);
      // Another plant may be open by now.
      if (isOpen(id)) closePanel();
    });
  const edit = (isOn: boolean) => (): void => {
    isEditing.value = isOn;
    rival.value = undefined;
  };

  const known = list.value.plants[list.value.indexOf(id)];
  const canChange = versioned !== undefined && mayWrite.value;
  const keys = isEditing.value
    ? { Escape: edit(false) }
    : canChange
      ? { e: edit(true), Delete: () => void remove(versioned) }
      : {};
  return (
    <Panel title={isEditing.value ? "Edit plant" : "Plant"} keys={keys}>
      {current === "loading" &&
        (known === undefined ? <p class="faint late">Loading…</p> : <Shown plant={known} />)}
      {current === "missing" && (
        <>
          <IdLabel id={id} />
          <Notice
            kind="warning"
            title="There is no plant with this id"
            text="It may have been deleted."
          />
          <History id={id} current={undefined} onBringBack={bringBack} />
        </>
      )}
      {current instanceof Error && (
        <Notice kind="fault" title="Couldn't read this plant" text={explain(current)} />
      )}
      {versioned !== undefined && isEditing.value && (
        <EditForm
          versioned={versioned}
          rival={rival.value}
          onChange={accept}
          onDone={edit(false)}
        />
      )}
      {versioned !== undefined && !isEditing.value && (
        <>
          <Shown plant={versioned.plant} />
          {draft !== undefined && (
            <Notice
              kind="warning"
              title="Your edit isn't saved yet"
              text={formatName({ ...draft, id })}
            >
              <div class="form-actions">
                <Button kind="main" onClick={edit(true)}>
                  Continue editing
                </Button>
                <Button onClick={() => keepDraft(id, undefined)}>Discard my edit</Button>
              </div>
            </Notice>
          )}
          <TroubleNotice
            trouble={trouble.value}
            of="deletion"
            onTake={(now) => {
              trouble.value = undefined;
              accept(now);
            }}
            onInsist={(now) => void remove(now)}
          />
          {canChange && (
            <div class="form-actions">
              {draft === undefined && (
                <Button aria-keyshortcuts="e" onClick={edit(true)}>
                  <Icon name="edit" />
                  Edit
                </Button>
              )}
              <Button
                kind="danger"
                aria-keyshortcuts="Delete"
                disabled={isBusy.value}
                onClick={() => void remove(versioned)}
              >
                <Icon name="trash" />
                Delete
              </Button>
            </div>
          )}
          <History id={id} current={versioned.plant} onBringBack={bringBack} />
        </>
      )}
    </Panel>
  );
}

/** Shorter names fit in. */
const LONG_CHARACTERS = 200;

function Shown({ plant }: { readonly plant: Plant }): JSX.Element {
  const { id, name, tag } = plant;
  return (
    <div class="shown">
      <IdLabel id={id} />
      {/* A very long one is scrolled: the buttons stay within reach. */}
      <p class="shown-name" tabIndex={name.length > LONG_CHARACTERS ? 0 : undefined}>
        {name.trim() === "" ? <i class="faint">no name</i> : name}
      </p>
      {tag === undefined ? (
        <span class="faint">No tag</span>
      ) : (
        <Tag tag={tag} onPick={() => refine({ tag })} />
      )}
    </div>
  );
}

interface EditFormProps {
  readonly versioned: Versioned;
  readonly rival: Changed | undefined;
  /** What is stored now; undefined means that the plant is gone. Also called after the form was closed. */
  readonly onChange: (now: Versioned | undefined) => void;
  readonly onDone: () => void;
}

function EditForm({ versioned, rival, onChange, onDone }: EditFormProps): JSX.Element {
  const { plant } = versioned;
  const { id } = plant;
  const draft = findDraft(id);
  const name = useSignal((draft ?? plant).name);
  const tag = useSignal((draft ?? plant).tag);
  const etag = useRef(draft?.etag ?? versioned.etag);
  const { isBusy, trouble, run } = useTask();
  const isLeft = useRef(false);
  const open = { label: "Open", run: () => openPlant(id) };

  // Before the next key: it belongs to the field.
  useLayoutEffect(() => {
    const input = document.querySelector<HTMLInputElement>("#edit-name");
    input?.focus();
    input?.select();
    return () => {
      isLeft.current = true;
      const isShown = token.value === undefined || isOpen(id);
      if (isShown || isBusy.value || findDraft(id) === undefined) return;
      toast(`Your edit of ${formatName(plant)} isn't saved yet.`, open);
    };
  }, []);
  useEffect(() => {
    // The answer to a save that is under way tells it too.
    if (rival !== undefined && !isBusy.value) trouble.value = rival;
  }, [rival]);
  // An earlier save of this form was confirmed late. The edit builds on it.
  const known = useRef(versioned);
  if (known.current.etag !== versioned.etag) etag.current = versioned.etag;
  known.current = versioned;

  const edited = { id, name: name.value, tag: tag.value };
  // A layout effect: the form may be closed right after the last key.
  useLayoutEffect(
    () =>
      effect(() => {
        const now = { name: name.value, tag: tag.value };
        const isUnchanged = isSame({ id, ...now }, known.current.plant);
        keepDraft(id, isUnchanged ? undefined : { ...now, etag: etag.current });
      }),
    [],
  );
  const discard = (): void => {
    keepDraft(id, undefined);
    onDone();
  };

  const save = (over: string): void => {
    if ([edited.name, edited.tag].some((text) => findTextFault(text))) return;
    if (isSame(edited, plant) && over === versioned.etag) return onDone();
    void run(async () => {
      try {
        const saved = await replacePlant(edited, over);
        const kept = findDraft(id);
        // The person may have begun a further edit meanwhile.
        const isFurther = kept !== undefined && !isSame({ ...kept, id }, edited);
        keepDraft(id, isFurther ? { ...kept, etag: saved.etag } : undefined);
        toast(`Saved ${formatName(saved.plant)}.`);
        onChange(saved);
        if (!isLeft.current) onDone();
      } catch (error) {
        const text = `Couldn't confirm that ${formatName(edited)} was saved. ${explain(error)}`;
        if (isLeft.current) toast(text, { ...open, isNeeded: true });
        throw error;
      }
    });
  };

  return (
    <Form onSubmit={() => save(etag.current)}>
      <IdLabel id={id} />
      <NameField id="edit-name" hasLines={/[\r\n]/.test(plant.name)} name={name} />
      <TagField id="edit-tag" tag={tag} />
      <TroubleNotice
        trouble={trouble.value}
        of="save"
        onTake={(now) => {
          onChange(now);
          discard();
        }}
        onInsist={(now) => save(now.etag)}
      />
      {!(trouble.value instanceof Changed) && (
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy.value}>
            {isBusy.value ? "Saving…" : "Save"}
          </Button>
          <Button onClick={discard}>Cancel</Button>
        </div>
      )}
    </Form>
  );
}

interface TroubleProps {
  readonly trouble: unknown;
  readonly of: "save" | "deletion";
  /** Leave the plant as it is now. */
  readonly onTake: (now: Versioned | undefined) => void;
  /** Go ahead, over the version that was just shown. */
  readonly onInsist: (now: Versioned) => void;
}

const conflictTexts = {
  save: {
    state: "Your edit isn't saved yet.",
    take: "Discard my edit",
    insist: "Overwrite with mine",
  },
  deletion: { state: "It isn't deleted yet.", take: "Keep it", insist: "Delete anyway" },
} as const;

function TroubleNotice({ trouble, of, onTake, onInsist }: TroubleProps): JSX.Element | null {
  if (trouble === undefined) return null;
  if (!(trouble instanceof Changed)) return <FailureNotice of={of} error={trouble} />;
  const now = trouble.current;
  if (now === undefined)
    return (
      <Notice kind="warning" title="Someone else deleted this plant.">
        <div class="form-actions">
          <Button onClick={() => onTake(undefined)}>OK</Button>
        </div>
      </Notice>
    );
  const { name, tag } = now.plant;
  const { state, take, insist } = conflictTexts[of];
  // Either way of settling a save loses someone's edit, so neither is recommended.
  const [takeKind, insistKind] = of === "deletion" ? (["main", "danger"] as const) : [];
  return (
    <Notice kind="warning" title={`Someone else changed this plant. ${state}`} text="It is now:">
      <Terms
        class="facts now"
        of={[
          ["Name", name === "" ? <i>no name</i> : formatName(now.plant)],
          ["Tag", tag === undefined ? <i>none</i> : tag === "" ? <i>empty</i> : tag],
        ]}
      />
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
