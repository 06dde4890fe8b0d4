/** Bulk actions: the tag of the selected plants, the question before many are changed, and the progress. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { asked, runOnSelected, work } from "../state/selection.ts";
import { t } from "../text/text.ts";
import { Button } from "./controls.tsx";
import { TagInput } from "./form.tsx";
import { QuestionDialog } from "./manage.tsx";

export function TagForm(): JSX.Element {
  const tag = useSignal("");
  return (
    <form
      class="with-button"
      onSubmit={(event) => {
        event.preventDefault();
        if (tag.value !== "") void runOnSelected({ kind: "tag", tag: tag.value });
      }}
    >
      <TagInput
        id="selection-tag"
        aria-label={t.plants.tagForSelected}
        placeholder={t.shared.tag}
        value={tag.value}
        onInput={(event) => (tag.value = event.currentTarget.value)}
      />
      <Button type="submit" disabled={tag.value === ""}>
        {t.plants.setTag}
      </Button>
      <Button kind="plain" onClick={() => void runOnSelected({ kind: "tag" })}>
        {t.plants.removeTag}
      </Button>
    </form>
  );
}

/** Undefined while nothing is asked. */
export function BulkQuestion(): JSX.Element | null {
  const question = asked.value;
  if (question === undefined) return null;
  const { title, text, label, run } = question;
  return (
    <QuestionDialog
      question={{
        title,
        label,
        kind: "danger",
        content: <p>{text}</p>,
        run: async () => {
          run();
          return undefined;
        },
      }}
      onClose={() => (asked.value = undefined)}
    />
  );
}

/** An export or a bulk action that is running. */
export function Progress(): JSX.Element | null {
  const running = work.value;
  if (running === undefined) return null;
  const { text, done, note, stop } = running;
  return (
    <section class="selection" aria-label={t.plants.progress}>
      <strong>{text}</strong>
      <progress value={done} aria-label={text} />
      <Button onClick={stop}>{t.shared.stop}</Button>
      {note !== undefined && <span class="faint">{note}</span>}
    </section>
  );
}
