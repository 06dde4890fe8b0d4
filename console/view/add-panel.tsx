/** The form for a new plant. It warns if the id is taken, and asks before it adds a doubtful name. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { createFault, findFaults } from "../../src/domain/faults.ts";
import { findInt64, INT64_MAX, INT64_MIN } from "../../src/domain/json.ts";
import { isRounded, type Plant } from "../../src/domain/plant.ts";
import { findFreeId, findNamesake, findTaken, Taken } from "../api/plants.ts";
import { isStatus } from "../api/service.ts";
import { clipName, formatName, quote } from "../state/format.ts";
import { personal } from "../state/person.ts";
import { addWithUndo, list } from "../state/plants.ts";
import { linkTo, openPlant } from "../state/route.ts";
import { explainFault, findLimits } from "../state/rules.ts";
import { saveLater, waiting } from "../state/saving.ts";
import { mayRead, token } from "../state/session.ts";
import { type Draft, findDraft, keep, keepDraft, recall, trail } from "../state/storage.ts";
import { announce, toast } from "../state/toasts.ts";
import { fill, rich, t } from "../text/text.ts";
import { Button, Field, Form, Notice } from "./controls.tsx";
import {
  FailureNotice,
  findDoubt,
  focusField,
  isCode,
  judgeText,
  selectField,
  TagField,
  useLookUp,
  useSubmission,
  WaitingNotice,
} from "./form.tsx";
import { Panel } from "./panel.tsx";

/** The id and tag that were added last, as defaults for the next plant. */
interface Added {
  readonly id: string;
  readonly tag?: string | undefined;
}

/** A code that no plant has, scanned while another new plant has its name already. */
const scanned = personal<string | undefined>(undefined);

/** The scanned code is the id of the new plant. A plant that has a name keeps its own id, unless the user says so. */
export function takeNewId(code: string): void {
  const draft = findDraft("new") ?? createDraft();
  if (draft.name.trim() !== "" && draft.id?.trim() !== code) {
    scanned.value = code;
    return;
  }
  keepDraft("new", { ...draft, id: code });
  focusField("add-name");
}

/** The same name and tag, under the next free id. A plant that is not added yet comes first. */
export function addAnother({ name, tag }: Plant): void {
  const left = findDraft("new");
  if (left === undefined || left.name.trim() === "") keepDraft("new", { name, tag });
  else toast(fill(t.plants.notAdded, { name: quote(clipName(left.name)) }));
  openPlant("new");
}

const recallAdded = (): Added | undefined =>
  recall("sessionStorage", trail.added) as Added | undefined;

/** A new plant has the tag of the one before. */
const createDraft = (): Draft => ({ name: "", tag: recallAdded()?.tag });

const explainId = (id: string): string =>
  isRounded(id)
    ? explainFault(createFault("rounded", { field: "id", value: id.trim() }))
    : fill(t.plants.idExpected, { min: String(INT64_MIN), max: String(INT64_MAX) });

/** The id until one is typed: the one that was searched for in vain, or the next free one. */
function useProposedId(): bigint | undefined {
  const lastId = findInt64(recallAdded()?.id ?? "");
  const free = useLookUp(lastId ?? "none", () => findFreeId(lastId));
  const { holder, searchedId } = list.value;
  return holder.value === null ? searchedId : free;
}

/** When the panel closes, a toast leads back to a plant that has a name and was not sent. */
function useReminder(isBusy: ReadonlySignal<boolean>): void {
  useEffect(
    () => () => {
      scanned.value = undefined;
      const left = findDraft("new");
      if (left === undefined || left.name.trim() === "" || token.value === undefined) return;
      const open = { label: t.shared.open, draft: "new", run: () => openPlant("new") } as const;
      if (!isBusy.value) toast(fill(t.plants.notAdded, { name: quote(clipName(left.name)) }), open);
    },
    [],
  );
}

/** Sends the plant of the form; without a connection, as soon as there is one. */
async function addPlant(plant: Plant, onAdded: () => void): Promise<void> {
  const sent = findDraft("new");
  saveLater("new", undefined);
  const send = async (isAgain: boolean): Promise<void> => {
    await addWithUndo(plant, isAgain);
    keep("sessionStorage", trail.added, { id: String(plant.id), tag: plant.tag });
    onAdded();
    // The user may have started the next plant or a search meanwhile.
    if (findDraft("new") !== sent) return;
    keepDraft("new", undefined);
    if (!document.activeElement?.closest(".plants-list"))
      // The id is proposed, if the plants may be read.
      focusField(mayRead.value ? "add-name" : "add-id");
  };
  try {
    await send(false);
  } catch (error) {
    if (!isStatus(error, 0)) throw error;
    saveLater("new", { plant, send: () => send(true) });
  }
}

const UseAsId = ({ onClick }: { readonly onClick: () => void }): JSX.Element => (
  <Button
    onClick={() => {
      onClick();
      focusField("add-name");
    }}
  >
    {t.plants.useAsId}
  </Button>
);

interface NameFieldProps {
  readonly name: string;
  readonly onText: (name: string) => void;
}

/** Says while it is typed that another plant has the name. */
function NameField({ name, onText }: NameFieldProps): JSX.Element {
  const namesake = useLookUp(name || undefined, (stopped) => findNamesake(name, stopped));
  const { fault, note } = judgeText("name", name);
  const link = namesake && (
    <a href={linkTo(namesake.id)}>{fill(t.plants.plantOfId, { id: String(namesake.id) })}</a>
  );
  return (
    <Field
      {...{ id: "add-name", label: t.shared.name, value: name, onText, fault }}
      required
      note={link ? <>{rich(t.plants.namesake, { plant: link })}</> : note}
    />
  );
}

export function AddPanel(): JSX.Element {
  const draft = findDraft("new") ?? createDraft();
  const { name, tag } = draft;
  /** Whether the user is asked about the name. */
  const isAsked = useSignal(false);
  const put = (change: Partial<Draft>): void => {
    keepDraft("new", { ...draft, ...change });
    isAsked.value = false;
    scanned.value = undefined;
  };
  const proposed = useProposedId();
  const id = draft.id ?? String(proposed ?? "");
  /** No fault is shown while the id is still being typed. */
  const isJudged = useSignal(false);
  const { isBusy, trouble, run } = useSubmission();
  const exactId = isRounded(id) ? undefined : findInt64(id.trim());
  const faults = findFaults(exactId, name, tag, findLimits()) ?? {};
  const takenBy = useLookUp(exactId, (stopped) => findTaken(exactId ?? 0n, stopped));
  useReminder(isBusy);
  // Selected, so typing replaces the proposal. An id that was typed already is not selected.
  useLayoutEffect(() => {
    const field = document.activeElement as HTMLInputElement | null;
    if (field?.id === "add-id" && draft.id === undefined) field.select();
  }, [proposed]);

  const doubt = findDoubt(id, name);
  const submit = (isSure: boolean): void => {
    isJudged.value = true;
    const [faulty] = Object.keys(faults);
    if (exactId === undefined || faulty !== undefined) {
      announce(t.plants.nothingSent);
      return focusField(`add-${faulty}`);
    }
    isAsked.value = doubt !== undefined && !isSure;
    // Typing replaces the name. Enter does not answer: some scanners send it twice.
    if (isAsked.value) return selectField(document.querySelector("#add-name"));
    const plant = { id: exactId, name, tag };
    void run(() => addPlant(plant, () => (isJudged.value = false)));
  };

  const error = trouble.value;
  const label = error === undefined || error instanceof Taken ? t.plants.add : t.shared.tryAgain;
  return (
    <Panel title={t.plants.addOne}>
      <Form onSubmit={() => submit(false)}>
        <Field
          id="add-id"
          label={t.shared.id}
          inputRef={selectField}
          fault={isJudged.value && faults.id ? explainId(id) : undefined}
          note={
            takenBy !== undefined &&
            error === undefined && (
              <>
                {rich(t.plants.idTakenBy, {
                  plant: <a href={linkTo(takenBy.id)}>{formatName(takenBy)}</a>,
                })}
              </>
            )
          }
          class="digits"
          inputMode="numeric"
          required
          value={id}
          onText={(text) => {
            put({ id: text });
            trouble.value = undefined;
          }}
          onKeyDown={(event) => {
            // A barcode scanner sends Enter after the digits.
            if (event.key !== "Enter") return;
            event.preventDefault();
            focusField("add-name");
          }}
          onBlur={() => {
            // An emptied field gets the proposal back.
            if (draft.id === "") put({ id: undefined });
            else isJudged.value ||= id !== "";
          }}
        />
        <NameField name={name} onText={(text) => put({ name: text })} />
        <TagField id="add-tag" value={tag} onText={(text) => put({ tag: text })} />
        {waiting.value.has("new") && <WaitingNotice />}
        {error !== undefined && <FailureNotice of="save" error={error} />}
        {scanned.value !== undefined && (
          <Notice kind="warning" title={fill(t.plants.scannedUnknown, { id: scanned.value })}>
            <div class="form-actions">
              <UseAsId onClick={() => put({ id: scanned.value })} />
            </div>
          </Notice>
        )}
        {isAsked.value && doubt !== undefined && (
          <Notice kind="warning" title={fill(t.plants.askAdd, { doubt })}>
            <div class="form-actions">
              {isCode(name) && name.trim() !== id.trim() && (
                <UseAsId onClick={() => put({ id: name.trim(), name: "" })} />
              )}
              <Button onClick={() => submit(true)}>{t.plants.addAnyway}</Button>
            </div>
          </Notice>
        )}
        <div class="form-actions">
          <Button type="submit" kind="main" disabled={isBusy.value}>
            {isBusy.value ? t.plants.sending : label}
          </Button>
        </div>
      </Form>
    </Panel>
  );
}
