/** Tokens: lists, creates and revokes them. */

import type { JSX } from "preact";
import { findRate, UNLIMITED } from "../../src/domain/time.ts";
import { joinList, plantScopes, splitList, type TokenSummary } from "../../src/domain/token.ts";
import type { Client } from "../../client/client.ts";
import { urlOf } from "../api/page.ts";
import { call, Explained } from "../api/service.ts";
import { describeAccess, describeScopes, formatTime, quote } from "../state/format.ts";
import { identity } from "../state/session.ts";
import { fill, rich, t } from "../text/text.ts";
import { Button, Choice, Field } from "./controls.tsx";
import { TagsInput } from "./form.tsx";
import { Checks, ManagePage, readText, shownOnce, useManager } from "./manage.tsx";
import { Tag } from "./tag.tsx";

const expiries = [
  ["", t.operators.tokens.expiresNever],
  ...Object.entries(t.operators.tokens.expiries),
] as const;

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
function findFault(form: FormData): string | undefined {
  if (readText(form, "token-name") === undefined) return t.operators.tokens.nameFault;
  if (form.getAll("token-access").length === 0) return t.operators.tokens.accessFault;
  const rate = readText(form, "token-rate") ?? UNLIMITED;
  const isRate = rate === UNLIMITED || findRate(rate) !== undefined;
  return isRate ? undefined : t.operators.tokens.rateFault;
}

async function create(form: FormData): Promise<undefined> {
  const fault = findFault(form);
  if (fault !== undefined) throw new Explained(fault);
  const name = readText(form, "token-name") ?? "";
  const scopes = form.getAll("token-access").map(String);
  const tags = readText(form, "token-tags");
  const wanted = {
    name,
    scopes,
    // A comma at the end, before another tag is chosen, is not the empty tag.
    tags: tags === undefined ? undefined : splitList(tags.replace(/[,\s]+$/, "")),
    expires: readText(form, "token-expires"),
    rate: readText(form, "token-rate"),
  };
  const made = await call((client) => client.createToken(wanted));
  shownOnce.open({
    title: t.operators.tokens.created,
    secret: made.token,
    access: { link: `${urlOf()}#token=${made.token}`, who: name, may: describeAccess(made) },
  });
}

const showTag = (tag: string): JSX.Element => <Tag key={tag} tag={tag} />;

export function TokensView(): JSX.Element {
  const manager = useManager(() => call(readTokens));
  const shown = (manager.items ?? []).filter(isInUse);
  // A token cannot grant scopes that it lacks, nor more than its tags.
  const has = identity.value?.scopes ?? [];

  const creation = {
    title: t.operators.tokens.create,
    label: t.operators.tokens.createLabel,
    run: create,
    content: (
      <>
        <Field
          id="token-name"
          label={t.shared.name}
          required
          placeholder={t.operators.tokens.namePlaceholder}
        />
        <Checks
          id="token-access"
          legend={t.operators.tokens.access}
          options={has.map((scope) => [scope, describeScopes([scope])])}
          chosen={plantScopes}
        />
        <Field
          id="token-tags"
          label={t.operators.tokens.tags}
          hint={t.operators.manage.optional}
          placeholder={t.operators.tokens.tagsPlaceholder}
          control={TagsInput}
          defaultValue={identity.value?.tags && joinList(identity.value.tags)}
        />
        <Choice id="token-expires" label={t.operators.tokens.expires} options={expiries} />
        <Field
          id="token-rate"
          label={t.operators.tokens.rate}
          hint={t.operators.manage.optional}
          placeholder={t.operators.tokens.ratePlaceholder}
        />
      </>
    ),
  };
  const revoke = (token: TokenSummary): void => {
    const name = quote(token.name);
    manager.question.open({
      title: fill(t.operators.tokens.revokeTitle, { name }),
      label: t.operators.tokens.revoke,
      kind: "danger",
      run: async () => {
        await call((client) => client.revokeToken(token.id));
        return fill(t.operators.tokens.revoked, { name });
      },
      content: (
        <p>
          {t.operators.tokens.revokeHint}
          {isOwn(token) && ` ${t.operators.tokens.revokeOwnHint}`}
        </p>
      ),
    });
  };
  return (
    <ManagePage
      manager={manager}
      icon="tokens"
      title={t.shell.views.tokens}
      intro={t.operators.tokens.intro}
      none={t.operators.tokens.none}
      creation={creation}
      heads={[
        t.shared.name,
        t.operators.tokens.access,
        t.operators.tokens.expires,
        t.operators.tokens.lastUsed,
        "",
      ]}
      keys={shown.map(({ id }) => id)}
      rows={shown.map((token) => [
        <>
          <strong>{token.name}</strong> <span class="digits faint">{token.prefix}…</span>{" "}
          {isOwn(token) && <span class="tag">{t.operators.tokens.yours}</span>}
        </>,
        <>
          {describeScopes(token.scopes)}
          {token.tags !== null && (
            <>, {rich(t.operators.tokens.onlyTagged, { tags: token.tags.map(showTag) })}</>
          )}
        </>,
        token.expires === null ? t.shell.never : <time>{formatTime(token.expires)}</time>,
        token.lastUsed === null ? t.shell.never : <time>{formatTime(token.lastUsed)}</time>,
        <Button kind="danger" onClick={() => revoke(token)}>
          {t.operators.tokens.revoke} <span class="visually-hidden">{token.name}</span>
        </Button>,
      ])}
    />
  );
}
