/** The frame around every view: navigation, account menu, connection banner, toasts. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { isLost, tryAgain } from "../api/service.ts";
import { DropTarget } from "../import/drop.tsx";
import { importProgress } from "../import/state.ts";
import { ImportView } from "../import/view.tsx";
import { route } from "../state/route.ts";
import { endSession, identity, mayRead, mayWrite } from "../state/session.ts";
import { act, announcement, dismiss, type Toast, toasts } from "../state/toasts.ts";
import { ActivityView } from "./activity.tsx";
import { Button, Icon, type IconName, Mark, Menu } from "./controls.tsx";
import { PlantsView } from "./plants-view.tsx";
import { isShortcutsOpen, Shortcuts } from "./shortcuts.tsx";
import { SignIn } from "./sign-in.tsx";

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
      <div role="status">{isLost.value && <LostBanner />}</div>
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
  return (
    <nav class="tabs" aria-label="Views">
      <Tab view="plants" icon="plants" label={mayRead.value ? "Plants" : "Add"} />
      {mayWrite.value && (
        <Tab
          view="import"
          icon="import"
          label="Import"
          note={progress === undefined ? undefined : `${Math.floor(progress * 100)} %`}
        />
      )}
      {mayRead.value && <Tab view="activity" icon="activity" label="Activity" />}
    </nav>
  );
}

interface TabProps {
  readonly view: "plants" | "import" | "activity";
  readonly icon: IconName;
  readonly label: string;
  readonly note?: string | undefined;
}

function Tab({ view, icon, label, note }: TabProps): JSX.Element {
  return (
    <a class="tab" href={`#/${view}`} aria-current={route.value.view === view ? "page" : undefined}>
      <Icon name={icon} />
      <span>{label}</span>
      {note !== undefined && <span class="tab-note tabular">{note}</span>}
    </a>
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
      <dl>
        <dt>Token</dt>
        <dd>
          {who?.name}
          {who?.prefix !== undefined && <span class="digits faint"> {who.prefix}…</span>}
        </dd>
        <dt>Access</dt>
        <dd>{access.join(" and ") || "none"}</dd>
        <dt>Expires</dt>
        <dd>{who?.expires === undefined ? "never" : time.format(new Date(who.expires))}</dd>
      </dl>
      <hr />
      <button type="button" class="menu-item" onClick={() => (isShortcutsOpen.value = true)}>
        Keyboard shortcuts
      </button>
      <a class="menu-item" href="docs">
        API reference
      </a>
      <button type="button" class="menu-item" onClick={() => endSession("left")}>
        Sign out
      </button>
    </Menu>
  );
}

const time = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

const LostBanner = (): JSX.Element => (
  <div class="banner">
    <Icon name="warning" />
    <p>No connection to the store. Trying again…</p>
    <Button kind="small" onClick={() => void tryAgain()}>
      Try now
    </Button>
  </div>
);

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
  const hold = (): void => {
    isHeld.value = true;
  };
  const release = (): void => {
    isHeld.value = false;
  };
  return (
    <div
      class="toast"
      onMouseEnter={hold}
      onMouseLeave={release}
      onFocusIn={hold}
      onFocusOut={release}
    >
      <p>{text}</p>
      {action !== undefined && (
        <button
          type="button"
          class="toast-button toast-action"
          aria-keyshortcuts="u"
          onClick={() => act(each)}
        >
          {action.label}
        </button>
      )}
      <button type="button" class="toast-button" aria-label="Dismiss" onClick={() => dismiss(key)}>
        <Icon name="close" />
      </button>
    </div>
  );
}
