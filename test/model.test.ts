/** The models that judge the store notice what they are there to notice. */

import { describe, expect, test } from "bun:test";
import { type Event, History, isLinearizable } from "./support/history.ts";
import { type Answer, Ledger, type Operation, perform, type State } from "./support/model.ts";
import type { StoredPlant } from "./support/plants.ts";
import { createRandom, type Random, tellingSeed } from "./support/random.ts";

const fern: StoredPlant = { id: 1n, name: "fern", tag: null };
const moss: StoredPlant = { id: 1n, name: "moss", tag: "green" };
const create = (plant: StoredPlant): Operation => ({ kind: "create", plant });
const done: Answer = { status: 200 };

describe("the ledger", () => {
  test("expects what was acknowledged, and nothing else", () => {
    const ledger = new Ledger();
    ledger.begin(create(fern))(done);
    expect(ledger.compare([fern])).toEqual([]);
    expect(ledger.compare([])).toEqual(["1: lost after it was acknowledged"]);
    expect(ledger.compare([moss])[0]).toStartWith("1: not as it was acknowledged");
    expect(ledger.compare([fern, { ...moss, id: 2n }])[0]).toStartWith("2: stored, but never");
  });

  test("expects either state where no answer came, and never the refused one", () => {
    const unanswered = new Ledger();
    unanswered.begin(create(fern));
    expect([...unanswered.compare([]), ...unanswered.compare([fern])]).toEqual([]);
    expect(unanswered.compare([moss])).toHaveLength(1);
    const refused = new Ledger();
    refused.begin(create(fern))("refused");
    expect(refused.compare([])).toEqual([]);
    expect(refused.compare([fern])).toHaveLength(1);
  });

  test("learns from a later answer what became of an unanswered write", () => {
    const ledger = new Ledger();
    ledger.begin(create(fern))(done);
    const replace: Operation = { kind: "replace", plant: moss, ifMatch: fern };
    ledger.begin(replace);
    expect(ledger.begin(replace)({ status: 412 })).toBeUndefined();
    expect(ledger.compare([moss])).toEqual([]);
    expect(ledger.compare([fern])).toHaveLength(1);
  });

  test.each<[string, Operation, Answer]>([
    ["a conflict without another plant", create(fern), { status: 409 }],
    ["a replay of nothing", create(fern), { status: 200, isReplay: true }],
    ["a plant that was never created", { kind: "read", id: 1n }, { status: 200, body: "{}" }],
    ["a failure", create(fern), { status: 500 }],
  ])("does not explain %s", (_name, operation, answer) => {
    const ledger = new Ledger();
    expect(ledger.begin(operation)(answer)).toBeString();
    expect(ledger.faults).toHaveLength(1);
  });
});

describe("the history", () => {
  /** Clients that do something at a time of chance to a plant that obeys the specification. */
  function imagine(length: number, random: Random): Event[] {
    let [state, now]: [State, number] = [undefined, 0];
    const open: { event: Event; happen: () => void }[] = [];
    const events: Event[] = [];
    while (events.length < length || open.length > 0) {
      if (events.length < length && (open.length === 0 || random.chance(50))) {
        const plant = { ...fern, name: `version ${events.length}` };
        const operation = random.pick<Operation>([
          create(plant),
          { kind: "read", id: 1n },
          { kind: "replace", plant, ...(state === undefined ? {} : { ifMatch: state }) },
          { kind: "remove", id: 1n },
        ]);
        const event: Event = { operation, sentAt: ++now };
        let answer: Answer | undefined;
        const happen = (): void => {
          if (answer !== undefined) return;
          const outcome = perform(state, operation);
          ({ answer, state } = outcome);
          event.answer = answer;
        };
        events.push(event);
        open.push({ event, happen });
      }
      if (open.length > 0 && random.chance(50)) random.pick(open).happen();
      if (open.length > 4 || (events.length === length && open.length > 0)) {
        const [closing] = open.splice(random.below(open.length), 1);
        if (closing === undefined) break;
        // One in ten is never answered, whether it has happened or not.
        if (random.chance(10)) delete closing.event.answer;
        else {
          closing.happen();
          closing.event.answeredAt = ++now;
        }
      }
    }
    return events;
  }

  test("explains whatever obeys the specification", () =>
    tellingSeed(async () => {
      const random = createRandom();
      for (let run = 0; run < 200; run++) expect(isLinearizable(imagine(40, random))).toBe(true);
    }));

  /** One after the other, each answered before the next is sent. */
  const inTurn = (...steps: readonly (readonly [Operation, Answer?])[]): Event[] =>
    steps.map(([operation, answer], index) => {
      const sentAt = index * 2;
      return answer === undefined
        ? { operation, sentAt }
        : { operation, sentAt, answer, answeredAt: sentAt + 1 };
    });
  const read = (plant: StoredPlant): [Operation, Answer] => [
    { kind: "read", id: 1n },
    perform(plant, { kind: "read", id: 1n }).answer,
  ];
  const replaceFern: Operation = { kind: "replace", plant: moss, ifMatch: fern };
  const removed: [Operation, Answer] = [{ kind: "remove", id: 1n }, { status: 204 }];

  test.each<[string, Event[]]>([
    ["a lost create", inTurn([create(fern), done], [{ kind: "read", id: 1n }, { status: 404 }])],
    ["a stale read", inTurn([create(fern), done], [replaceFern, done], read(fern))],
    ["a read of what no client wrote", inTurn([create(fern), done], read(moss))],
    ["two creates of one id", inTurn([create(fern), done], [create(moss), done])],
    [
      "one condition met twice",
      inTurn([create(fern), done], [replaceFern, done], [replaceFern, done]),
    ],
    ["a plant that comes back", inTurn([create(fern), done], removed, read(fern))],
    ["a refusal without a reason", inTurn([create(fern), { status: 409 }])],
    ["an effect before its cause", inTurn(read(fern), [create(fern)])],
  ])("does not explain %s", (_name, events) => {
    expect(isLinearizable(events)).toBe(false);
  });

  test("explains an unanswered write that happens late, or never", () => {
    const late = inTurn([create(fern)], [{ kind: "read", id: 1n }, { status: 404 }], read(fern));
    expect(isLinearizable(late)).toBe(true);
    expect(isLinearizable(inTurn([create(fern)], [create(moss), done], read(moss)))).toBe(true);
  });

  test("ends with what is stored", () => {
    const history = new History();
    history.begin(create(fern))(done);
    expect(history.findFaults([fern])).toEqual([]);
    expect(history.findFaults([])).toHaveLength(1);
    expect(history.findFaults([fern, { ...fern, id: 2n }])).toHaveLength(1);
  });
});
