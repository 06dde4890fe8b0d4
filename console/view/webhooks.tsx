/** Webhooks: their state, their last attempts, and the actions on them. */

import type { JSX } from "preact";
import type { ServiceError } from "../../client/client.ts";
import { changeTypes } from "../../src/domain/change.ts";
import { type Attempt, hasSucceeded, type Webhook } from "../../src/domain/webhook.ts";
import { ask, Explained, explain, isStatus } from "../api/service.ts";
import { formatCount, formatFigure, formatTime } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { t } from "../text/text.ts";
import { Field, Menu } from "./controls.tsx";
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

/** What the service would say in terms of its API. */
function findFault(url: string, name: string | undefined, types: readonly unknown[]) {
  const { protocol, username, password } = URL.parse(url) ?? { protocol: "" };
  if (!/^https?:$/.test(protocol))
    return "Enter the address of the receiver. It begins with https:// or http://.";
  if (username || password) return "Enter the address without a user name and a password.";
  if (name !== undefined && !/^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/.test(name))
    return "Enter a name of up to 64 letters, digits and . _ @ - that begins with a letter or digit.";
  return types.length === 0 ? "Choose what it sends." : undefined;
}

async function add(given: FormData): Promise<undefined> {
  const url = readText(given, "webhook-url") ?? "";
  const name = readText(given, "webhook-name");
  const types = given.getAll("webhook-types");
  const fault = findFault(url, name, types);
  if (fault !== undefined) throw new Explained(fault);
  const asked = ask<Pick<Webhook, "secret">>("/webhooks", "POST", { url, name, types });
  const added = await asked.catch((error: unknown) => {
    // The rest of the address was checked above.
    const isPrivate = isStatus(error, 400) && (error as ServiceError).detail.startsWith("url:");
    if (!isPrivate) throw error;
    throw new Explained(
      "This address is not public. The person who runs the store can allow such addresses.",
    );
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
          options={changeTypes.map((type) => [type, `${t.changes.verbs[type]} plants`])}
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
          const text = readText(given, "webhook-from");
          if (text !== undefined && !/^\d{1,15}$/.test(text))
            throw new Explained("Enter the number of a change, or nothing.");
          await post("replay", { from: text === undefined ? "newest" : Number(text) });
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
    const rotate = (): void => {
      manager.question.value = {
        title: `New secret for “${name}”?`,
        label: "Make a new secret",
        run: async () => {
          const { secret } = await post<Pick<Webhook, "secret">>("rotate");
          shownOnce.value = { title: "The new secret of the webhook", secret };
          return undefined;
        },
        content: (
          <p>
            For 24 hours events are signed with both secrets. Give the receiver the new one by then.
          </p>
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
        <button onClick={rotate}>New secret</button>
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
          : webhook.types.map((type) => t.changes.verbs[type].toLowerCase()).join(", "),
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

/** The newest on the right. A delivery is a full box, a failure a cross. */
function Strip({ of: attempts }: { readonly of: readonly Attempt[] }): JSX.Element {
  const good = attempts.filter(hasSucceeded).length;
  return (
    <svg
      class="strip"
      viewBox={`0 0 ${attempts.length * 14} 12`}
      width={attempts.length * 14}
      height={12}
      role="img"
      aria-label={`${good} of the last ${formatCount(attempts.length, "attempt")} delivered.`}
    >
      {attempts.toReversed().map((attempt, at) => (
        <g key={attempt.event + attempt.time} transform={`translate(${at * 14} 0)`}>
          {hasSucceeded(attempt) ? (
            <rect class="strip-good" x={1} y={1} width={10} height={10} rx={2} />
          ) : (
            <path class="strip-bad" d="M2 2l8 8M10 2l-8 8" />
          )}
          <title>{`${formatTime(attempt.time)}: ${describeAttempt(attempt)}`}</title>
        </g>
      ))}
    </svg>
  );
}

function Attempts({ of: attempts }: { readonly of: readonly Attempt[] }): JSX.Element {
  const [last] = attempts;
  if (last === undefined) return <>none yet</>;
  return (
    <details>
      <summary class={hasSucceeded(last) ? undefined : "field-fault"}>
        <Strip of={attempts} /> {describeAttempt(last)}
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
