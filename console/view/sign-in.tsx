/** Signing in: the service checks the token, which is then stored for the tab or the device. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { findIssuedToken, issuerHost, leaveForIssuer } from "../api/issuer.ts";
import { call, explain, Explained, isExpired, isStatus } from "../api/service.ts";
import { beginSession, offered, type SignedOut, signedOut } from "../state/session.ts";
import { Button, Check, Field, Form, Mark, Notice } from "./controls.tsx";
import { focusField, selectField, useTask } from "./form.tsx";

const reasons: Readonly<Partial<Record<SignedOut, string>>> = {
  expired: "Your token has expired. Sign in with a new one to continue.",
  refused: "Your token is no longer accepted. It may have been revoked. Sign in with another one.",
};

/** Strips what people copy with a token: the header name, quotes, a backslash. */
const AROUND = /^["']?\s*(authorization\s*:\s*)?(bearer\s+)?|["']?\s*\\?$/gi;

/** The characters that a token in a header may have. */
const SENDABLE = /^[\x21-\x7e]+$/;

async function enter(token: string, isKept: boolean): Promise<void> {
  const identity = await call((client) => client.describeToken(), token);
  beginSession({ token, identity }, isKept);
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
    const given = offered.value;
    offered.value = undefined;
    if (given !== undefined) void check(given);
  }, [offered.value]);

  useEffect(() => {
    void atIssuer.run(async () => {
      const token = await findIssuedToken();
      if (token !== undefined) await enter(token, false);
    });
  }, []);

  const reason = reasons[signedOut.value];
  return (
    <main>
      <div class="sign-in-card">
        <p class="brand">
          <Mark />
          Plant Store
        </p>
        <h1>Sign in</h1>
        {reason !== undefined && trouble.value === undefined && (
          <Notice kind="warning" title="You were signed out" text={reason} />
        )}
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
          No token? Ask the person who runs the store to create one with
          <code>npx plantstore token create --name NAME</code>
        </small>
      </div>
    </main>
  );
}

function explainRefusal(error: unknown): string {
  if (isExpired(error)) return "This token has expired. Ask for a new one.";
  return isStatus(error, 401)
    ? "This token is not accepted. It is mistyped, incomplete or revoked."
    : explain(error);
}
