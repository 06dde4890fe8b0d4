/** Shows, edits and deletes one plant. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { findFaults } from "../../src/domain/faults.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import type { Versioned } from "../api/plants.ts";
import { explain, recoveries } from "../api/service.ts";
import { useNews } from "../state/feed.ts";
import { OpenPlant } from "../state/plant.ts";
import { rewrites } from "../state/plants.ts";
import { refine } from "../state/route.ts";
import { findLimits } from "../state/rules.ts";
import { waiting } from "../state/saving.ts";
import { mayWrite } from "../state/session.ts";
import { type Draft, findDraft, keepDraft } from "../state/storage.ts";
import { withoutTime } from "../state/subject.ts";
import type { Writer } from "../state/writes.ts";
import { fill, t } from "../text/text.ts";
import { Button, Field, Form, Notice, Terms } from "./controls.tsx";
import {
  FailureNotice,
  findDoubt,
  judgeText,
  selectField,
  TagField,
  WaitingNotice,
} from "./form.tsx";
import { addAnother } from "./add-panel.tsx";
import { History, Version } from "./history.tsx";
import { labelled } from "./labels.tsx";
import { closePanel, Panel } from "./panel.tsx";
import { Tag } from "./tag.tsx";

/** As it is stored now, and read again when others change it. */
function useOpen(id: bigint): OpenPlant {
  const plant = useMemo(() => new OpenPlant(id), [id]);
  const news = useNews((change) => change.id === id);
  useEffect(() => {
    const reading = plant.read(news?.type === "removed");
    return () => reading?.abort();
  }, [id, recoveries.value, rewrites.value, news?.seq]);
  useEffect(() => () => plant.leave(), [id]);
  return plant;
}

export function PlantPanel({ id }: { readonly id: bigint }): JSX.Element {
  const plant = useOpen(id);
  const { draft } = plant;
  const isEdited = draft !== undefined && plant.isRead;
  return (
    <Panel title={isEdited ? t.plants.editPlant : t.plants.plant} id={id}>
      {isEdited ? <EditForm plant={plant} draft={draft} /> : <Reading plant={plant} />}
    </Panel>
  );
}

interface PartProps {
  readonly plant: OpenPlant;
}

function Notices({ plant }: PartProps): JSX.Element {
  const { id, versioned, draft } = plant;
  const trouble = plant.submission.trouble.value;
  return (
    <>
      {draft !== undefined && plant.isBehind && (
        <ConflictNotice
          {...plant.rival.value}
          now={versioned}
          mine={{ ...draft, id }}
          onTake={() => plant.discard()}
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
}

/** Without an edit. */
function Reading({ plant }: PartProps): JSX.Element {
  const { id, known, versioned } = plant;
  const loaded = plant.loaded.value;
  return (
    <>
      {loaded === "loading" && known === undefined && <p class="faint late">{t.shared.loading}</p>}
      {loaded === "missing" && (
        <Notice kind="warning" title={t.plants.missing} text={t.plants.maybeDeleted} />
      )}
      {loaded instanceof Error && (
        <Notice kind="fault" title={t.plants.notRead} text={explain(loaded)} />
      )}
      {known !== undefined && loaded !== "missing" && <Shown plant={known} />}
      <Notices plant={plant} />
      {versioned !== undefined && <Actions plant={plant} versioned={versioned} />}
      {plant.isRead && (
        <section class="history" aria-labelledby="history-title">
          <h3 id="history-title">{t.plants.history}</h3>
          <History
            id={id}
            isThere={(one) => versioned !== undefined && isSame(one, versioned.plant)}
            onBringBack={plant.bringBack}
          />
        </section>
      )}
    </>
  );
}

const Actions = ({ plant, versioned }: PartProps & { versioned: Versioned }): JSX.Element => (
  <div class="form-actions">
    {mayWrite.value && (
      <Button icon="edit" aria-keyshortcuts="e" onClick={() => plant.edit(versioned)}>
        {t.plants.edit}
      </Button>
    )}
    <Button icon="print" onClick={() => labelled.open({ plants: [withoutTime(versioned.plant)] })}>
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
          disabled={plant.submission.isBusy.value}
          onClick={() => void plant.remove(versioned, closePanel)}
        >
          {t.shared.delete}
        </Button>
      </>
    )}
  </div>
);

function EditForm({ plant, draft }: PartProps & { readonly draft: Draft }): JSX.Element {
  const { id, known } = plant;
  /** The name that the user is asked about. */
  const askedName = useSignal<string | undefined>(undefined);
  const isBusy = plant.submission.isBusy.value;
  // The draft of a deleted plant is kept until the user discards it.
  const isTouched = !plant.isDrafted(known);
  const doubt = draft.name === known?.name ? undefined : findDoubt(String(id), draft.name);
  const change = (to: Partial<Draft>): void => keepDraft(id, { ...draft, ...findDraft(id), ...to });
  const submit = (isSure: boolean): void => {
    const { name, tag, etag = "" } = draft;
    if (!isTouched) return plant.discard();
    if (findFaults(id, name, tag, findLimits()) !== undefined) return undefined;
    askedName.value = doubt === undefined || isSure ? undefined : name;
    // Typing replaces the name. Enter does not answer.
    if (askedName.value !== undefined) return selectField(document.querySelector("#edit-name"));
    return void plant.save({ id, name, tag }, etag);
  };
  return (
    <Form onSubmit={() => submit(false)}>
      <Field
        id="edit-name"
        label={t.shared.name}
        required
        inputRef={selectField}
        // An input would drop line breaks.
        control={/[\r\n]/.test(known?.name ?? "") ? "textarea" : undefined}
        value={draft.name}
        onText={(name) => change({ name })}
        {...judgeText("name", draft.name)}
      />
      <TagField id="edit-tag" value={draft.tag} onText={(tag) => change({ tag })} />
      <Notices plant={plant} />
      {doubt !== undefined && askedName.value === draft.name && (
        <Notice kind="warning" title={fill(t.plants.askSave, { doubt })}>
          <div class="form-actions">
            <Button onClick={() => submit(true)}>{t.plants.saveAnyway}</Button>
          </div>
        </Notice>
      )}
      {!plant.isBehind && (
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy}>
            {isBusy ? t.plants.saving : t.plants.save}
          </Button>
          {/* With an edit, Escape closes the panel and keeps the draft. */}
          <Button
            aria-keyshortcuts={isTouched ? undefined : "Escape"}
            onClick={() => plant.discard()}
          >
            {t.shared.cancel}
          </Button>
        </div>
      )}
    </Form>
  );
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
