/** Tokens: lists, creates and revokes them. */

import type { JSX } from "preact";
import { findRate, UNLIMITED } from "../../src/domain/time.ts";
import { plantScopes, type Scope, type TokenSummary } from "../../src/domain/token.ts";
import type { Client } from "../../client/client.ts";
import { ask, call, Explained } from "../api/service.ts";
import { formatTime } from "../state/format.ts";
import { identity } from "../state/session.ts";
import { Button, Choice, Field } from "./controls.tsx";
import { Checks, ManagePage, readText, shownOnce, useManager } from "./manage.tsx";

const labels: Readonly<Partial<Record<string, string>>> = {
  "plants:read": "Read plants",
  "plants:write": "Change plants",
  "tokens:manage": "Manage tokens",
  "webhooks:manage": "Manage webhooks",
} satisfies Record<Scope, string>;

const labelOf = (scope: string): string => labels[scope] ?? scope;

export const describeScopes = (scopes: readonly string[]): string => scopes.map(labelOf).join(", ");

const expiries = { "": "Never", "30d": "In 30 days", "90d": "In 90 days", "365d": "In a year" };

const isInUse = ({ revoked, expires }: TokenSummary): boolean =>
  revoked === null && (expires === null || Date.parse(expires) > Date.now());

const isOwn = ({ prefix }: TokenSummary): boolean => prefix === identity.value?.prefix;

/** Newest first. */
async function readTokens(client: Client): Promise<readonly TokenSummary[]> {
  const all: TokenSummary[] = [];
  for await (const token of client.listTokens()) all.push(token);
  return all.toSorted((one, other) => Date.parse(other.created) - Date.parse(one.created));
}

/** What the service would say in terms of its API. */
function findFault(given: FormData): string | undefined {
  if (readText(given, "token-name") === undefined) return "Enter a name.";
  if (given.getAll("token-access").length === 0) return "Choose what it may do.";
  const rate = readText(given, "token-rate") ?? UNLIMITED;
  const isRate = rate === UNLIMITED || findRate(rate) !== undefined;
  return isRate ? undefined : "Enter a rate limit such as 100/s or 6000/min.";
}

async function create(given: FormData): Promise<undefined> {
  const fault = findFault(given);
  if (fault !== undefined) throw new Explained(fault);
  const { token } = await ask<{ readonly token: string }>("/tokens", "POST", {
    name: readText(given, "token-name"),
    scopes: given.getAll("token-access"),
    expires: readText(given, "token-expires"),
    rate: readText(given, "token-rate"),
  });
  shownOnce.value = { title: "The new token", secret: token };
}

export function TokensView(): JSX.Element {
  const manager = useManager(() => call(readTokens));
  const shown = (manager.items ?? []).filter(isInUse);
  // A token cannot grant scopes that it lacks.
  const has = identity.value?.scopes ?? [];

  const creation = {
    title: "New token",
    label: "Create token",
    run: create,
    content: (
      <>
        <Field id="token-name" label="Name" required placeholder="Anna Müller, or Till 2" />
        <Checks
          id="token-access"
          legend="Access"
          options={has.map((scope) => [scope, labelOf(scope)])}
          chosen={plantScopes}
        />
        <Choice id="token-expires" label="Expires" options={Object.entries(expiries)} />
        <Field
          id="token-rate"
          label="Rate limit"
          hint="(optional)"
          placeholder="100/s or 6000/min"
        />
      </>
    ),
  };
  const revoke = (token: TokenSummary): void => {
    manager.question.value = {
      title: `Revoke “${token.name}”?`,
      label: "Revoke",
      kind: "danger",
      run: async () => {
        await ask(`/tokens/${token.id}`, "DELETE");
        return `Revoked “${token.name}”.`;
      },
      content: (
        <p>
          Apps and people that use it are refused within 5 seconds. This can't be undone.
          {isOwn(token) && " You are signed in with it now."}
        </p>
      ),
    };
  };
  return (
    <ManagePage
      manager={manager}
      title="Tokens"
      intro="Each person and each app signs in with a token of its own."
      creation={creation}
      heads={["Name", "Access", "Expires", "Last used", ""]}
      rows={shown.map((token) => [
        <>
          <strong>{token.name}</strong> <span class="digits faint">{token.prefix}…</span>
          {isOwn(token) && <span class="tag">yours</span>}
        </>,
        describeScopes(token.scopes),
        token.expires === null ? "never" : formatTime(token.expires),
        token.lastUsed === null ? "never" : formatTime(token.lastUsed),
        <Button kind="danger" onClick={() => revoke(token)}>
          Revoke <span class="visually-hidden">{token.name}</span>
        </Button>,
      ])}
    />
  );
}
