/** The list that is shown, and what staff do to its plants. */

import { effect, signal, untracked } from "@preact/signals";
import type { Plant } from "../../domain/plant.ts";
import { createPlant, removePlant, type Versioned } from "../api/plants.ts";
import { explain, isStatus } from "../api/service.ts";
import { announce } from "./announcements.ts";
import { recoveries } from "./connection.ts";
import { formatName } from "./numbers.ts";
import { PlantList } from "./plant-list.ts";
import { everything, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { toast } from "./toasts.ts";

export const list = signal(new PlantList(everything));

const show = (next: PlantList): void => {
  list.value.stop();
  list.value = next;
  void next.loadMore().then(() => {
    const { phase, plants } = next;
    if (list.value !== next || phase.value === "failed") return;
    const more = phase.value === "end" ? "" : " and more";
    announce(
      plants.length === 0
        ? "No plants found."
        : `${plants.length}${more} ${plants.length === 1 && more === "" ? "plant" : "plants"}.`,
    );
  });
};

let shownFor = "";

/** One list for a filter and a token; another view in between leaves it as it is. */
export function startLists(): void {
  effect(() => {
    const current = route.value;
    if (token.value === undefined) {
      shownFor = "";
      untracked(() => {
        list.value.stop();
        list.value = new PlantList(everything);
      });
      return;
    }
    if (!mayRead.value || current.view !== "plants") return;
    const { name, tag, order } = current.filter;
    const key = JSON.stringify([token.value, name, tag, order]);
    if (key === shownFor) return;
    shownFor = key;
    untracked(() => show(new PlantList(current.filter)));
  });
  effect(() => {
    if (recoveries.value === 0) return;
    untracked(() => {
      if (list.value.phase.value === "failed") void list.value.loadMore();
    });
  });
}

export function refresh(): void {
  show(new PlantList(list.value.filter));
}

/** Deletes at once, and offers the way back. Throws Changed where it is not as it was read. */
export async function removeWithUndo({ plant, etag }: Versioned): Promise<void> {
  await removePlant(plant.id, etag);
  list.value.take(plant.id);
  toast(`${formatName(plant)} was deleted.`, { label: "Undo", run: () => void restore(plant) });
}

async function restore(plant: Plant): Promise<void> {
  try {
    await createPlant(plant);
  } catch (error) {
    const again = { label: "Try again", isNeeded: true, run: () => void restore(plant) };
    if (isStatus(error, 409)) toast(`Not restored: another plant has the id ${plant.id} by now.`);
    else toast(`${formatName(plant)} is not back yet. ${explain(error)}`, again);
    return;
  }
  list.value.put(plant);
  toast(`${formatName(plant)} is back.`);
  const isFree = route.value.view === "plants" && route.value.open === undefined;
  if (mayRead.value && isFree) openPlant(plant.id);
}
