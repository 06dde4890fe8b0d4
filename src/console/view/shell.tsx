/** The frame around every view: navigation, account menu, connection banner, toasts. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { isLost, tryAgain } from "../api/service.ts";
import { importProgress } from "../import/state.ts";
import { DropTarget, ImportView } from "../import/view.tsx";
import { formatTime } from "../state/format.ts";
import { linkTo, route } from "../state/route.ts";
import {
  endSession,
  identity,
  mayManageTokens,
  mayManageWebhooks,
  mayRead,
  mayWrite,
} from "../state/session.ts";
import { act, announcement, dismiss, type Toast, toasts } from "../state/toasts.ts";
import { ActivityView } from "./activity.tsx";
import { Button, Icon, Mark, Menu, MenuItem, Terms } from "./controls.tsx";
import { PlantsView } from "./plants-view.tsx";
import { isShortcutsOpen, Shortcuts } from "./shortcuts.tsx";
import { SignIn } from "./sign-in.tsx";
import { TokensView } from "./tokens.tsx";
import { WebhooksView } from "./webhooks.tsx";

export function Shell(): JSX.Element {
  return identity.value === undefined ? <SignIn /> : <Inside />;
}

const focusMain = (): void => document.querySelector<HTMLElement>("#main")?.focus();

function Inside(): JSX.Element {
  // After signing in the focus would be nowhere.
  useEffect(() => {
    if (document.activeElement === document.body) focusMain();
  }, []);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          focusMain();
        }}
      >
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="#/plants">
          <Mark />
          <span>Plant Store</span>
        </a>
        <Tabs />
        <Account />
      </header>
      <div role="status">
        {isLost.value && (
          <div class="banner">
            <Icon name="warning" />
            <p>No connection to the store. Trying again…</p>
            <Button kind="small" onClick={() => void tryAgain()}>
              Try now
            </Button>
          </div>
        )}
      </div>
      {/* Charts have nothing to focus, but must scroll by keyboard. */}
      <main id="main" tabIndex={route.value.view === "activity" ? 0 : -1}>
        <View />
      </main>
      <section class="toasts" aria-label="Messages">
        {toasts.value.map((each) => (
          <ToastNote key={each.key} each={each} />
        ))}
      </section>
      <Shortcuts />
      <DropTarget />
      <div class="visually-hidden" aria-live="polite">
        {announcement.value}
      </div>
    </div>
  );
}

function View(): JSX.Element | null {
  const { view } = route.value;
  if (view === "import" && mayWrite.value) return <ImportView />;
  if (view === "activity" && mayRead.value) return <ActivityView />;
  if (view === "tokens" && mayManageTokens.value) return <TokensView />;
  if (view === "webhooks" && mayManageWebhooks.value) return <WebhooksView />;
  if (view === "plants" && (mayRead.value || mayWrite.value)) return <PlantsView />;
  return (
    <div class="single">
      <h1>Not allowed with this token</h1>
      <p>
        <a href="#/plants">Go to the plants</a>, or sign in with another token.
      </p>
    </div>
  );
}

function Tabs(): JSX.Element {
  const progress = importProgress.value;
  const tabs = [
    ["plants", mayRead.value ? "Plants" : "Add", true],
    ["import", "Import", mayWrite.value],
    ["activity", "Activity", mayRead.value],
    ["tokens", "Tokens", mayManageTokens.value],
    ["webhooks", "Webhooks", mayManageWebhooks.value],
  ] as const;
  const { view: current } = route.value;
  return (
    <nav class="tabs" aria-label="Views">
      {tabs
        .filter(([, , isOffered]) => isOffered)
        .map(([view, label]) => (
          <a
            key={view}
            class="tab"
            href={view === "plants" ? linkTo(undefined) : `#/${view}`}
            aria-current={view === current ? "page" : undefined}
          >
            <Icon name={view} />
            <span>{label}</span>
            {view === "import" && progress !== undefined && (
              <span class="tab-note tabular">{Math.floor(progress * 100)} %</span>
            )}
          </a>
        ))}
    </nav>
  );
}

function Account(): JSX.Element {
  const who = identity.value;
  const access = [...(mayRead.value ? ["read"] : []), ...(mayWrite.value ? ["write"] : [])];
  return (
    <Menu
      label={`Signed in as ${who?.name ?? ""}`}
      buttonClass="account"
      button={
        <>
          <Icon name="person" />
          <span>{who?.name}</span>
        </>
      }
    >
      <Terms
        class="facts"
        of={[
          [
            "Token",
            <>
              {who?.name}
              {who?.prefix !== undefined && <span class="digits faint"> {who.prefix}…</span>}
            </>,
          ],
          ["Access", access.join(" and ") || "none"],
          ["Expires", who?.expires === undefined ? "never" : formatTime(who.expires)],
        ]}
      />
      <hr />
      <MenuItem label="Keyboard shortcuts" onClick={() => (isShortcutsOpen.value = true)} />
      <a class="menu-item" href="docs">
        API reference
      </a>
      <MenuItem label="Sign out" onClick={() => endSession("left")} />
    </Menu>
  );
}

const TOAST_MS = 5000;
const ACTION_MS = 10_000;

/** Goes away by itself, but not while the pointer or the focus is on it. */
function ToastNote({ each }: { readonly each: Toast }): JSX.Element {
  const { key, text, action } = each;
  const isHeld = useSignal(false);
  useEffect(() => {
    if (isHeld.value || action?.isNeeded === true) return;
    const timer = setTimeout(() => dismiss(key), action === undefined ? TOAST_MS : ACTION_MS);
    return () => clearTimeout(timer);
  }, [isHeld.value]);
  const hold = (isOn: boolean) => (): void => {
    isHeld.value = isOn;
  };
  return (
    <div
      class="toast"
      onMouseEnter={hold(true)}
      onMouseLeave={hold(false)}
      onFocusIn={hold(true)}
      onFocusOut={hold(false)}
    >
      <p>{text}</p>
      {action !== undefined && (
        <button type="button" class="toast-action" aria-keyshortcuts="u" onClick={() => act(each)}>
          {action.label}
        </button>
      )}
      <button type="button" aria-label="Dismiss" onClick={() => dismiss(key)}>
        <Icon name="close" />
      </button>
    </div>
  );
}
