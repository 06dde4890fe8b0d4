/** Bulk actions: the tag of the selected plants, the question before many are changed, and the progress. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { describeTask, work } from "../state/action.ts";
import {
  asked,
  askAboutSelected,
  counting,
  describeSubject,
  startAsked,
} from "../state/selection.ts";
import { fill, t } from "../text/text.ts";
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
        if (tag.value !== "") askAboutSelected({ kind: "tag", tag: tag.value });
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
      <Button kind="plain" onClick={() => askAboutSelected({ kind: "tag" })}>
        {t.plants.removeTag}
      </Button>
    </form>
  );
}

/** Before many plants are changed. */
export function AskedDialog(): JSX.Element | null {
  const question = asked.value;
  const count = question?.found.value;
  if (question === undefined || count === undefined) return null;
  const { task, about, isFinal } = question;
  const label = describeTask(task, count);
  const what = describeSubject(about);
  return (
    <QuestionDialog
      question={{
        title: fill(t.plants.ask, { action: label }),
        label,
        kind: "danger",
        content: <p>{isFinal ? `${what} ${t.plants.isFinal}` : what}</p>,
        run: async () => {
          startAsked(question);
          return undefined;
        },
      }}
      onClose={() => asked.close(question)}
    />
  );
}

/** An export or a bulk action that is running, or is counted first. */
export function Progress(): JSX.Element | null {
  const running = work.value ?? counting.value;
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
