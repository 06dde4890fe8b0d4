/** The way in: a token, checked at once, kept for this tab only. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ask, Failed, Lost, readText, TOKEN_EXPIRED } from "../api/service.ts";
import { beginSession, type Identity, type SignedOut, signedOut } from "../state/session.ts";
import { Field, fieldProps } from "./field.tsx";
import { Mark } from "./icons.tsx";
import { Notice } from "./notice.tsx";

const reasons: Readonly<Record<SignedOut, string | undefined>> = {
  never: undefined,
  left: undefined,
  expired: "Your token has expired. Ask for a new one to go on.",
  refused: "Your token is no longer accepted; it may have been revoked. Sign in with another one.",
};

/** What a header can carry, which is all that a token may have. */
const SENDABLE = /^[\x21-\x7e]+$/;

export function SignIn(): JSX.Element {
  const text = useSignal("");
  const fault = useSignal<string | undefined>(undefined);
  const isChecking = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  const check = async (given: string): Promise<void> => {
    const token = given.trim().replace(/^bearer\s+/i, "");
    if (token === "") fault.value = "Paste a token to sign in.";
    else if (!SENDABLE.test(token))
      fault.value = "This is no token: it has spaces or other signs in it.";
    else {
      isChecking.value = true;
      fault.value = undefined;
      try {
        const answer = await readText(await ask("token", { withToken: token }));
        beginSession(token, JSON.parse(answer) as Identity);
        return;
      } catch (error) {
        fault.value = explainRefusal(error);
      } finally {
        isChecking.value = false;
      }
    }
    input.current?.focus();
  };

  const reason = reasons[signedOut.value];
  return (
    <main class="sign-in">
      <div class="sign-in-card">
        <p class="brand brand-large">
          <Mark />
          Plant Store
        </p>
        <h1>Sign in</h1>
        {reason !== undefined && fault.value === undefined && (
          <Notice kind="warning" title="You have been signed out">
            <p>{reason}</p>
          </Notice>
        )}
        <form
          class="form"
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            if (!isChecking.value) void check(text.value);
          }}
        >
          <Field
            id="token"
            label="Token"
            fault={fault.value}
            rule="It begins with pst_. It is kept until this tab is closed, and nowhere else."
          >
            <input
              {...fieldProps("token", fault.value)}
              ref={input}
              type="password"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={text.value}
              onInput={(event) => {
                text.value = event.currentTarget.value;
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
          </Field>
          <div aria-live="assertive" class="visually-hidden">
            {fault.value}
          </div>
          <button type="submit" class="button button-main button-wide" disabled={isChecking.value}>
            {isChecking.value ? "Checking…" : "Sign in"}
          </button>
        </form>
        <p class="sign-in-help">
          Without a token, ask whoever runs the store. They make one with
          <code>npx plantstore token create --name NAME</code>
        </p>
      </div>
    </main>
  );
}

function explainRefusal(error: unknown): string {
  if (error instanceof Lost)
    return "The store does not answer. Check the connection and try again.";
  if (!(error instanceof Failed)) return "This does not look like a plant store.";
  if (error.code === TOKEN_EXPIRED) return "This token has expired. Ask for a new one.";
  if (error.status === 401)
    return "This token is not accepted: it is mistyped, incomplete or revoked.";
  return error.isPassing ? "The store is not available at the moment. Try again." : error.message;
}
