/** Webhooks: the receivers of changes, how they are doing, and what can be done about it. */

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { type ChangeType, changeTypes } from "../../domain/change.ts";
import { type Attempt, hasSucceeded } from "../../domain/webhook.ts";
import { explain } from "../api/service.ts";
import { formatCount, formatFigure, formatTime } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { Menu, MenuItem, Table } from "./controls.tsx";
import {
  ask,
  Checks,
  FormDialog,
  ManagePage,
  type NewProps,
  ShownOnce,
  TextField,
  useItems,
} from "./manage.tsx";

interface Shown {
  readonly name: string;
  readonly url: string;
  readonly types: readonly ChangeType[];
  readonly state: "active" | "paused";
  readonly reason: string | null;
  readonly failures: number;
  readonly nextAttempt: string | null;
  /** The newest first. */
  readonly attempts: readonly Attempt[];
}

interface WithSecret {
  readonly secret: string;
}

const RELOAD_MS = 5000;

const pathOf = (name: string, verb = ""): string => `/webhooks/${encodeURIComponent(name)}${verb}`;

const describeAttempt = ({ status, error, durationMs }: Attempt): string =>
  `${status ?? error ?? "no answer"} after ${formatFigure(durationMs)} ms`;

export function WebhooksView(): JSX.Element {
  const listed = useItems<Shown>("/webhooks");
  const isAdding = useSignal(false);
  const secret = useSignal<string | undefined>(undefined);
  const replaying = useSignal<string | undefined>(undefined);
  const ending = useSignal<string | undefined>(undefined);
  useEffect(() => {
    const timer = setInterval(() => void listed.reload(), RELOAD_MS);
    return () => clearInterval(timer);
  }, []);
  /** Says what came of it. */
  const act = async (run: () => Promise<string>): Promise<void> => {
    toast(await run().catch((error: unknown) => `That didn't work. ${explain(error)}`));
    await listed.reload();
  };
  const actions = ({ name, state }: Shown): JSX.Element => {
    const post = <Answer,>(verb: string): Promise<Answer> =>
      ask<Answer>(pathOf(name, `/${verb}`), "POST");
    const test = async (): Promise<string> =>
      `The receiver answered ${describeAttempt(await post<Attempt>("test"))}.`;
    const turn = async (): Promise<string> => {
      await post(state === "active" ? "pause" : "resume");
      return state === "active" ? `Paused “${name}”.` : `Resumed “${name}”.`;
    };
    const rotate = async (): Promise<string> => {
      secret.value = (await post<WithSecret>("rotate")).secret;
      return `“${name}” has a new secret.`;
    };
    return (
      <Menu label={`Actions for ${name}`} buttonClass="button" button="Actions">
        <MenuItem label="Send a test" onClick={() => void act(test)} />
        <MenuItem label={state === "active" ? "Pause" : "Resume"} onClick={() => void act(turn)} />
        <MenuItem label="Send changes again" onClick={() => (replaying.value = name)} />
        <MenuItem
          label="New secret"
          note="the old one works for 24 hours"
          onClick={() => void act(rotate)}
        />
        <hr />
        <MenuItem label="Remove" onClick={() => (ending.value = name)} />
      </Menu>
    );
  };
  const webhooks = listed.items.value;
  return (
    <ManagePage
      title="Webhooks"
      intro="Each sends the changes of plants to another system, signed and in order."
      listed={listed}
      label="New webhook"
      onNew={() => (isAdding.value = true)}
    >
      <ShownOnce title="The secret of the webhook" secret={secret} />
      {webhooks?.length === 0 && <p class="faint">No webhooks yet.</p>}
      {webhooks !== undefined && webhooks.length > 0 && (
        <Table
          label="Webhooks"
          isListing
          heads={["Name", "Sends", "State", "Last attempts", ""]}
          rows={webhooks.map((webhook) => [
            webhook.name,
            <>
              <strong>{webhook.name}</strong> <span class="digits faint">{webhook.url}</span>
            </>,
            webhook.types.length === changeTypes.length ? "all changes" : webhook.types.join(", "),
            <State of={webhook} />,
            <Attempts of={webhook.attempts} />,
            actions(webhook),
          ])}
        />
      )}
      {isAdding.value && <NewWebhook secret={secret} isOpen={isAdding} reload={listed.reload} />}
      {replaying.value !== undefined && <Replay name={replaying} reload={listed.reload} />}
      {ending.value !== undefined && (
        <FormDialog
          title={`Remove “${ending.value}”?`}
          label="Remove"
          kind="danger"
          run={async () => {
            await ask(pathOf(ending.value ?? ""), "DELETE");
            toast(`Removed “${ending.value}”.`);
            await listed.reload();
          }}
          onClose={() => (ending.value = undefined)}
        >
          <p>It gets no more changes. This can't be undone.</p>
        </FormDialog>
      )}
    </ManagePage>
  );
}

function State({
  of: { state, reason, failures, nextAttempt },
}: {
  readonly of: Shown;
}): JSX.Element {
  if (state === "paused") return <span class="field-note">{reason ?? "Paused"}</span>;
  if (failures === 0) return <>Active</>;
  return (
    <span class="field-fault">
      {formatCount(failures, "failed attempt")}
      {nextAttempt && `, next ${formatTime(nextAttempt)}`}
    </span>
  );
}

const Attempts = ({ of: [last, ...others] }: { readonly of: readonly Attempt[] }): JSX.Element =>
  last === undefined ? (
    <>none yet</>
  ) : (
    <details>
      <summary class={hasSucceeded(last) ? undefined : "field-fault"}>
        {describeAttempt(last)}
      </summary>
      {[last, ...others].map((attempt) => (
        <p key={attempt.time}>
          {formatTime(attempt.time)}: {describeAttempt(attempt)}{" "}
          {attempt.answer && <span class="digits faint">{attempt.answer}</span>}
        </p>
      ))}
    </details>
  );

function NewWebhook({ secret, isOpen, reload }: NewProps): JSX.Element {
  const url = useSignal("");
  const name = useSignal("");
  const types = useSignal<readonly string[]>(changeTypes);
  const add = async (): Promise<void> => {
    const given = { url: url.value.trim(), name: name.value.trim() || undefined };
    const added = await ask<WithSecret>("/webhooks", "POST", { ...given, types: types.value });
    secret.value = added.secret;
    await reload();
  };
  return (
    <FormDialog
      title="New webhook"
      label="Add webhook"
      run={add}
      onClose={() => (isOpen.value = false)}
    >
      <TextField id="webhook-url" label="URL" rule="Where the changes go." text={url} />
      <TextField
        id="webhook-name"
        label="Name"
        optional
        rule="Otherwise the host of the URL."
        text={name}
      />
      <Checks
        legend="Sends"
        options={changeTypes.map((type) => [type, `Plants ${type}`])}
        chosen={types}
      />
    </FormDialog>
  );
}

interface ReplayProps {
  readonly name: Signal<string | undefined>;
  readonly reload: () => Promise<void>;
}

function Replay({ name, reload }: ReplayProps): JSX.Element {
  const from = useSignal("0");
  const replay = async (): Promise<void> => {
    const text = from.value.trim();
    const given = text === "" ? "newest" : /^\d{1,16}$/.test(text) ? Number(text) : text;
    await ask(pathOf(name.value ?? "", "/replay"), "POST", { from: given });
    toast(`“${name.value}” goes on from there.`);
    await reload();
  };
  return (
    <FormDialog
      title={`Send changes to “${name.value}” again`}
      label="Send again"
      run={replay}
      onClose={() => (name.value = undefined)}
    >
      <TextField
        id="webhook-from"
        label="After change number"
        rule="0 sends all that are kept. Empty skips to the newest."
        text={from}
      />
    </FormDialog>
  );
}
