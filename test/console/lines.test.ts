/** The journal as a page reads it, with a real service, without a page: page by page, with what arrives. */

import { afterEach, expect, test } from "bun:test";
import { arrived, untilFollowing } from "../../console/state/feed.ts";
import { JournalLines } from "../../console/state/lines.ts";
import type { ChangeFilter } from "../../console/state/route.ts";
import { beginSession } from "../../console/state/session.ts";
import { until } from "../support/until.ts";
import { startPage } from "./page.ts";
import { startShared, TEST_TOKEN } from "./service.ts";

const service = await startShared();
startPage(`${service.url}/`);
beginSession({ token: TEST_TOKEN, identity: { name: "Anna", scopes: ["plants:read"] } }, false);
await untilFollowing();

const write = (ids: readonly number[], name: string): Promise<unknown> =>
  service.store.writePlants(
    ids.map((id) => {
      const plant = { id: BigInt(id), name, tag: undefined };
      return { kind: "upsert", id: plant.id, plant, condition: {} };
    }),
    { token: "Bernd" },
  );

let stop = (): void => undefined;
afterEach(() => stop());

function open(filter: ChangeFilter = {}): JournalLines {
  const journal = new JournalLines(filter);
  const end = arrived.subscribe((changes) => journal.hear(changes));
  stop = () => {
    end();
    journal.stop();
  };
  return journal;
}

const listNames = ({ lines }: JournalLines) => lines.value.map(({ change }) => change.plant?.name);

test("what arrives while the first page is read is shown, and nothing twice", async () => {
  await write([1], "First");
  const journal = open();
  const loading = journal.loadMore();
  await write([1], "Second");
  await loading;
  await write([1], "Third");
  await until("the last one is shown", () => listNames(journal)[0] === "Third");
  expect(listNames(journal)).toEqual(["Third", "Second", "First"]);
  expect(journal.next.value).toBeUndefined();
});

test("what a filter hides is not shown, but known of the plants that are", async () => {
  await write([2], "Kept");
  const journal = open({ id: 2n, type: "created" });
  await journal.loadMore();
  await write([3], "Another");
  await write([2], "Changed");
  await until("the change is known", () => journal.since.value.has(2n));
  expect(listNames(journal)).toEqual(["Kept"]);
  expect([...journal.since.value.keys()]).toEqual([2n]);
});

test("past a thousand lines newer ones are not added, until the journal is read again", async () => {
  const ids = Array.from({ length: 1_200 }, (_, at) => 100 + at);
  await write(ids, "Before");
  await write(ids, "After");
  const journal = open({ type: "replaced" });
  await journal.loadMore();
  expect(journal.lines.value.length).toBeLessThan(200);
  while (journal.lines.value.length < 1_000) await journal.loadMore();
  await write([100], "Newest");
  await until("it is behind", () => journal.isBehind.value);
  expect(listNames(journal)[0]).toBe("After");
  journal.reload();
  await until("it is read again", () => listNames(journal)[0] === "Newest");
  expect(journal.isBehind.value).toBe(false);
});
