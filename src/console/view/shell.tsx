/** What surrounds every view: the mark, the ways to the views, who is signed in. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { announcement } from "../state/announcements.ts";
import { isLost, tryAgain } from "../state/connection.ts";
import { importProgress } from "../state/import.ts";
import { route } from "../state/route.ts";
import { endSession, identity, mayRead, mayWrite } from "../state/session.ts";
import { isKeysHelpOpen } from "../state/shortcuts.ts";
import { ActivityView } from "./activity-view.tsx";
import { Icon, type IconName, Mark } from "./icons.tsx";
import { ImportView } from "./import-view.tsx";
import { KeysHelp } from "./keys-help.tsx";
import { Menu } from "./menu.tsx";
import { PlantsView } from "./plants-view.tsx";
import { SignIn } from "./sign-in.tsx";
import { Toasts } from "./toasts.tsx";

export function Shell(): JSX.Element {
  return identity.value === undefined ? <SignIn /> : <Inside />;
}

function Inside(): JSX.Element {
  // Whoever has just signed in is at the start of what they came for.
  useEffect(() => {
    if (document.activeElement === document.body)
      document.querySelector<HTMLElement>("#main")?.focus();
  }, []);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.querySelector<HTMLElement>("#main")?.focus();
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
      <LostBanner />
      {/* Charts have nothing to focus, and have to be scrolled by keys all the same. */}
      <main id="main" tabIndex={route.value.view === "activity" ? 0 : -1}>
        <View />
      </main>
      <Toasts />
      <KeysHelp />
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
  if (view === "plants") return <PlantsView />;
  return <NotOffered />;
}

const NotOffered = (): JSX.Element => (
  <div class="single">
    <h1>Not with this token</h1>
    <p>
      Your token may not do this. <a href="#/plants">Go to what it may do</a>, or sign in with
      another one.
    </p>
  </div>
);

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
  const may = [mayRead.value ? "look" : "", mayWrite.value ? "change" : ""].filter(Boolean);
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
      <dl class="menu-facts">
        <dt>Token</dt>
        <dd>
          {who?.name}
          {who?.prefix !== undefined && <span class="digits faint"> {who.prefix}…</span>}
        </dd>
        <dt>It may</dt>
        <dd>{may.length === 0 ? "do nothing" : may.join(" and ")}</dd>
        <dt>Ends</dt>
        <dd>{who?.expires === undefined ? "never" : formatDay(who.expires)}</dd>
      </dl>
      <hr />
      <button type="button" class="menu-item" onClick={() => (isKeysHelpOpen.value = true)}>
        Keys
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

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const formatDay = (text: string): string => day.format(new Date(text));

function LostBanner(): JSX.Element {
  return (
    <div role="status">
      {isLost.value && (
        <div class="banner">
          <Icon name="warning" />
          <p>No connection to the store. Trying again…</p>
          <button type="button" class="button button-small" onClick={() => void tryAgain()}>
            Try now
          </button>
        </div>
      )}
    </div>
  );
}
