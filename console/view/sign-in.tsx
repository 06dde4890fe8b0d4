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
import { clipName, formatCount } from "../state/format.ts";
import { type Draft, listDrafts } from "../state/storage.ts";
import { Button, Check, Field, Form, Mark, Notice } from "./controls.tsx";
import { focusField, selectField, useTask } from "./form.tsx";
import { isScannedEarly } from "./scanner.ts";

const reasons: Readonly<Partial<Record<SignedOut, string>>> = {
  expired: "Your token has expired. Sign in with a new one to continue.",
  refused: "Your token is no longer accepted. It may have been revoked. Sign in with another one.",
};

/** Strips what people copy with a token: the header name, quotes, a backslash. */
const AROUND = /^["']?\s*(authorization\s*:\s*)?(bearer\s+)?|["']?\s*\\?$/gi;

/** The characters that a token in a header may have. */
const SENDABLE = /^[\x21-\x7e]+$/;

async function enter(token: string, isKept: boolean): Promise<void> {
  const facts = await call((client) => client.describeToken(), token);
  beginSession({ token, identity: facts }, isKept);
}

export function SignIn(): JSX.Element {
  const { isBusy, trouble, run } = useTask();
  const atIssuer = useTask();

  const check = async (given: string, isKept = false): Promise<void> => {
    await run(async () => {
      const token = given.trim().replaceAll(AROUND, "");
      if (token === "") throw new Explained("Paste a token to sign in.");
      if (!SENDABLE.test(token))
        throw new Explained("This is not a token: it contains spaces or special characters.");
      await enter(token, isKept);
    });
    if (trouble.value !== undefined) focusField("token");
  };

  const submit = (form: HTMLFormElement): void => {
    const given = new FormData(form);
    void check(given.get("token") as string, given.has("kept"));
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
    <Card title="Sign in">
      {(reason !== undefined || kept !== undefined) && (
        <Notice
          kind="warning"
          title={reason === undefined ? "Not saved yet" : "You were signed out"}
        >
          <p>{[reason, kept].filter(Boolean).join(" ")}</p>
        </Notice>
      )}
      {isScannedEarly.value && <Notice kind="warning" title="Sign in first, then scan again." />}
      {issuerHost !== undefined && (
        <>
          {atIssuer.trouble.value !== undefined && (
            <Notice kind="fault" title="Not signed in" text={explain(atIssuer.trouble.value)} />
          )}
          <Button
            kind="main"
            disabled={atIssuer.isBusy.value}
            onClick={() => void atIssuer.run(leaveForIssuer)}
          >
            Sign in with {issuerHost}
          </Button>
          <p>Or sign in with a token of this store:</p>
        </>
      )}
      <Form onSubmit={submit}>
        <Field
          id="token"
          label="Token"
          fault={trouble.value === undefined ? undefined : explainRefusal(trouble.value)}
          inputRef={selectField}
          type="password"
          placeholder="pst_…"
          onText={() => (trouble.value = undefined)}
          onPaste={({ currentTarget: { form } }) => setTimeout(() => form?.requestSubmit())}
        />
        <Check name="kept">Stay signed in on this device</Check>
        <Button
          type="submit"
          kind={issuerHost === undefined ? "main" : undefined}
          disabled={isBusy.value}
        >
          {isBusy.value ? "Checking…" : "Sign in"}
        </Button>
      </Form>
      <small>
        No token? Ask the person who runs the store. They create one for you under Tokens, here in
        the console.
      </small>
    </Card>
  );
}

/** Undefined if nothing that was typed before waits for its user. */
function describeDrafts(): string | undefined {
  const [first, ...others] = listDrafts();
  if (first === undefined) return undefined;
  const what = others.length > 0 ? formatCount(others.length + 1, "edit") : formatDraft(first);
  return `Your ${what} ${others.length > 0 ? "are" : "is"} kept in this tab, and there again when you have signed in.`;
}

const formatDraft = ({ name }: Draft): string =>
  name.trim() === "" ? "edit" : `edit “${clipName(name)}”`;

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
  const { trouble, run } = useTask();
  const given = useSignal<TokenFacts | undefined>(undefined);
  useEffect(() => {
    void run(async () => {
      given.value = await call((client) => client.describeToken(), token);
    });
  }, []);
  const who = identity.value;
  const submit = (form: HTMLFormElement): void => {
    if (given.value === undefined) return;
    switchSession({ token, identity: given.value }, new FormData(form).has("kept"));
    decline();
  };
  return (
    <Card title={who === undefined ? "Welcome" : "Who continues?"}>
      {who !== undefined && <p>You are signed in as “{who.name}”. The link is for someone else.</p>}
      {trouble.value !== undefined && (
        <Notice kind="fault" title="The link doesn't work" text={explainRefusal(trouble.value)} />
      )}
      {given.value !== undefined && (
        <Form onSubmit={submit}>
          <Check name="kept">Stay signed in on this device</Check>
          <Button type="submit" kind="main" autofocus>
            Continue as “{given.value.name}”
          </Button>
        </Form>
      )}
      {(who !== undefined || trouble.value !== undefined) && (
        <Button onClick={decline}>
          {who === undefined ? "Sign in with a token" : `Stay “${who.name}”`}
        </Button>
      )}
    </Card>
  );
}

function explainRefusal(error: unknown): string {
  if (isReason(error, "token_expired")) return "This token has expired. Ask for a new one.";
  return isStatus(error, 401)
    ? "This token is not accepted. It is mistyped, incomplete or revoked."
    : explain(error);
}
