/** The frame around every view: navigation, account menu, connection notice, toasts. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { isLost, recoveries } from "../api/service.ts";
import { current, isImporting } from "../import/state.ts";
import { elsewhere } from "../import/status.ts";
import { UndoDialog } from "../import/undo.tsx";
import { Modal, ofPage } from "../state/dialog.ts";
import { describeAccess, formatCount, formatTime } from "../state/format.ts";
import { linkTo, openPlant, route } from "../state/route.ts";
import { unsaved, waiting } from "../state/saving.ts";
import {
  endSession,
  identity,
  isForAll,
  isManager,
  may,
  mayRead,
  mayWrite,
  offered,
} from "../state/session.ts";
import { act, announcement, dismiss, type Toast, toasts } from "../state/toasts.ts";
import { fill, plural, t } from "../text/text.ts";
import { AskedDialog, Progress } from "./bulk.tsx";
import { CameraDialog } from "./camera.tsx";
import { Blank, Button, Icon, Mark, Menu, Notice, Terms } from "./controls.tsx";
import { LanguageChoice, ThemeChoice } from "./preferences.tsx";
import { later } from "./later.tsx";
import { labelled, LabelsDialog, PrintedLabels } from "./labels.tsx";
import { PrintedList } from "./printed-list.tsx";
import { PlantsView } from "./plants-view.tsx";
import { shortcutList, Shortcuts } from "./shortcuts.tsx";
import { QuestionDialog, ShownOnce } from "./manage.tsx";
import { Offer, SignIn } from "./sign-in.tsx";
import { unsavedList, UnsavedDialog } from "./unsaved.tsx";

export function Shell(): JSX.Element {
  if (offered.value !== undefined) return <Offer key={offered.value} token={offered.value} />;
  if (identity.value === undefined) return <SignIn />;
  return (
    <>
      <Inside />
      <PrintedLabels />
      <PrintedList />
    </>
  );
}

const focusMain = (): void => document.querySelector<HTMLElement>("#main")?.focus();

function Inside(): JSX.Element {
  // After signing in, no element has the focus.
  useLayoutEffect(() => {
    if (document.activeElement === document.body) focusMain();
  }, []);
  useEffect(() => {
    const timer = setTimeout(prefetchViews, PREFETCH_MS);
    return () => clearTimeout(timer);
  }, [recoveries.value]);
  return (
    <div class="shell">
      <Button class="button button-main skip" onClick={focusMain}>
        {t.shell.skipToContent}
      </Button>
      <header class="top">
        <a class="brand" href="#/plants">
          <Mark />
          <span>Plant Store</span>
        </a>
        <Tabs />
        <Account />
      </header>
      <ImportStatus />
      {route.value.view !== "plants" && <Progress />}
      {/* The charts handle the arrow keys, so the page must be focusable to scroll by them. */}
      <main id="main" tabIndex={route.value.view === "health" ? 0 : -1}>
        <CurrentView />
      </main>
      <section class="toasts" aria-label={t.shell.messages}>
        {isLost.value && (
          <Notice kind="warning" title={t.shell.noConnection} text={describeWaiting()} />
        )}
        {toasts.value.map((each) => (
          <ToastNote key={each.key} each={each} />
        ))}
      </section>
      <Shortcuts />
      <CameraDialog />
      <LabelsDialog />
      <AskedDialog />
      <UndoDialog />
      <ShownOnce />
      <DepartureDialog />
      <UnsavedDialog />
      <div class="visually-hidden" aria-live="polite">
        {announcement.value}
      </div>
    </div>
  );
}

/** A running import, on every page and in every tab of the same person. */
function ImportStatus(): JSX.Element | null {
  const now = current.value;
  const own =
    isImporting.value && now !== undefined
      ? { file: now.file.name, done: now.done ?? 0 }
      : undefined;
  if (own !== undefined && route.value.view === "import") return null;
  const shown = own ?? elsewhere.value;
  if (shown === undefined) return null;
  const text = fill(t.imports.importing, {
    file: shown.file,
    percent: Math.floor(shown.done * 100),
  });
  return (
    <section class="running" aria-label={t.imports.import}>
      <span class="cut">{text}</span>
      <progress value={shown.done} aria-label={fill(t.imports.importOf, { file: shown.file })} />
      {own === undefined ? (
        <span class="faint">{t.imports.elsewhere}</span>
      ) : (
        <a href="#/import">{t.imports.show}</a>
      )}
    </section>
  );
}

function describeWaiting(): string | undefined {
  const { size } = waiting.value;
  if (size === 0) return undefined;
  return plural(t.shell.waiting, size);
}

/** Those beside the plants are not part of the first view. */
const views = {
  overview: {
    View: later(async () => (await import("./overview.tsx")).OverviewView, t.shell.views.overview),
    isAllowed: () => mayRead.value,
  },
  plants: { View: PlantsView, isAllowed: () => mayRead.value || mayWrite.value },
  import: {
    View: later(async () => (await import("../import/view.tsx")).ImportView, t.shell.views.import),
    isAllowed: () => mayWrite.value,
  },
  changes: {
    View: later(async () => (await import("./changes.tsx")).ChangesView, t.shell.views.changes),
    isAllowed: () => mayRead.value,
  },
  health: {
    View: later(async () => (await import("./health.tsx")).HealthView, t.shell.views.health),
    isAllowed: () => mayRead.value && isForAll.value,
  },
  tokens: {
    View: later(async () => (await import("./tokens.tsx")).TokensView, t.shell.views.tokens),
    isAllowed: () => may("tokens:manage"),
  },
  webhooks: {
    View: later(async () => (await import("./webhooks.tsx")).WebhooksView, t.shell.views.webhooks),
    isAllowed: () => may("webhooks:manage"),
  },
} as const;

/** The plants have the key of the search. */
const keysOfViews: Readonly<Record<keyof typeof views, string>> = {
  overview: "o",
  plants: "/",
  import: "i",
  changes: "c",
  health: "h",
  tokens: "t",
  webhooks: "w",
};

const PREFETCH_MS = 1000;

/** The other views open without a connection too. */
function prefetchViews(): void {
  for (const view of listAllowed()) {
    const { View } = views[view];
    if ("prefetch" in View) void View.prefetch();
  }
}

const isOperator = (): boolean => may("tokens:manage") || may("webhooks:manage");

const listAllowed = (): (keyof typeof views)[] =>
  (Object.keys(views) as (keyof typeof views)[]).filter((view) => views[view].isAllowed());

/** For those who do not manage, the overview is what happened today. */
const nameView = (view: keyof typeof views): string =>
  view === "overview" && !isManager.value ? t.changes.today : t.shell.views[view];

/** Health is for operators. Others find it in the account menu. */
const listTabs = (): (keyof typeof views)[] =>
  listAllowed().filter((view) => view !== "health" || isOperator());

function CurrentView(): JSX.Element {
  const { View, isAllowed } = views[route.value.view];
  if (isAllowed()) return <View />;
  const allowed = mayRead.value || mayWrite.value ? "plants" : (listAllowed()[0] ?? "plants");
  return (
    <div class="single">
      <h1 class="visually-hidden">{t.shell.views[route.value.view]}</h1>
      <Blank icon="tokens" title={t.shell.notAllowed} text={t.shell.notAllowedHint}>
        <a class="button button-main" href={`#/${allowed}`}>
          {fill(t.shell.goTo, { view: t.shell.views[allowed] })}
        </a>
      </Blank>
    </div>
  );
}

function Tabs(): JSX.Element {
  return (
    <nav class="tabs" aria-label={t.shell.navigation}>
      {listTabs().map((view) => (
        <a
          key={view}
          class="tab"
          href={view === "plants" ? linkTo(undefined) : `#/${view}`}
          aria-current={view === route.value.view ? "page" : undefined}
          aria-keyshortcuts={view === "plants" && !mayRead.value ? undefined : keysOfViews[view]}
        >
          <Icon name={view} />
          <span>{view === "plants" && !mayRead.value ? t.shell.add : nameView(view)}</span>
        </a>
      ))}
    </nav>
  );
}

function Account(): JSX.Element {
  const who = identity.value;
  return (
    <Menu
      class="button button-plain account"
      aria-label={fill(t.shell.signedInAs, { name: who?.name ?? "" })}
      aria-keyshortcuts="m"
      icon="person"
      text={<span class="wide">{who?.name}</span>}
    >
      <Terms
        class="facts"
        of={[
          [
            t.shell.token,
            <>
              {who?.name}
              {who?.prefix !== undefined && <span class="digits faint"> {who.prefix}…</span>}
            </>,
          ],
          [t.shell.access, describeAccess(who ?? { scopes: [] })],
          [t.shell.expires, who?.expires === undefined ? t.shell.never : formatTime(who.expires)],
        ]}
      />
      {unsaved.value > 0 && (
        <button onClick={() => unsavedList.open({})}>
          {t.shell.unsaved} <span class="faint">{formatCount(unsaved.value)}</span>
        </button>
      )}
      <LanguageChoice />
      <ThemeChoice />
      <button aria-keyshortcuts="?" onClick={() => shortcutList.open({})}>
        {t.shell.shortcuts}
      </button>
      {mayRead.value && isForAll.value && <a href="#/health">{t.shell.health}</a>}
      <a href="docs">{t.shell.reference}</a>
      <button onClick={signOut}>{t.shell.signOut}</button>
    </Menu>
  );
}

/** What signing out would lose. */
const departure = new Modal<{ readonly edits: number; readonly file: string | undefined }>(() => [
  ...ofPage(),
  unsaved.value,
  isImporting.value,
]);

function signOut(): void {
  const file = isImporting.value ? current.value?.file.name : undefined;
  if (unsaved.value === 0 && file === undefined) endSession("left");
  else departure.open({ edits: unsaved.value, file });
}

function DepartureDialog(): JSX.Element | null {
  const asked = departure.value;
  if (asked === undefined) return null;
  const { edits, file } = asked;
  return (
    <QuestionDialog
      question={{
        title: t.shell.askSignOut,
        label: edits > 0 ? t.shell.signOutAnyway : t.shell.signOut,
        kind: "danger",
        content: (
          <>
            {edits > 0 && <p>{plural(t.shell.losesEdits, edits)}</p>}
            {file !== undefined && <p>{fill(t.shell.stopsImport, { file })}</p>}
          </>
        ),
        run: async () => {
          endSession("left");
          return undefined;
        },
      }}
      onClose={() => departure.close(asked)}
    />
  );
}

const TOAST_MS = 5000;
const ACTION_MS = 10_000;

/** Closes after a timeout, but not while it has the pointer or the focus. */
function ToastNote({ each }: { readonly each: Toast }): JSX.Element {
  const { key, text, action, also, done } = each;
  const note = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (action?.isNeeded === true) return;
    const leave = (): void => {
      if (note.current?.matches(":hover, :focus-within") === false) dismiss(key);
    };
    const timer = setInterval(leave, action === undefined ? TOAST_MS : ACTION_MS);
    return () => clearInterval(timer);
  }, [text]);
  const [only, other] = done?.undos.keys().toArray() ?? [];
  return (
    <div class="toast" ref={note}>
      <p>{text}</p>
      <div class="with-button">
        {done?.verb === "added" && other === undefined && (
          <Button kind="plain" onClick={() => openPlant(only)}>
            {t.shared.open}
          </Button>
        )}
        {done?.verb === "added" && (
          <Button kind="plain" onClick={() => labelled.open({ plants: done.plants })}>
            {other === undefined ? t.plants.label : t.plants.labels}
          </Button>
        )}
        {also !== undefined && (
          <Button kind="plain" onClick={() => act({ key, action: also })}>
            {also.label}
          </Button>
        )}
        {action !== undefined && (
          <Button kind="plain" aria-keyshortcuts="u" onClick={() => act(each)}>
            {action.label}
          </Button>
        )}
        <Button kind="plain" icon="close" label={t.shell.dismiss} onClick={() => dismiss(key)} />
      </div>
    </div>
  );
}
