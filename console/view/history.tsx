/** The history of one plant. Earlier versions can be restored. */

import type { JSX } from "preact";
import type { Change } from "../../client/client.ts";
import { changeTypes } from "../../src/domain/change.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { readBack } from "../api/changes.ts";
import { explain, isStatus } from "../api/service.ts";
import { useNews } from "../state/feed.ts";
import { formatTime } from "../state/format.ts";
import { mayWrite } from "../state/session.ts";
import { compareWords } from "../state/words.ts";
import { fill, t } from "../text/text.ts";
import { Button } from "./controls.tsx";
import { useRead } from "./read.ts";
import { Tag } from "./tag.tsx";

const CHANGES_MAX = 100;
/** Debounce: keyboard navigation passes many plants. */
const DELAY_MS = 150;

/** "1,500 added, 3 changed". */
export const describeCounts = (counts: Readonly<Record<Change["type"], number>>): string =>
  changeTypes
    .filter((type) => counts[type] > 0)
    .map((type) => fill(t.changes.counts[type], { count: counts[type] }))
    .join(", ");

export const explainHistory = (error: unknown): string =>
  isStatus(error, 410) ? t.shared.noHistory : explain(error);

/** Newest first. */
async function readAll(id: bigint, ended: AbortSignal): Promise<readonly Change[]> {
  const found: Change[] = [];
  for (let after: number | undefined = 0; after !== undefined && found.length < CHANGES_MAX;) {
    const page = await readBack({ id, after, limit: CHANGES_MAX }, ended);
    found.push(...page.changes);
    after = page.next;
  }
  return found;
}

interface HistoryProps {
  readonly id: bigint;
  /** The current version gets no button. */
  readonly isThere: (plant: Plant) => boolean;
  readonly onBringBack: (plant: Plant) => unknown;
}

export function History({ id, isThere, onBringBack }: HistoryProps): JSX.Element {
  const news = useNews((change) => id === change.id);
  const { answer: changes, failure } = useRead((ended) => readAll(id, ended), [id, news?.seq], {
    delayMs: DELAY_MS,
  });
  const oldest = changes?.at(-1);
  if (changes === undefined || oldest === undefined || failure !== undefined)
    return (
      <p class="faint late">
        {failure !== undefined
          ? explainHistory(failure)
          : changes === undefined
            ? t.shared.loading
            : t.changes.noneRecent}
      </p>
    );
  const show = (change: Change, title: string, content: Change["plant"]): JSX.Element => {
    const plant = toPlant(change, content);
    return (
      <li class="entry" key={`${change.seq} ${title}`}>
        <p class="faint">{title}</p>
        <p>
          <Version plant={plant} />
        </p>
        {mayWrite.value && !isThere(plant) && (
          <Button kind="small" onClick={() => onBringBack(plant)}>
            {t.changes.restore}
          </Button>
        )}
      </li>
    );
  };
  return (
    <ul>
      {changes.map((change) => {
        const facts = { verb: t.changes.verbs[change.type], time: formatTime(change.time) };
        const title =
          change.by === undefined
            ? fill(t.changes.entry, facts)
            : fill(t.changes.entryBy, { ...facts, who: change.by });
        return show(change, title, change.plant ?? change.before);
      })}
      {oldest.type === "replaced" && show(oldest, t.changes.before, oldest.before)}
    </ul>
  );
}

export const toPlant = ({ id }: Change, content: Change["plant"]): Plant => ({
  id,
  name: content?.name ?? "",
  tag: content?.tag,
});

interface VersionProps {
  readonly plant: Plant;
  /** The version before or since: the words that differ are marked. */
  readonly before?: Plant;
  readonly since?: Plant;
}

export function Version({ plant: { name, tag }, before, since }: VersionProps): JSX.Element {
  const other = before ?? since;
  const Mark = before === undefined ? "del" : "ins";
  const shownTag = tag === undefined ? <i class="faint">{t.changes.noTag}</i> : <Tag tag={tag} />;
  return (
    <>
      {name.trim() === "" ? (
        <i class="faint">{t.shared.noName}</i>
      ) : other === undefined ? (
        name
      ) : (
        compareWords(name, other.name).map(({ text, isCommon }, at) =>
          isCommon ? text : <Mark key={at}>{text}</Mark>,
        )
      )}{" "}
      {other !== undefined && other.tag !== tag ? <Mark>{shownTag}</Mark> : shownTag}
    </>
  );
}
