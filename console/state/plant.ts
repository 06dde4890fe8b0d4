/** The plant of the open panel: as it is stored, its draft, and what can be done with both. A concurrent change is shown, not overwritten. */

import { signal } from "@preact/signals";
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
import { explain, isAbort, isStatus } from "../api/service.ts";
import { fill, t } from "../text/text.ts";
import { formatName } from "./format.ts";
import { list, removeWithUndo, restore, rewrites, takeBack, toastChanged } from "./plants.ts";
import { openPlant, route } from "./route.ts";
import { discardEdit, saveLater } from "./saving.ts";
import { mayWrite, token } from "./session.ts";
import { findDraft, keepDraft } from "./storage.ts";
import { Submission } from "./submission.ts";
import { toast, toastDone, type Verb } from "./toasts.ts";
import { findWriter, someoneElse } from "./writes.ts";

export class OpenPlant {
  readonly id: bigint;
  readonly loaded = signal<Versioned | "loading" | "missing" | Error>("loading");
  /** Who changed the plant after the edit began. */
  readonly rival = signal(someoneElse);
  readonly submission = new Submission();
  readonly #isStale = signal(false);
  #isLeft = false;

  constructor(id: bigint) {
    this.id = id;
  }

  get versioned(): Versioned | undefined {
    const { value } = this.loaded;
    return typeof value === "object" && "plant" in value ? value : undefined;
  }

  get draft() {
    return mayWrite.value ? findDraft(this.id) : undefined;
  }

  /** As it is stored, or as the list has it until it is read. */
  get known(): Plant | undefined {
    return this.versioned?.plant ?? list.value.plants[list.value.indexOf(this.id)];
  }

  get isRead(): boolean {
    return this.versioned !== undefined || this.loaded.value === "missing";
  }

  /** Someone else changed the plant after the edit began. */
  get isBehind(): boolean {
    return this.isRead && this.#isStale.value && !this.submission.isBusy.value;
  }

  isDrafted(plant: Plant | undefined): boolean {
    const edited = findDraft(this.id);
    return edited !== undefined && plant !== undefined && isSame({ ...edited, id: this.id }, plant);
  }

  /** At once if it is known to be gone. */
  read(isGone: boolean): AbortController | undefined {
    // The change may be this page's own write, whose answer is still to come.
    if (this.submission.isBusy.value) return undefined;
    if (isGone && this.loaded.value !== "loading") {
      this.#accept(undefined);
      return undefined;
    }
    const ending = new AbortController();
    findPlant(this.id, ending.signal).then(
      (found) => {
        this.#accept(found);
        // The user may have closed it, or moved on.
        if (found !== undefined && route.value.open === this.id) list.value.active.value = this.id;
      },
      (error: Error) => {
        if (!isAbort(error) && this.versioned === undefined) this.loaded.value = error;
      },
    );
    return ending;
  }

  /** Undefined means that the plant is gone. */
  #accept(now: Versioned | undefined): void {
    const { id } = this;
    // A draft without edits, or equal to the stored plant, is rebased on the current version.
    const isUntouched = this.isDrafted(this.versioned?.plant) || this.isDrafted(now?.plant);
    if (now !== undefined && !this.submission.isBusy.value && isUntouched) this.edit(now);
    this.loaded.value = now ?? "missing";
    this.#isStale.value = findDraft(id)?.etag !== now?.etag && !this.isDrafted(now?.plant);
    if (this.#isStale.value && findDraft(id) !== undefined)
      void findLastChange(id).then((change) => {
        this.rival.value = findWriter(id, now?.plant, change);
      });
    if (now === undefined) list.value.take(id);
    else list.value.put(now.plant);
  }

  /** The panel shows another plant, or none. An edit that was not sent has a toast that leads back. */
  leave(): void {
    this.#isLeft = true;
    const { id, versioned } = this;
    if (findDraft(id) === undefined || versioned === undefined) return;
    if (this.isDrafted(versioned.plant)) keepDraft(id, undefined);
    else if (!this.submission.isBusy.value && token.value !== undefined)
      toast(fill(t.plants.editLeft, { plant: formatName(versioned.plant) }), {
        ...this.#open,
        draft: id,
      });
  }

  get #open() {
    return { label: t.shared.open, run: () => openPlant(this.id) };
  }

  discard(): void {
    discardEdit(this.id);
    this.submission.trouble.value = undefined;
    this.#isStale.value = false;
  }

  edit({ etag, plant: { name, tag } }: Versioned): void {
    this.discard();
    keepDraft(this.id, { name, tag, etag });
  }

  save(edited: Plant, over: string, verb: Verb = "changed"): Promise<void> {
    const { id, versioned } = this;
    const before = versioned?.plant ?? edited;
    return this.submission.run(async () => {
      saveLater(id, undefined);
      try {
        const saved = await saveEdit(before, edited, over, verb);
        // Someone else may have changed it since.
        this.#accept(await findPlant(id).catch(() => saved));
      } catch (error) {
        if (isStatus(error, 0)) {
          const send = (): Promise<unknown> => saveEdit(before, edited, over, verb);
          return saveLater(id, { plant: edited, send });
        }
        if (error instanceof Changed) this.#accept(error.current);
        const isShown = !this.#isLeft && findDraft(id) !== undefined;
        if (!isShown)
          toast(
            fill(t.plants.editUnconfirmed, { plant: formatName(edited), why: explain(error) }),
            { ...this.#open, isNeeded: true, draft: findDraft(id) && id },
          );
        else if (!(error instanceof Changed)) throw error;
      }
    });
  }

  readonly bringBack = async (earlier: Plant): Promise<void> => {
    const { versioned } = this;
    if (versioned !== undefined) return this.save(earlier, versioned.etag, "restored");
    await restore(earlier);
    this.#accept(await findPlant(this.id));
  };

  /** Another person deleted it. */
  addAgain(edited: Plant): Promise<void> {
    return this.submission.run(async () => {
      try {
        await createPlant(edited);
      } catch (error) {
        if (!(error instanceof Taken)) throw error;
        return this.#accept(error.current);
      }
      this.discard();
      toastDone("added", edited, () => takeBack(edited));
      this.#accept(await findPlant(this.id));
    });
  }

  remove(which: Versioned, close: () => void): Promise<void> {
    return this.submission.run(async () => {
      try {
        await removeWithUndo(which);
      } catch (error) {
        if (!(error instanceof Changed)) throw error;
        this.#accept(error.current);
        if (error.current !== undefined)
          toast(fill(t.plants.notDeletedYet, { why: error.message }));
        return;
      }
      // Another plant may be open by now.
      if (route.value.open === this.id) close();
    });
  }
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
