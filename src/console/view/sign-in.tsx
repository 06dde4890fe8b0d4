/** Signing in: the service checks the token at once, and this tab or this device keeps it. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { ServiceError } from "../../../client/client.ts";
import { call, explain, isExpired, isStatus } from "../api/service.ts";
import { beginSession, offered, type SignedOut, signedOut } from "../state/session.ts";
import { Button, Check, Mark, Notice } from "./controls.tsx";
import { focusField, Form, selectField, TextField, useTask } from "./form.tsx";

const reasons: Readonly<Partial<Record<SignedOut, string>>> = {
  expired: "Your token has expired. Sign in with a new one to continue.",
  refused: "Your token is no longer accepted. It may have been revoked. Sign in with another one.",
};

/** People copy the whole line of a header, also out of the quotes of a command. */
const AROUND = /^["']?\s*(authorization\s*:\s*)?(bearer\s+)?|["']?\s*\\?$/gi;

/** The characters that a header can carry. */
const SENDABLE = /^[\x21-\x7e]+$/;

export function SignIn(): JSX.Element {
  const text = useSignal("");
  const fault = useSignal<string | undefined>(undefined);
  const { isBusy, trouble, run } = useTask();
  const isKept = useSignal(false);

  const check = async (given: string): Promise<void> => {
    const token = given.trim().replaceAll(AROUND, "");
    if (token === "") fault.value = "Paste a token to sign in.";
    else if (!SENDABLE.test(token))
      fault.value = "This is not a token: it contains spaces or special characters.";
    else {
      fault.value = undefined;
      await run(async () => {
        const identity = await call((client) => client.describeToken(), token);
        beginSession({ token, identity }, isKept.value);
      });
      if (trouble.value === undefined) return;
      fault.value = explainRefusal(trouble.value);
    }
    focusField("token");
  };

  useEffect(() => {
    const given = offered.value;
    offered.value = undefined;
    if (given !== undefined) void check(given);
  }, [offered.value]);

  const reason = reasons[signedOut.value];
  return (
    <main>
      <div class="sign-in-card">
        <p class="brand">
          <Mark />
          Plant Store
        </p>
        <h1>Sign in</h1>
        {reason !== undefined && fault.value === undefined && (
          <Notice kind="warning" title="You were signed out" text={reason} />
        )}
        <Form onSubmit={() => void check(text.value)}>
          <TextField
            id="token"
            label="Token"
            fault={fault.value}
            inputRef={selectField}
            type="password"
            placeholder="pst_…"
            value={text.value}
            onText={(typed) => {
              text.value = typed;
              fault.value = undefined;
            }}
            onPaste={(event) => {
              const pasted = event.clipboardData?.getData("text") ?? "";
              if (text.value !== "" || pasted.trim() === "") return;
              event.preventDefault();
              text.value = pasted.trim();
              void check(pasted);
            }}
          />
          <Check isOn={isKept.value} onChange={(isOn) => (isKept.value = isOn)}>
            Stay signed in on this device
          </Check>
          <Button type="submit" kind="main" disabled={isBusy.value}>
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
  if (isStatus(error, 401))
    return "This token is not accepted. It is mistyped, incomplete or revoked.";
  const isOfStore = error instanceof ServiceError && (error.status > 0 || error.isTransient);
  return isOfStore ? explain(error) : "This does not look like a plant store.";
}
