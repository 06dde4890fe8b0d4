/** What a question is about, its number, and when it ends, without a page. */

import { describe, expect, test } from "bun:test";
import { signal } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { Modal, Question } from "../../console/state/dialog.ts";
import { arrived } from "../../console/state/feed.ts";
import { follow } from "../../console/state/route.ts";
import { beginSession, endSession, switchSession } from "../../console/state/session.ts";
import { capture, keepUnchanged, type Subject } from "../../console/state/subject.ts";
import { startPage } from "./page.ts";

startPage("https://host.example/");

const plant = (id: number, name = `Rose ${id}`) => ({ id: BigInt(id), name, tag: undefined });
const roses = [1, 2, 3, 4].map((id) => plant(id));
const filter = { q: "rose", order: "asc" } as const;
const shown = { filter, plants: roses, onlyById: undefined };

let seq = 0;
/** `after` and `before` are names; undefined is a plant that is not there. */
const changed = (id: number, before: string | undefined, after: string | undefined): Change =>
  ({
    seq: ++seq,
    time: "2026-01-01T00:00:00Z",
    id: BigInt(id),
    type: before === undefined ? "created" : after === undefined ? "removed" : "replaced",
    plant: after === undefined ? undefined : { name: after },
    before: before === undefined ? undefined : { name: before },
  }) as Change;

const idsOf = (subject: Subject | undefined) => subject?.plants.map(({ id }) => Number(id));
const select = (isAll: boolean, ...ids: number[]) => ({ isAll, ids: new Set(ids.map(BigInt)) });

describe("an action is about", () => {
  test("the plants that are selected, as they are shown, and not those that are gone", () => {
    const about = capture(select(false, 2, 4, 9), shown);
    expect(about).toEqual({ plants: [plant(2), plant(4)] });
  });

  test("nothing, if nothing is selected", () => {
    expect(capture(select(false), shown)).toEqual({ plants: [] });
  });

  test("all that match but some, and one that only its id finds, unless it is excepted", () => {
    const holder = plant(7, "Fern");
    const searched = { ...shown, plants: [holder, ...roses], onlyById: holder };
    const about = capture(select(true, 2), searched);
    expect(about).toEqual({ plants: [holder], matching: { filter, except: ["2"], excepted: 1 } });
    expect(capture(select(true, 7), searched).plants).toEqual([]);
  });

  test("what it was, though the selection and the list change", () => {
    const selection = select(false, 1, 2);
    const list = { ...shown, plants: [...roses] };
    const about = capture(selection, list);
    selection.ids.add(3n);
    list.plants.splice(0, 2);
    expect(idsOf(about)).toEqual([1, 2]);
  });
});

describe("what others change", () => {
  const about = capture(select(false, 1, 2, 3), shown);

  test("is not what was asked about any longer", () => {
    const changes = [changed(1, "Rose 1", undefined), changed(2, "Rose 2", "Theirs")];
    expect(idsOf(keepUnchanged(about, changes))).toEqual([3]);
  });

  test("stays, if it is as it was shown: the list may have been read after the change", () => {
    const changes = [changed(1, "Bud", "Bloom"), changed(1, "Bloom", "Rose 1")];
    expect(keepUnchanged(about, changes)).toBeUndefined();
  });

  test("elsewhere does not concern it", () => {
    expect(keepUnchanged(about, [changed(4, "Rose 4", undefined)])).toBeUndefined();
  });

  test("concerns all that match if the plant matched before or does now, and is not excepted", () => {
    const all = capture(select(true, 2), shown);
    const concerns = (...given: Parameters<typeof changed>): boolean =>
      keepUnchanged(all, [changed(...given)]) !== undefined;
    expect(concerns(1, "Rose 1", undefined)).toBe(true);
    expect(concerns(5, undefined, "Rose 5")).toBe(true);
    expect(concerns(1, "Rose 1", "Fern")).toBe(true);
    expect(concerns(1, "Fern", "Rose 1")).toBe(true);
    expect(concerns(8, "Fern", "Ivy")).toBe(false);
    expect(concerns(2, "Rose 2", undefined)).toBe(false);
  });
});

/** Looks are answered by hand. */
function openByHand() {
  const place = signal(0);
  const modal = new Modal<Question<Subject, number>>(() => place.value);
  const looks: (PromiseWithResolvers<number> & { readonly ended: AbortSignal })[] = [];
  const found: (readonly [number, boolean])[] = [];
  const failures: unknown[] = [];
  const question = new Question<Subject, number>(capture(select(true), shown), {
    look: (_about, ended) => {
      const look = { ...Promise.withResolvers<number>(), ended };
      looks.push(look);
      return look.promise;
    },
    after: keepUnchanged,
    onFound: (...given) => found.push(given),
    onFailure: (error) => failures.push(error),
  });
  modal.open(question);
  const first = question.look();
  const settle = async (at: number, count: number): Promise<void> => {
    looks[at]?.resolve(count);
    await looks[at]?.promise;
    await Promise.resolve();
  };
  return { place, modal, looks, found, failures, question, first, settle };
}

describe("a question", () => {
  test("has no number until it is counted, and the number of the last count", async () => {
    const { question, settle, looks, found } = openByHand();
    expect(question.found.value).toBeUndefined();
    await settle(0, 4);
    expect(question.found.value).toBe(4);
    arrived.value = [changed(1, "Rose 1", undefined)];
    expect(looks).toHaveLength(2);
    await settle(1, 3);
    expect(question.found.value).toBe(3);
    expect(found).toEqual([
      [4, true],
      [3, false],
    ]);
  });

  test("is counted once more for all that changes during a count", async () => {
    const { settle, looks, question } = openByHand();
    for (const id of [1, 2, 3]) arrived.value = [changed(id, `Rose ${id}`, undefined)];
    expect(looks).toHaveLength(1);
    await settle(0, 4);
    expect(looks).toHaveLength(2);
    await settle(1, 1);
    expect(question.found.value).toBe(1);
    expect(looks).toHaveLength(2);
  });

  test("is not counted for a change that does not concern it", async () => {
    const { settle, looks } = openByHand();
    await settle(0, 4);
    arrived.value = [changed(9, "Fern", "Ivy")];
    expect(looks).toHaveLength(1);
  });

  test("ends with its place: also while it is counted, whose result is then nothing", async () => {
    const { place, modal, looks, question, settle, found } = openByHand();
    place.value++;
    expect(modal.value).toBeUndefined();
    expect(looks[0]?.ended.aborted).toBe(true);
    await settle(0, 4);
    expect(question.found.value).toBeUndefined();
    expect(found).toEqual([]);
    await question.look();
    expect(looks).toHaveLength(1);
  });

  test("ends when another is asked, and its late end leaves the other one open", async () => {
    const { modal, looks, question } = openByHand();
    const other = new Question<Subject, number>(
      { plants: [] },
      { look: () => 0, after: () => undefined },
    );
    modal.open(other);
    expect(looks[0]?.ended.aborted).toBe(true);
    modal.close(question);
    expect(modal.value).toBe(other);
    modal.close();
    expect(modal.value).toBeUndefined();
  });

  test("says that it could not be counted, unless it has ended", async () => {
    const { looks, first, question, failures, modal } = openByHand();
    looks[0]?.reject(new Error("busy"));
    await first;
    expect(question.failure.value).toEqual(new Error("busy"));
    expect(failures).toHaveLength(1);
    void question.look();
    modal.close();
    looks[1]?.reject(new Error("aborted"));
    await looks[1]?.promise.catch(() => undefined);
    expect(failures).toHaveLength(1);
  });

  test("about what needs no service is counted at once", () => {
    const question = new Question<Subject, number>(
      { plants: roses },
      { look: ({ plants }) => plants.length, after: keepUnchanged },
    );
    void question.look();
    expect(question.found.value).toBe(4);
    question.hear([changed(1, "Rose 1", undefined)]);
    expect(question.found.value).toBe(3);
    expect(idsOf(question.about)).toEqual([2, 3, 4]);
  });
});

describe("dialogs", () => {
  const [camera, labels] = [new Modal<object>(), new Modal<Subject>()];

  test("are open one at a time", () => {
    camera.open({});
    labels.open({ plants: roses });
    expect(camera.value).toBeUndefined();
    expect(labels.value?.plants).toBe(roses);
    // What was the camera's is over.
    camera.close();
    expect(labels.value?.plants).toBe(roses);
    labels.close();
    expect(labels.value).toBeUndefined();
  });

  for (const [name, leave] of Object.entries({
    "another page": () => follow("#/changes"),
    "signing out": () => endSession("left"),
    "an expired token": () => endSession("expired"),
    "somebody else who signs in": () =>
      switchSession({ token: "b", identity: { name: "Bernd", scopes: [] } }, false),
  }))
    test(`are closed by ${name}`, () => {
      beginSession({ token: "a", identity: { name: "Anna", scopes: [] } }, false);
      follow("#/plants");
      camera.open({});
      leave();
      expect(camera.value).toBeUndefined();
    });
});
