/** Prints the list, in its order: rows only, with the heading on each sheet. */

import type { JSX } from "preact";
import { explain, isAbort } from "../api/service.ts";
import type { ListFilter, TimedPlant } from "../api/plants.ts";
import { describeFilter, formatTime, formatTotal } from "../state/format.ts";
import { personal } from "../state/person.ts";
import { list, readListPage } from "../state/plants.ts";
import { work } from "../state/action.ts";
import { picked, selection } from "../state/selection.ts";
import { token } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { fill, plural, t } from "../text/text.ts";

export const PRINTED_MAX = 5_000;
const PAGE_LENGTH = 1_000;

interface Job {
  readonly plants: readonly TimedPlant[];
  /** What is printed, and how much of it. */
  readonly title: string;
}

/** What the printer gets. */
const job = personal<Job | undefined>(undefined);

/** The listed plants, or the selected ones. One more than the limit tells that there are more. */
async function readPlants(filter: ListFilter, stopped: AbortSignal): Promise<TimedPlant[]> {
  const { isAll, ids } = selection.value;
  if (!isAll && picked.value.length > 0) return [...picked.value];
  const { onlyById } = list.value;
  const plants = onlyById === undefined ? [] : [onlyById];
  const place = { after: undefined, cursor: undefined };
  for (let next: Parameters<typeof readListPage>[1] | undefined = place; next !== undefined;) {
    const page = await readListPage(filter, next, PAGE_LENGTH, { signal: stopped });
    plants.push(...page.plants);
    next = page.next;
    work.value = { text: plural(t.tools.readingPlants, plants.length), stop };
    if (plants.length > PRINTED_MAX + ids.size) break;
  }
  return plants.filter(({ id }) => !isAll || !ids.has(id));
}

let stopping = new AbortController();
const stop = (): void => stopping.abort();

export async function printList(filter: ListFilter): Promise<void> {
  stopping = new AbortController();
  work.value = { text: t.tools.reading, stop };
  try {
    const plants = await readPlants(filter, stopping.signal);
    job.value = { plants: plants.slice(0, PRINTED_MAX), title: describe(filter, plants.length) };
    // The rows are rendered by then.
    await new Promise(requestAnimationFrame);
    addEventListener("afterprint", () => (job.value = undefined), { once: true });
    globalThis.print();
  } catch (error) {
    if (token.value === undefined) return;
    if (isAbort(error)) toast(t.tools.printingStopped);
    else toast(fill(t.tools.notPrintedBecause, { reason: explain(error) }));
  } finally {
    work.value = undefined;
  }
}

function describeCount(found: number): string {
  const { matches } = list.value;
  const count = PRINTED_MAX;
  if (found <= count) return plural(t.shared.plants, found);
  return matches.value === undefined
    ? fill(t.tools.firstOnly, { count })
    : fill(t.tools.firstOf, { count, total: formatTotal(matches.value) });
}

function describe(filter: ListFilter, found: number): string {
  return [
    t.tools.printed,
    ...describeFilter(filter),
    describeCount(found),
    formatTime(new Date().toISOString()),
  ].join(" · ");
}

/** Shown only in print. A browser repeats the heading of a table on each sheet. */
export function PrintedList(): JSX.Element | null {
  if (job.value === undefined) return null;
  const { plants, title } = job.value;
  return (
    <div class="printed printed-list">
      <p>{title}</p>
      <table>
        <thead>
          <tr>
            <th scope="col">{t.shared.id}</th>
            <th scope="col">{t.shared.name}</th>
            <th scope="col">{t.shared.tag}</th>
            <th scope="col">{t.tools.lastChanged}</th>
          </tr>
        </thead>
        <tbody>
          {plants.map(({ id, name, tag, changed }) => (
            <tr key={id}>
              <td>{String(id)}</td>
              <td>{name}</td>
              <td>{tag}</td>
              <td>{changed !== undefined && formatTime(changed)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
