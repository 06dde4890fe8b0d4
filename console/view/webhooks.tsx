/** Webhooks: their state, their last attempts, and the actions on them. */

import type { JSX } from "preact";
import type { ServiceError } from "../../client/client.ts";
import { changeTypes } from "../../src/domain/change.ts";
import { type Attempt, hasSucceeded, type Webhook } from "../../src/domain/webhook.ts";
import { call, Explained, explain, isStatus } from "../api/service.ts";
import { formatFigure, formatTime, quote } from "../state/format.ts";
import { toast } from "../state/toasts.ts";
import { fill, plural, t } from "../text/text.ts";
import { Field, Menu } from "./controls.tsx";
import { Checks, ManagePage, type Manager, readText, shownOnce, useManager } from "./manage.tsx";

interface Shown extends Pick<Webhook, "name" | "url" | "types" | "failures" | "attempts"> {
  readonly state: "active" | "paused";
  readonly reason: string | null;
  readonly nextAttempt: string | null;
}

const describeAttempt = ({ status, error, durationMs }: Attempt): string =>
  fill(t.operators.webhooks.result, {
    answer: String(status ?? error ?? t.operators.webhooks.noAnswer),
    ms: formatFigure(durationMs),
  });

const describeEvent = ({ event }: Attempt): string =>
  event.startsWith("msg_test_")
    ? t.operators.webhooks.testEvent
    : fill(t.operators.webhooks.changeEvent, { number: event.replace("msg_", "") });

/** What the service would say in terms of its API. */
function findFault(url: string, name: string | undefined, types: readonly unknown[]) {
  const { protocol, username, password } = URL.parse(url) ?? { protocol: "" };
  if (!/^https?:$/.test(protocol)) return t.operators.webhooks.urlFault;
  if (username || password) return t.operators.webhooks.credentialsFault;
  if (name !== undefined && !/^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/.test(name))
    return t.operators.webhooks.nameFault;
  return types.length === 0 ? t.operators.webhooks.typesFault : undefined;
}

async function add(form: FormData): Promise<undefined> {
  const url = readText(form, "webhook-url") ?? "";
  const name = readText(form, "webhook-name");
  const chosen = form.getAll("webhook-types");
  const types = changeTypes.filter((type) => chosen.includes(type));
  const fault = findFault(url, name, types);
  if (fault !== undefined) throw new Explained(fault);
  const request = call((client) => client.addWebhook({ url, name, types }));
  const added = await request.catch((error: unknown) => {
    // The rest of the address was checked above.
    const isPrivate = isStatus(error, 400) && (error as ServiceError).detail.startsWith("url:");
    if (!isPrivate) throw error;
    throw new Explained(t.operators.webhooks.privateFault);
  });
  shownOnce.open({ title: t.operators.webhooks.created, secret: added.secret });
}

export function WebhooksView(): JSX.Element {
  const manager = useManager(() => call((client) => client.listWebhooks()));

  const creation = {
    title: t.operators.webhooks.create,
    label: t.operators.webhooks.createLabel,
    run: add,
    content: (
      <>
        <Field id="webhook-url" label={t.operators.webhooks.url} required placeholder="https://…" />
        <Field id="webhook-name" label={t.shared.name} hint={t.operators.manage.optional} />
        <Checks
          id="webhook-types"
          legend={t.operators.webhooks.sends}
          options={changeTypes.map((type) => [type, t.operators.webhooks.types[type]])}
          chosen={changeTypes}
        />
      </>
    ),
  };

  return (
    <ManagePage
      manager={manager}
      icon="webhooks"
      title={t.shell.views.webhooks}
      intro={t.operators.webhooks.intro}
      none={t.operators.webhooks.none}
      creation={creation}
      heads={[
        t.shared.name,
        t.operators.webhooks.sends,
        t.operators.webhooks.state,
        t.operators.webhooks.lastAttempts,
        "",
      ]}
      keys={(manager.items ?? []).map(({ name }) => name)}
      rows={(manager.items ?? []).map((webhook) => [
        <>
          <strong>{webhook.name}</strong> <span class="digits faint">{webhook.url}</span>
        </>,
        <span class="words">
          {webhook.types.length === changeTypes.length
            ? t.operators.webhooks.allTypes
            : webhook.types.map((type) => t.operators.webhooks.shortTypes[type]).join(", ")}
        </span>,
        <State of={webhook} />,
        <Attempts of={webhook.attempts} />,
        <Actions of={webhook} manager={manager} />,
      ])}
    />
  );
}

interface ActionsProps {
  readonly of: Shown;
  readonly manager: Manager;
}

function Actions({ of: webhook, manager }: ActionsProps): JSX.Element {
  const { name, state, failures } = webhook;
  /** Runs an action and shows its result, with its undo. */
  const act = async (run: () => Promise<string>, takeBack?: () => unknown): Promise<void> => {
    try {
      const said = await run();
      toast(said, takeBack && { label: t.shared.undo, run: () => void takeBack() });
    } catch (error) {
      toast(fill(t.operators.manage.failedBecause, { reason: explain(error) }));
    }
    await manager.reload();
  };
  const quoted = quote(name);
  const test = async (): Promise<string> => {
    const attempt = await call((client) => client.testWebhook(name));
    return fill(t.operators.webhooks.tested, { result: describeAttempt(attempt) });
  };
  const verb = state === "active" ? "pause" : "resume";
  const toggle = (to: "pause" | "resume"): Promise<void> =>
    act(
      async () => {
        await call((client) =>
          to === "pause" ? client.pauseWebhook(name) : client.resumeWebhook(name),
        );
        return fill(
          to === "pause" ? t.operators.webhooks.pausedNow : t.operators.webhooks.resumedNow,
          { name: quoted },
        );
      },
      () => toggle(to === "pause" ? "resume" : "pause"),
    );
  const skip = async (): Promise<string> => {
    const { skipped } = await call((client) => client.skipWebhook(name));
    return skipped === null
      ? t.operators.webhooks.notSkipped
      : fill(t.operators.webhooks.skipped, { number: String(skipped) });
  };
  const replay = (): void => {
    manager.question.open({
      title: fill(t.operators.webhooks.replayTitle, { name: quoted }),
      label: t.operators.webhooks.replayLabel,
      run: async (form) => {
        const text = readText(form, "webhook-from");
        if (text !== undefined && !/^\d{1,15}$/.test(text))
          throw new Explained(t.operators.webhooks.replayFault);
        const from = text === undefined ? "newest" : Number(text);
        await call((client) => client.replayWebhook(name, from));
        return fill(t.operators.webhooks.replayed, { name: quoted });
      },
      content: (
        <>
          <p>{t.operators.webhooks.replayHint}</p>
          <Field id="webhook-from" label={t.operators.webhooks.replayFrom} defaultValue="0" />
        </>
      ),
    });
  };
  const rotate = (): void => {
    manager.question.open({
      title: fill(t.operators.webhooks.rotateTitle, { name: quoted }),
      label: t.operators.webhooks.rotateLabel,
      run: async () => {
        const { secret } = await call((client) => client.rotateWebhook(name));
        shownOnce.open({ title: t.operators.webhooks.rotated, secret });
        return undefined;
      },
      content: <p>{t.operators.webhooks.rotateHint}</p>,
    });
  };
  const remove = (): void => {
    manager.question.open({
      title: fill(t.operators.webhooks.deleteTitle, { name: quoted }),
      label: t.shared.delete,
      kind: "danger",
      run: async () => {
        await call((client) => client.removeWebhook(name));
        return fill(t.operators.webhooks.deleted, { name: quoted });
      },
      content: <p>{t.operators.webhooks.deleteHint}</p>,
    });
  };
  return (
    <Menu aria-label={fill(t.operators.webhooks.actionsFor, { name })} text={t.shared.actions}>
      <button onClick={() => void act(test)}>{t.operators.webhooks.test}</button>
      <button onClick={() => void toggle(verb)}>
        {verb === "pause" ? t.operators.webhooks.pause : t.operators.webhooks.resume}
      </button>
      {failures > 0 && <button onClick={() => void act(skip)}>{t.operators.webhooks.skip}</button>}
      <button onClick={replay}>{t.operators.webhooks.replay}</button>
      <button onClick={rotate}>{t.operators.webhooks.rotate}</button>
      <button onClick={remove}>{t.shared.delete}</button>
    </Menu>
  );
}

function State({ of: webhook }: { readonly of: Shown }): JSX.Element {
  const { state, reason, failures, nextAttempt } = webhook;
  if (state === "paused")
    return (
      <span class="field-note">
        {reason === null
          ? t.operators.webhooks.paused
          : fill(t.operators.webhooks.pausedBecause, { reason })}
      </span>
    );
  if (failures === 0) return <>{t.operators.webhooks.active}</>;
  return (
    <span class="field-fault">
      {nextAttempt === null
        ? plural(t.operators.webhooks.failures, failures)
        : plural(t.operators.webhooks.failuresNext, failures, { time: formatTime(nextAttempt) })}
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
      aria-label={plural(t.operators.webhooks.delivered, attempts.length, { good })}
    >
      {attempts.toReversed().map((attempt, at) => (
        <g key={attempt.event + attempt.time} transform={`translate(${at * 14} 0)`}>
          {hasSucceeded(attempt) ? (
            <rect class="strip-good" x={1} y={1} width={10} height={10} rx={2} />
          ) : (
            <path class="strip-bad" d="M2 2l8 8M10 2l-8 8" />
          )}
          <title>
            {fill(t.operators.webhooks.resultAt, {
              time: formatTime(attempt.time),
              result: describeAttempt(attempt),
            })}
          </title>
        </g>
      ))}
    </svg>
  );
}

function Attempts({ of: attempts }: { readonly of: readonly Attempt[] }): JSX.Element {
  const [last] = attempts;
  if (last === undefined) return <>{t.operators.webhooks.noAttempts}</>;
  return (
    <details>
      <summary class={hasSucceeded(last) ? undefined : "field-fault"}>
        <Strip of={attempts} /> {describeAttempt(last)}
      </summary>
      {attempts.map((attempt) => (
        <p key={attempt.event + attempt.time}>
          {fill(t.operators.webhooks.attempt, {
            time: formatTime(attempt.time),
            event: describeEvent(attempt),
            result: describeAttempt(attempt),
          })}{" "}
          {attempt.answer && <span class="digits faint">{attempt.answer}</span>}
        </p>
      ))}
    </details>
  );
}
