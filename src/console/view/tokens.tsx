/** Tokens: who can use the store, made and revoked here. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { plantScopes, type Scope, type TokenSummary } from "../../domain/token.ts";
import { formatCount, formatTime } from "../state/format.ts";
import { identity } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { Button, Table } from "./controls.tsx";
import { Choice } from "./form.tsx";
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

const labels: Readonly<Partial<Record<string, string>>> = {
  "plants:read": "Read plants",
  "plants:write": "Change plants",
  "tokens:manage": "Manage tokens",
  "webhooks:manage": "Manage webhooks",
} satisfies Record<Scope, string>;

const expiries = { "": "Never", "30d": "In 30 days", "90d": "In 90 days", "365d": "In a year" };

const isOver = ({ revoked, expires }: TokenSummary): boolean =>
  revoked !== null || (expires !== null && Date.parse(expires) <= Date.now());

const isOwn = ({ prefix }: TokenSummary): boolean => prefix === identity.value?.prefix;

export function TokensView(): JSX.Element {
  const listed = useItems<TokenSummary>("/tokens");
  const isMaking = useSignal(false);
  const isAll = useSignal(false);
  const secret = useSignal<string | undefined>(undefined);
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
      <ShownOnce title="The new token" secret={secret} />
      {tokens.length > 0 && (
        <Table
          label="Tokens"
          isListing
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
      {isMaking.value && <NewToken secret={secret} isOpen={isMaking} reload={listed.reload} />}
      {ending.value !== undefined && (
        <FormDialog
          title={`Revoke “${ending.value.name}”?`}
          label="Revoke"
          kind="danger"
          run={async () => {
            await ask(`/tokens/${ending.value?.id}`, "DELETE");
            toast(`Revoked “${ending.value?.name}”.`);
            await listed.reload();
          }}
          onClose={() => (ending.value = undefined)}
        >
          <p>
            Apps and people that use it are refused within 5 seconds. This can't be undone.
            {isOwn(ending.value) && " You are signed in with it now."}
          </p>
        </FormDialog>
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

function NewToken({ secret, isOpen, reload }: NewProps): JSX.Element {
  // A token cannot hand out what it lacks.
  const has = identity.value?.scopes ?? [];
  const name = useSignal("");
  const chosen = useSignal<readonly string[]>(
    has.filter((scope) => plantScopes.includes(scope as Scope)),
  );
  const expires = useSignal("");
  const rate = useSignal("");
  const create = async (): Promise<void> => {
    const { token } = await ask<{ readonly token: string }>("/tokens", "POST", {
      name: name.value.trim(),
      scopes: chosen.value,
      expires: expires.value || undefined,
      rate: rate.value.trim() || undefined,
    });
    secret.value = token;
    await reload();
  };
  return (
    <FormDialog
      title="New token"
      label="Create token"
      run={create}
      onClose={() => (isOpen.value = false)}
    >
      <TextField
        id="token-name"
        label="Name"
        rule="Who or what uses it, as in till-2. No spaces."
        text={name}
      />
      <Checks
        legend="Access"
        options={has.map((scope) => [scope, labels[scope] ?? scope])}
        chosen={chosen}
      />
      <Choice
        id="token-expires"
        label="Expires"
        value={expires.value}
        options={Object.entries(expiries)}
        onChange={(value) => (expires.value = value)}
      />
      <TextField
        id="token-rate"
        label="Rate limit"
        optional
        rule="As in 100/s or 6000/min."
        text={rate}
      />
    </FormDialog>
  );
}
