/** Webhooks: their state, their last attempts, and the actions on them. */

import type { JSX } from "preact";
import { changeTypes } from "../../src/domain/change.ts";
import { type Attempt, hasSucceeded, type Webhook } from "../../src/domain/webhook.ts";
import { ask, explain } from "../api/service.ts";
import { formatCount, formatFigure, formatTime } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { Field, Menu } from "./controls.tsx";
import { verbs } from "./history.tsx";
import { Checks, ManagePage, readText, shownOnce, useManager } from "./manage.tsx";

interface Shown extends Pick<Webhook, "name" | "url" | "types" | "failures" | "attempts"> {
  readonly state: "active" | "paused";
  readonly reason: string | null;
  readonly nextAttempt: string | null;
}

const describeAttempt = ({ status, error, durationMs }: Attempt): string =>
  `${status ?? error ?? "no answer"} after ${formatFigure(durationMs)} ms`;

const describeEvent = ({ event }: Attempt): string =>
  event.startsWith("msg_test_") ? "test" : event.replace("msg_", "change ");

async function add(given: FormData): Promise<undefined> {
  const added = await ask<Pick<Webhook, "secret">>("/webhooks", "POST", {
    url: readText(given, "webhook-url"),
    name: readText(given, "webhook-name"),
    types: given.getAll("webhook-types"),
  });
  shownOnce.value = { title: "The secret of the webhook", secret: added.secret };
}

export function WebhooksView(): JSX.Element {
  const manager = useManager(() => ask<readonly Shown[]>("/webhooks"));

  const creation = {
    title: "New webhook",
    label: "Add webhook",
    run: add,
    content: (
      <>
        <Field id="webhook-url" label="URL" required placeholder="https://…" />
        <Field id="webhook-name" label="Name" hint="(optional)" />
        <Checks
          id="webhook-types"
          legend="Sends"
          options={changeTypes.map((type) => [type, `${verbs[type]} plants`])}
          chosen={changeTypes}
        />
      </>
    ),
  };

  /** Runs an action and shows its result, with its undo. */
  const act = async (run: () => Promise<string>, takeBack?: () => unknown): Promise<void> => {
    try {
      const said = await run();
      toast(said, takeBack && { label: "Undo", run: () => void takeBack() });
    } catch (error) {
      toast(`That didn't work. ${explain(error)}`);
    }
    await manager.reload();
  };
  const actions = ({ name, state, failures }: Shown): JSX.Element => {
    const path = `/webhooks/${encodeURIComponent(name)}`;
    const post = <Answer,>(verb: string, body?: object): Promise<Answer> =>
      ask<Answer>(`${path}/${verb}`, "POST", body);
    const test = async (): Promise<string> =>
      `The receiver answered ${describeAttempt(await post<Attempt>("test"))}.`;
    const verb = state === "active" ? "Pause" : "Resume";
    const toggle = (to: "Pause" | "Resume"): Promise<void> =>
      act(
        async () => {
          await post(to.toLowerCase());
          return `${to}d “${name}”.`;
        },
        () => toggle(to === "Pause" ? "Resume" : "Pause"),
      );
    const skip = async (): Promise<string> => {
      const { skipped } = await post<{ readonly skipped: number | null }>("skip");
      return skipped === null
        ? "The change was delivered meanwhile."
        : `Skipped change ${skipped}.`;
    };
    const replay = (): void => {
      manager.question.value = {
        title: `Send changes to “${name}” again`,
        label: "Send again",
        run: async (given) => {
          const text = readText(given, "webhook-from") ?? "newest";
          await post("replay", { from: /^\d{1,16}$/.test(text) ? Number(text) : text });
          return `“${name}” resumes from there.`;
        },
        content: (
          <>
            <p>0 sends all changes in the journal. Leave it empty to skip to the newest.</p>
            <Field id="webhook-from" label="After change number" defaultValue="0" />
          </>
        ),
      };
    };
    const remove = (): void => {
      manager.question.value = {
        title: `Delete “${name}”?`,
        label: "Delete",
        kind: "danger",
        run: async () => {
          await ask(path, "DELETE");
          return `Deleted “${name}”.`;
        },
        content: <p>It gets no more changes. This can't be undone.</p>,
      };
    };
    return (
      <Menu aria-label={`Actions for ${name}`} text="Actions">
        <button onClick={() => void act(test)}>Send a test</button>
        <button onClick={() => void toggle(verb)}>{verb}</button>
        {failures > 0 && <button onClick={() => void act(skip)}>Skip the failed change</button>}
        <button onClick={replay}>Send changes again</button>
        <button onClick={remove}>Delete</button>
      </Menu>
    );
  };

  return (
    <ManagePage
      manager={manager}
      title="Webhooks"
      intro="Each sends the changes of plants to another system, signed and in order."
      creation={creation}
      heads={["Name", "Sends", "State", "Last attempts", ""]}
      rows={(manager.items ?? []).map((webhook) => [
        <>
          <strong>{webhook.name}</strong> <span class="digits faint">{webhook.url}</span>
        </>,
        webhook.types.length === changeTypes.length
          ? "all changes"
          : webhook.types.map((type) => verbs[type].toLowerCase()).join(", "),
        <State of={webhook} />,
        <Attempts of={webhook.attempts} />,
        actions(webhook),
      ])}
    />
  );
}

function State({ of: webhook }: { readonly of: Shown }): JSX.Element {
  const { state, reason, failures, nextAttempt } = webhook;
  if (state === "paused") return <span class="field-note">{reason ?? "Paused"}</span>;
  if (failures === 0) return <>Active</>;
  return (
    <span class="field-fault">
      {formatCount(failures, "failed attempt")}
      {nextAttempt && `, next ${formatTime(nextAttempt)}`}
    </span>
  );
}

function Attempts({ of: attempts }: { readonly of: readonly Attempt[] }): JSX.Element {
  const [last] = attempts;
  if (last === undefined) return <>none yet</>;
  return (
    <details>
      <summary class={hasSucceeded(last) ? undefined : "field-fault"}>
        {describeAttempt(last)}
      </summary>
      {attempts.map((attempt) => (
        <p key={attempt.event + attempt.time}>
          {formatTime(attempt.time)}, {describeEvent(attempt)}: {describeAttempt(attempt)}{" "}
          {attempt.answer && <span class="digits faint">{attempt.answer}</span>}
        </p>
      ))}
    </details>
  );
}
