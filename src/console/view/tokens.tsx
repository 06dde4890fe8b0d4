/** Tokens: who can use the store, made and revoked here. */

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { plantScopes, type Scope, type TokenSummary } from "../../domain/token.ts";
import { formatCount, formatTime } from "../state/format.ts";
import { identity } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { Button } from "./controls.tsx";
import { Field, fieldProps, focusField, Form, useTask } from "./form.tsx";
import {
  ask,
  Confirm,
  Dialog,
  Listing,
  ManagePage,
  ShownOnce,
  Trouble,
  useItems,
} from "./manage.tsx";

const labels: Readonly<Partial<Record<string, string>>> = {
  "plants:read": "Read plants",
  "plants:write": "Change plants",
  "tokens:manage": "Manage tokens",
  "webhooks:manage": "Manage webhooks",
} satisfies Partial<Record<Scope | "webhooks:manage", string>>;

const expiries = { "": "Never", "30d": "In 30 days", "90d": "In 90 days", "365d": "In a year" };

const isOver = ({ revoked, expires }: TokenSummary): boolean =>
  revoked !== null || (expires !== null && Date.parse(expires) <= Date.now());

const isOwn = ({ prefix }: TokenSummary): boolean => prefix === identity.value?.prefix;

export function TokensView(): JSX.Element {
  const listed = useItems<TokenSummary>("/tokens");
  const isMaking = useSignal(false);
  const isAll = useSignal(false);
  const made = useSignal<string | undefined>(undefined);
  const ending = useSignal<TokenSummary | undefined>(undefined);
  const tokens = listed.items.value ?? [];
  const over = tokens.filter(isOver).length;
  const shown = tokens.filter((token) => isAll.value || !isOver(token)).toReversed();
  return (
    <ManagePage
      title="Tokens"
      intro="Each person and each app signs in with a token of its own."
      listed={listed}
      label="New token"
      onNew={() => (isMaking.value = true)}
    >
      <ShownOnce title="The new token" secret={made} />
      {tokens.length > 0 && (
        <Listing
          caption="Tokens"
          heads={["Name", "Access", "Expires", "Last used", ""]}
          rows={shown.map((token) => [
            token.id,
            <Name token={token} />,
            token.scopes.map((scope) => labels[scope] ?? scope).join(", "),
            token.expires === null ? "never" : formatTime(token.expires),
            token.lastUsed === null ? "never" : formatTime(token.lastUsed),
            !isOver(token) && (
              <Button kind="danger" onClick={() => (ending.value = token)}>
                Revoke <span class="visually-hidden">{token.name}</span>
              </Button>
            ),
          ])}
        />
      )}
      {over > 0 && (
        <p>
          <button type="button" class="button-link" onClick={() => (isAll.value = !isAll.value)}>
            {isAll.value ? "Hide" : "Show"} {formatCount(over, "token")} no longer in use
          </button>
        </p>
      )}
      {isMaking.value && <NewToken made={made} isOpen={isMaking} reload={listed.reload} />}
      {ending.value !== undefined && (
        <Confirm
          title={`Revoke “${ending.value.name}”?`}
          text={`Apps and people that use it are refused within 5 seconds. This can't be undone.${
            isOwn(ending.value) ? " You are signed in with it now." : ""
          }`}
          label="Revoke"
          run={async () => {
            await ask(`/tokens/${ending.value?.id}`, "DELETE");
            toast(`Revoked “${ending.value?.name}”.`);
            await listed.reload();
          }}
          onClose={() => (ending.value = undefined)}
        />
      )}
    </ManagePage>
  );
}

const Name = ({ token }: { readonly token: TokenSummary }): JSX.Element => (
  <>
    <strong>{token.name}</strong> <span class="digits faint">{token.prefix}…</span>
    {isOwn(token) && <span class="tag">yours</span>}
    {isOver(token) && <span class="tag">{token.revoked === null ? "expired" : "revoked"}</span>}
  </>
);

interface NewTokenProps {
  readonly made: Signal<string | undefined>;
  readonly isOpen: Signal<boolean>;
  readonly reload: () => Promise<void>;
}

function NewToken({ made, isOpen, reload }: NewTokenProps): JSX.Element {
  const name = useSignal("");
  const has = identity.value?.scopes ?? [];
  const chosen = useSignal(has.filter((scope) => plantScopes.includes(scope as Scope)));
  const expires = useSignal("");
  const rate = useSignal("");
  const task = useTask();
  useEffect(() => focusField("token-name"), []);
  const close = (): void => {
    isOpen.value = false;
  };
  const create = (): Promise<void> =>
    task.run(async () => {
      const { token } = await ask<{ readonly token: string }>("/tokens", "POST", {
        name: name.value.trim(),
        scopes: chosen.value,
        expires: expires.value || undefined,
        rate: rate.value.trim() || undefined,
      });
      close();
      made.value = token;
      await reload();
    });
  return (
    <Dialog title="New token" onClose={close}>
      <Form onSubmit={() => void create()}>
        <Field id="token-name" label="Name" rule="Who or what uses it, as in till-2. No spaces.">
          <input
            {...fieldProps("token-name", undefined)}
            autocomplete="off"
            value={name.value}
            onInput={(event) => (name.value = event.currentTarget.value)}
          />
        </Field>
        <fieldset class="checks">
          <legend>Access</legend>
          {/* A token cannot hand out what it lacks. */}
          {has.map((scope) => (
            <label key={scope} class="check">
              <input
                type="checkbox"
                checked={chosen.value.includes(scope)}
                onChange={({ currentTarget: { checked } }) => {
                  const others = chosen.value.filter((each) => each !== scope);
                  chosen.value = checked ? [...others, scope] : others;
                }}
              />
              {labels[scope] ?? scope}
            </label>
          ))}
        </fieldset>
        <Field id="token-expires" label="Expires">
          <select
            id="token-expires"
            value={expires.value}
            onChange={(event) => (expires.value = event.currentTarget.value)}
          >
            {Object.entries(expiries).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </Field>
        <Field id="token-rate" label="Rate limit" optional rule="As in 100/s or 6000/min.">
          <input
            {...fieldProps("token-rate", undefined)}
            autocomplete="off"
            value={rate.value}
            onInput={(event) => (rate.value = event.currentTarget.value)}
          />
        </Field>
        <Trouble of={task.trouble.value} />
        <div class="form-actions">
          <Button type="submit" kind="main" isDisabled={task.isBusy.value}>
            Create token
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </Form>
    </Dialog>
  );
}
