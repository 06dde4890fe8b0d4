/** Signing in: the service checks the token, which is then stored for the tab or the device. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { TokenFacts } from "../../client/client.ts";
import { findIssuedToken, issuerHost, leaveForIssuer } from "../api/issuer.ts";
import { call, explain, Explained, isReason, isStatus } from "../api/service.ts";
import {
  beginSession,
  identity,
  offered,
  type SignedOut,
  signedOut,
  switchSession,
} from "../state/session.ts";
import { clipName, quote } from "../state/format.ts";
import { unsaved } from "../state/saving.ts";
import { listDrafts } from "../state/storage.ts";
import { fill, plural, t } from "../text/text.ts";
import { Button, Check, Field, Form, Mark, Notice } from "./controls.tsx";
import { focusField, selectField, useSubmission } from "./form.tsx";
import { LanguageChoice } from "./preferences.tsx";
import { isScannedEarly } from "./scanner.ts";

const reasons: Readonly<Partial<Record<SignedOut, string>>> = t.operators.signIn.reasons;

/** Strips what people copy with a token: the header name, quotes, a backslash. */
const AROUND = /^["']?\s*(authorization\s*:\s*)?(bearer\s+)?|["']?\s*\\?$/gi;

/** The characters that a token in a header may have. */
const SENDABLE = /^[\x21-\x7e]+$/;

async function enter(token: string, isKept: boolean): Promise<void> {
  const facts = await call((client) => client.describeToken(), token);
  beginSession({ token, identity: facts }, isKept);
}

export function SignIn(): JSX.Element {
  const { isBusy, trouble, run } = useSubmission();
  const atIssuer = useSubmission();

  const check = async (text: string, isKept = false): Promise<void> => {
    await run(async () => {
      const token = text.trim().replaceAll(AROUND, "");
      if (token === "") throw new Explained(t.operators.signIn.noToken);
      if (!SENDABLE.test(token)) throw new Explained(t.operators.signIn.notAToken);
      await enter(token, isKept);
    });
    if (trouble.value !== undefined) focusField("token");
  };

  const submit = (form: HTMLFormElement): void => {
    const values = new FormData(form);
    void check(values.get("token") as string, values.has("kept"));
  };

  useEffect(() => {
    void atIssuer.run(async () => {
      const token = await findIssuedToken();
      if (token !== undefined) await enter(token, false);
    });
  }, []);

  const reason = reasons[signedOut.value];
  const kept = describeDrafts();
  return (
    <Card title={t.shell.signIn}>
      {(reason !== undefined || kept !== undefined) && (
        <Notice
          kind="warning"
          title={reason === undefined ? t.operators.signIn.notSaved : t.operators.signIn.signedOut}
        >
          <p>{[reason, kept].filter(Boolean).join(" ")}</p>
        </Notice>
      )}
      {isScannedEarly.value && <Notice kind="warning" title={t.operators.signIn.scannedEarly} />}
      {issuerHost !== undefined && (
        <>
          {atIssuer.trouble.value !== undefined && (
            <Notice
              kind="fault"
              title={t.operators.signIn.failed}
              text={explain(atIssuer.trouble.value)}
            />
          )}
          <Button
            kind="main"
            disabled={atIssuer.isBusy.value}
            onClick={() => void atIssuer.run(leaveForIssuer)}
          >
            {fill(t.operators.signIn.withIssuer, { host: issuerHost })}
          </Button>
          <p>{t.operators.signIn.orWithToken}</p>
        </>
      )}
      <Form onSubmit={submit}>
        <Field
          id="token"
          label={t.operators.signIn.token}
          fault={trouble.value === undefined ? undefined : explainRefusal(trouble.value)}
          inputRef={selectField}
          type="password"
          placeholder="pst_…"
          onText={() => (trouble.value = undefined)}
          onPaste={({ currentTarget: { form } }) => setTimeout(() => form?.requestSubmit())}
        />
        <Check name="kept">{t.operators.signIn.stay}</Check>
        <Button
          type="submit"
          kind={issuerHost === undefined ? "main" : undefined}
          disabled={isBusy.value}
        >
          {isBusy.value ? t.operators.signIn.checking : t.shell.signIn}
        </Button>
      </Form>
      <small>{t.operators.signIn.hint}</small>
      <LanguageChoice />
    </Card>
  );
}

/** Undefined if nothing that was typed before waits for its user. */
function describeDrafts(): string | undefined {
  const [first, ...others] = listDrafts();
  if (first === undefined) return undefined;
  const [, { name }] = first;
  return others.length > 0 || name.trim() === ""
    ? plural(t.operators.signIn.drafts, others.length + 1)
    : fill(t.operators.signIn.namedDraft, { name: quote(clipName(name)) });
}

interface CardProps {
  readonly title: string;
  readonly children: ComponentChildren;
}

const Card = ({ title, children }: CardProps): JSX.Element => (
  <main>
    <div class="sign-in-card">
      <p class="brand">
        <Mark />
        Plant Store
      </p>
      <h1>{title}</h1>
      {children}
    </div>
  </main>
);

const decline = (): void => void (offered.value = undefined);

/** A link with a token was opened. It signs in only after a click: someone else may be signed in. */
export function Offer({ token }: { readonly token: string }): JSX.Element {
  const { trouble, run } = useSubmission();
  const facts = useSignal<TokenFacts | undefined>(undefined);
  useEffect(() => {
    void run(async () => {
      facts.value = await call((client) => client.describeToken(), token);
    });
  }, []);
  const who = identity.value;
  const submit = (form: HTMLFormElement): void => {
    if (facts.value === undefined) return;
    switchSession({ token, identity: facts.value }, new FormData(form).has("kept"));
    decline();
  };
  return (
    <Card title={who === undefined ? t.operators.signIn.welcome : t.operators.signIn.whoContinues}>
      {who !== undefined && (
        <p>{fill(t.operators.signIn.linkForOther, { name: quote(who.name) })}</p>
      )}
      {who !== undefined && unsaved.value > 0 && (
        <Notice kind="warning" title={plural(t.shell.losesEdits, unsaved.value)} />
      )}
      {trouble.value !== undefined && (
        <Notice
          kind="fault"
          title={t.operators.signIn.linkFailed}
          text={explainRefusal(trouble.value)}
        />
      )}
      {facts.value !== undefined && (
        <Form onSubmit={submit}>
          <Check name="kept">{t.operators.signIn.stay}</Check>
          <Button type="submit" kind="main" autofocus>
            {fill(t.operators.signIn.continueAs, { name: quote(facts.value.name) })}
          </Button>
        </Form>
      )}
      {(who !== undefined || trouble.value !== undefined) && (
        <Button onClick={decline}>
          {who === undefined
            ? t.operators.signIn.withToken
            : fill(t.operators.signIn.stayAs, { name: quote(who.name) })}
        </Button>
      )}
    </Card>
  );
}

function explainRefusal(error: unknown): string {
  if (isReason(error, "token_expired")) return t.operators.signIn.tokenExpired;
  return isStatus(error, 401) ? t.operators.signIn.tokenRefused : explain(error);
}
