/** Shows, edits and deletes one plant. A concurrent change is shown, not overwritten. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { findFaults } from "../../src/domain/faults.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { findLastChange } from "../api/changes.ts";
import {
  Changed,
  createPlant,
  findPlant,
  replacePlant,
  Taken,
  type Versioned,
} from "../api/plants.ts";
import { explain, isAbort, isStatus, recoveries } from "../api/service.ts";
import { useNews } from "../state/feed.ts";
import { formatName } from "../state/format.ts";
import {
  list,
  removeWithUndo,
  restore,
  rewrites,
  takeBack,
  toastChanged,
} from "../state/plants.ts";
import { openPlant, refine, route } from "../state/route.ts";
import { findLimits } from "../state/rules.ts";
import { saveLater, waiting } from "../state/saving.ts";
import { mayWrite, token } from "../state/session.ts";
import { type Draft, findDraft, keepDraft } from "../state/storage.ts";
import { withoutTime } from "../state/subject.ts";
import { toast, toastDone, type Verb } from "../state/toasts.ts";
import { findWriter, someoneElse, type Writer } from "../state/writes.ts";
import { fill, t } from "../text/text.ts";
import { Button, Field, Form, Notice, Terms } from "./controls.tsx";
import {
  FailureNotice,
  findDoubt,
  judgeText,
  selectField,
  TagField,
  useTask,
  WaitingNotice,
} from "./form.tsx";
import { addAnother } from "./add-panel.tsx";
import { History, Version } from "./history.tsx";
import { labelled } from "./labels.tsx";
import { closePanel, Panel } from "./panel.tsx";
import { Tag } from "./tag.tsx";

type Loaded = Versioned | "loading" | "missing" | Error;

const findVersioned = (loaded: Loaded): Versioned | undefined =>
  typeof loaded === "object" && "plant" in loaded ? loaded : undefined;

/** The plant as it is stored, its draft, and what can be done with both. */
function usePlant(id: bigint) {
  const loaded = useSignal<Loaded>("loading");
  /** Someone else changed the plant after the edit began. */
  const isStale = useSignal(false);
  const rival = useSignal(someoneElse);
  const { isBusy, trouble, run } = useTask();
  const isLeft = useRef(false);
  const news = useNews((change) => change.id === id);

  const current = loaded.value;
  const versioned = findVersioned(current);
  const isDrafted = (plant: Plant | undefined): boolean => {
    const edited = findDraft(id);
    return edited !== undefined && plant !== undefined && isSame({ ...edited, id }, plant);
  };

  /** Undefined means that the plant is gone. */
  const accept = (now: Versioned | undefined): void => {
    // A draft without edits, or equal to the stored plant, is rebased on the current version.
    const isUntouched = isDrafted(findVersioned(loaded.value)?.plant) || isDrafted(now?.plant);
    if (now !== undefined && !isBusy.value && isUntouched) edit(now);
    loaded.value = now ?? "missing";
    isStale.value = findDraft(id)?.etag !== now?.etag && !isDrafted(now?.plant);
    if (isStale.value && findDraft(id) !== undefined)
      void findLastChange(id).then((change) => {
        rival.value = findWriter(id, now?.plant, change);
      });
    if (now === undefined) list.value.take(id);
    else list.value.put(now.plant);
  };
  useEffect(() => {
    // The change may be this panel's own write, whose answer is still to come.
    if (isBusy.value) return undefined;
    if (news?.type === "removed" && loaded.value !== "loading") return accept(undefined);
    const controller = new AbortController();
    findPlant(id, controller.signal).then(
      (found) => {
        accept(found);
        // The user may have closed it, or moved on.
        if (found !== undefined && route.value.open === id) list.value.active.value = id;
      },
      (error: Error) => {
        if (!isAbort(error) && versioned === undefined) loaded.value = error;
      },
    );
    return () => controller.abort();
  }, [id, recoveries.value, rewrites.value, news?.seq]);
  useEffect(
    () => () => {
      isLeft.current = true;
      const left = findVersioned(loaded.value);
      if (findDraft(id) === undefined || left === undefined) return;
      if (isDrafted(left.plant)) keepDraft(id, undefined);
      else if (!isBusy.value && token.value !== undefined)
        toast(fill(t.plants.editLeft, { plant: formatName(left.plant) }), { ...open, draft: id });
    },
    [],
  );

  const open = { label: t.shared.open, run: () => openPlant(id) };
  const discard = (): void => {
    keepDraft(id, undefined);
    saveLater(id, undefined);
    trouble.value = undefined;
    isStale.value = false;
  };
  const edit = ({ etag, plant: { name, tag } }: Versioned): void => {
    discard();
    keepDraft(id, { name, tag, etag });
  };
  const save = (edited: Plant, over: string, verb: Verb = "changed"): Promise<void> =>
    run(async () => {
      const before = versioned?.plant ?? edited;
      saveLater(id, undefined);
      try {
        const saved = await saveEdit(before, edited, over, verb);
        // Someone else may have changed it since.
        accept(await findPlant(id).catch(() => saved));
      } catch (error) {
        if (isStatus(error, 0)) {
          const send = (): Promise<unknown> => saveEdit(before, edited, over, verb);
          return saveLater(id, { plant: edited, send });
        }
        if (error instanceof Changed) accept(error.current);
        const isShown = !isLeft.current && findDraft(id) !== undefined;
        if (!isShown)
          toast(
            fill(t.plants.editUnconfirmed, { plant: formatName(edited), why: explain(error) }),
            { ...open, isNeeded: true, draft: findDraft(id) && id },
          );
        else if (!(error instanceof Changed)) throw error;
      }
    });
  const bringBack = async (earlier: Plant): Promise<void> => {
    if (versioned !== undefined) return save(earlier, versioned.etag, "restored");
    await restore(earlier);
    accept(await findPlant(id));
  };
  /** Another person deleted it. */
  const addAgain = (edited: Plant): Promise<void> =>
    run(async () => {
      try {
        await createPlant(edited);
      } catch (error) {
        if (!(error instanceof Taken)) throw error;
        return accept(error.current);
      }
      discard();
      toastDone("added", edited, () => takeBack(edited));
      accept(await findPlant(id));
    });
  const remove = (which: Versioned): Promise<void> =>
    run(async () => {
      try {
        await removeWithUndo(which);
      } catch (error) {
        if (!(error instanceof Changed)) throw error;
        accept(error.current);
        if (error.current !== undefined)
          toast(fill(t.plants.notDeletedYet, { why: error.message }));
        return;
      }
      // Another plant may be open by now.
      if (route.value.open === id) closePanel();
    });

  return {
    current,
    versioned,
    draft: mayWrite.value ? findDraft(id) : undefined,
    isDrafted,
    isBusy: isBusy.value,
    isBehind: isStale.value && !isBusy.value,
    rival: rival.value,
    trouble: trouble.value,
    edit,
    discard,
    save,
    bringBack,
    addAgain,
    remove,
  };
}

export function PlantPanel({ id }: { readonly id: bigint }): JSX.Element {
  const { current, versioned, draft, isBusy, trouble, discard, ...plant } = usePlant(id);
  /** The name that the user is asked about. */
  const askedName = useSignal<string | undefined>(undefined);
  const isRead = versioned !== undefined || current === "missing";
  const isEdited = draft !== undefined && isRead;
  const isBehind = isEdited && plant.isBehind;
  const notice = (
    <>
      {isBehind && (
        <ConflictNotice
          {...plant.rival}
          now={versioned}
          mine={{ ...draft, id }}
          onTake={discard}
          onInsist={(now) => void plant.save({ ...draft, id }, now.etag)}
          onAdd={() => void plant.addAgain({ ...draft, id })}
        />
      )}
      {waiting.value.has(id) && <WaitingNotice />}
      {trouble !== undefined && (
        <FailureNotice of={draft === undefined ? "deletion" : "save"} error={trouble} />
      )}
    </>
  );
  const known = versioned?.plant ?? list.value.plants[list.value.indexOf(id)];
  // The draft of a deleted plant is kept until the user discards it.
  const isTouched = isEdited && !plant.isDrafted(known);
  const doubt =
    draft === undefined || draft.name === known?.name
      ? undefined
      : findDoubt(String(id), draft.name);
  const submit = (edited: Draft, isSure: boolean): void => {
    if (!isTouched) return discard();
    if (findFaults(id, edited.name, edited.tag, findLimits()) !== undefined) return undefined;
    askedName.value = doubt === undefined || isSure ? undefined : edited.name;
    // Typing replaces the name. Enter does not answer.
    if (askedName.value !== undefined) return selectField(document.querySelector("#edit-name"));
    return void plant.save({ ...edited, id }, edited.etag ?? "");
  };
  if (isEdited)
    return (
      <Panel title={t.plants.editPlant} id={id}>
        <EditForm
          draft={draft}
          // An input would drop line breaks.
          isMultiline={/[\r\n]/.test(known?.name ?? "")}
          isTouched={isTouched}
          isBusy={isBusy}
          isBehind={isBehind}
          doubt={askedName.value === draft.name ? doubt : undefined}
          notice={notice}
          onChange={(change) => keepDraft(id, { ...draft, ...findDraft(id), ...change })}
          onSubmit={(isSure) => submit(draft, isSure)}
          onCancel={discard}
        />
      </Panel>
    );
  return (
    <Panel title={t.plants.plant} id={id}>
      {current === "loading" && known === undefined && <p class="faint late">{t.shared.loading}</p>}
      {current === "missing" && (
        <Notice kind="warning" title={t.plants.missing} text={t.plants.maybeDeleted} />
      )}
      {current instanceof Error && (
        <Notice kind="fault" title={t.plants.notRead} text={explain(current)} />
      )}
      {known !== undefined && current !== "missing" && <Shown plant={known} />}
      {notice}
      {versioned !== undefined && (
        <div class="form-actions">
          {mayWrite.value && (
            <Button icon="edit" aria-keyshortcuts="e" onClick={() => plant.edit(versioned)}>
              {t.plants.edit}
            </Button>
          )}
          <Button
            icon="print"
            onClick={() => labelled.open({ plants: [withoutTime(versioned.plant)] })}
          >
            {t.plants.label}
          </Button>
          {mayWrite.value && (
            <>
              <Button icon="plus" onClick={() => addAnother(versioned.plant)}>
                {t.plants.addAnother}
              </Button>
              <Button
                kind="danger"
                icon="trash"
                aria-keyshortcuts="Delete"
                disabled={isBusy}
                onClick={() => void plant.remove(versioned)}
              >
                {t.shared.delete}
              </Button>
            </>
          )}
        </div>
      )}
      {isRead && (
        <section class="history" aria-labelledby="history-title">
          <h3 id="history-title">{t.plants.history}</h3>
          <History
            id={id}
            isThere={(one) => versioned !== undefined && isSame(one, versioned.plant)}
            onBringBack={plant.bringBack}
          />
        </section>
      )}
    </Panel>
  );
}

interface EditFormProps extends Readonly<
  Record<"isMultiline" | "isTouched" | "isBusy" | "isBehind", boolean>
> {
  readonly draft: Draft;
  /** What the user is asked about the name before it is saved. */
  readonly doubt: string | undefined;
  readonly notice: JSX.Element;
  readonly onChange: (change: Partial<Draft>) => void;
  readonly onSubmit: (isSure: boolean) => void;
  readonly onCancel: () => void;
}

function EditForm(props: EditFormProps): JSX.Element {
  const { draft, doubt, isBusy, onChange, onSubmit } = props;
  return (
    <Form onSubmit={() => onSubmit(false)}>
      <Field
        id="edit-name"
        label={t.shared.name}
        required
        inputRef={selectField}
        control={props.isMultiline ? "textarea" : undefined}
        value={draft.name}
        onText={(name) => onChange({ name })}
        {...judgeText("name", draft.name)}
      />
      <TagField id="edit-tag" value={draft.tag} onText={(tag) => onChange({ tag })} />
      {props.notice}
      {doubt !== undefined && (
        <Notice kind="warning" title={fill(t.plants.askSave, { doubt })}>
          <div class="form-actions">
            <Button onClick={() => onSubmit(true)}>{t.plants.saveAnyway}</Button>
          </div>
        </Notice>
      )}
      {!props.isBehind && (
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy}>
            {isBusy ? t.plants.saving : t.plants.save}
          </Button>
          {/* With an edit, Escape closes the panel and keeps the draft. */}
          <Button
            aria-keyshortcuts={props.isTouched ? undefined : "Escape"}
            onClick={props.onCancel}
          >
            {t.shared.cancel}
          </Button>
        </div>
      )}
    </Form>
  );
}

/** Throws Changed, unless the plant is already as it is meant to be: then an answer was lost. */
export async function saveEdit(before: Plant, edited: Plant, over: string, verb: Verb) {
  const { id } = edited;
  const saved = await replacePlant(edited, over).catch((error: unknown) => {
    const current = error instanceof Changed ? error.current : undefined;
    if (current === undefined || !isSame(current.plant, edited)) throw error;
    return current;
  });
  const kept = findDraft(id);
  // The user may have edited further meanwhile.
  const isFurther = kept !== undefined && !isSame({ ...kept, id }, edited);
  keepDraft(id, isFurther ? { ...kept, etag: saved.etag } : undefined);
  list.value.put(saved.plant);
  rewrites.value++;
  toastChanged(verb, before, saved);
  return saved;
}

/** Longer names scroll. */
const LONG_CHARACTERS = 200;

function Shown({ plant }: { readonly plant: Plant }): JSX.Element {
  const { name, tag } = plant;
  return (
    <div class="shown">
      {/* A long name scrolls, so the buttons stay visible. */}
      <p class="shown-name" tabIndex={name.length > LONG_CHARACTERS ? 0 : undefined}>
        {name.trim() === "" ? <i class="faint">{t.shared.noName}</i> : name}
      </p>
      {tag === undefined ? (
        <span class="faint">{t.plants.noTag}</span>
      ) : (
        <Tag tag={tag} onPick={() => refine({ tag, tagged: undefined })} />
      )}
    </div>
  );
}

interface ConflictProps extends Writer {
  readonly now: Versioned | undefined;
  readonly mine: Plant;
  /** Discards the edit. */
  readonly onTake: () => void;
  /** Overwrites the version that is shown. */
  readonly onInsist: (now: Versioned) => void;
  /** Adds the deleted plant as it was edited. */
  readonly onAdd: () => void;
}

/** Either way loses someone's edit, so neither is recommended. */
function ConflictNotice(props: ConflictProps): JSX.Element {
  const { kind, who, now, mine, onTake, onInsist, onAdd } = props;
  return (
    <Notice
      kind="warning"
      title={fill(t.plants.conflict[now === undefined ? "deleted" : "changed"][kind], { who })}
    >
      {now !== undefined && (
        <Terms
          class="facts"
          of={[
            [t.plants.now, <Version plant={now.plant} since={mine} />],
            [t.plants.yours, <Version plant={mine} before={now.plant} />],
          ]}
        />
      )}
      <div class="form-actions">
        <Button onClick={onTake}>{t.plants.discardEdit}</Button>
        {now === undefined ? (
          <Button onClick={onAdd}>{t.plants.addItAgain}</Button>
        ) : (
          <Button onClick={() => onInsist(now)}>{t.plants.overwrite}</Button>
        )}
      </div>
    </Notice>
  );
}
