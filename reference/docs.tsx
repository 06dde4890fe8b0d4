/** The API reference: the description of the service that serves the page, with requests to try. */

import { signal } from "@preact/signals";
import { type JSX, render } from "preact";
import { useEffect } from "preact/hooks";
import { recall } from "../console/state/storage.ts";
import { Table, Terms } from "../console/view/controls.tsx";
import { listSettings } from "../scripts/settings.ts" with { type: "macro" };
import { addressOf, type Description, guides, listOperations } from "./description.ts";
import { markCode, Markdown } from "./markdown.tsx";
import { EventCard, Method, OperationCard, token } from "./operation.tsx";
import { Members, Type } from "./schema.tsx";
import { type Entry, Search } from "./search.tsx";

const reference = document.querySelector("#reference") as HTMLElement;
const search = document.querySelector("#search") as HTMLElement;
const field = document.querySelector("#token") as HTMLInputElement;
const settings = listSettings();

async function show(): Promise<void> {
  field.addEventListener("input", useToken);
  followSession();
  addEventListener("storage", followSession);
  // Back may restore the page from the browser's cache.
  addEventListener("pageshow", followSession);
  const response = await fetch("openapi.json");
  if (!response.ok) {
    reference.append(
      `openapi.json: the service answers ${response.status}. Reload the page to retry.`,
    );
    return;
  }
  const description = (await response.json()) as Description;
  const groups = listGroups(description);
  render(<Reference of={description} groups={groups} />, reference);
  render(<Search entries={listEntries(description, groups)} />, search);
  // The browser looked for the fragment before the page was rendered.
  if (location.hash !== "") location.replace(location.hash);
}

let kept = "";

/** Uses the token of the console's session on this device, until the user signs out. */
function followSession(): void {
  const session = recall("localStorage", "session") as { readonly token?: string } | undefined;
  if (field.value === kept) field.value = session?.token ?? "";
  kept = session?.token ?? "";
  useToken();
}

function useToken(): void {
  token.value = field.value.trim();
}

const guideAddress = (title: string): string => `/guides/${title.toLowerCase()}`;

const listGroups = ({ tags, paths, components }: Description) => {
  const operations = listOperations(paths, components);
  return tags.map(({ name, description = "" }) => ({
    name: name.charAt(0).toUpperCase() + name.slice(1),
    description,
    operations: operations.filter((one) => one.tags?.includes(name)),
  }));
};

type Groups = ReturnType<typeof listGroups>;

/** A row of the catalogue of errors. */
const ERROR = /^\| `(\d+) (\w+)` \| (\d+) \| (.*?) \|/gm;

function listEntries({ info, components, webhooks }: Description, groups: Groups): Entry[] {
  const events = listOperations(webhooks, components);
  return [
    ...[...groups.flatMap(({ operations }) => operations), ...events].map((one) => ({
      kind: one.method.toUpperCase(),
      title: one.summary ?? "",
      note: `${one.path} ${one.operationId}`,
      address: addressOf(one),
    })),
    ...Array.from(info.description.matchAll(ERROR), ([, code, name, status, meaning]) => ({
      kind: "Error",
      title: `${code} ${name}`,
      note: `${status} ${meaning}`,
      address: `/errors/${code}`,
    })),
    ...settings.map(({ variable, meaning }) => ({
      kind: "Setting",
      title: variable,
      note: meaning,
      address: `/settings/${variable}`,
    })),
    ...Object.entries(components.schemas).map(([name, { description = "" }]) => ({
      kind: "Schema",
      title: name,
      note: description,
      address: `/schemas/${name}`,
    })),
    ...Object.entries(guides).map(([title, text]) => ({
      kind: "Guide",
      title,
      note: text.replaceAll("`", "").slice(0, 100),
      address: guideAddress(title),
    })),
  ];
}

/** The id of the part that is read now. */
const place = signal("");

/** Marks the first part below the header. */
function usePlace(): void {
  useEffect(() => {
    const parts = [...document.querySelectorAll("main section[id]")];
    const visible = new Set<Element>();
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries)
          if (isIntersecting) visible.add(target);
          else visible.delete(target);
        const first = parts.find((part) => visible.has(part));
        if (first !== undefined) place.value = first.id;
      },
      { rootMargin: "-80px 0px -60% 0px" },
    );
    for (const part of parts) observer.observe(part);
    return () => observer.disconnect();
  }, []);
}

interface LinkProps {
  readonly to: string;
  readonly children: JSX.Element | string | (JSX.Element | string | undefined)[];
}

const ContentsLink = ({ to, children }: LinkProps): JSX.Element => (
  <a href={`#${to}`} aria-current={place.value === to ? "location" : undefined}>
    {children}
  </a>
);

const others = { Settings: "/settings", Headers: "/headers", Schemas: "/schemas" };

interface ReferenceProps {
  readonly of: Description;
  readonly groups: Groups;
}

function Reference({ of: description, groups }: ReferenceProps): JSX.Element {
  const { info, components, webhooks } = description;
  const events = listOperations(webhooks, components);
  const [introduction = "", errors = ""] = info.description.split("\n## Errors\n");
  usePlace();
  return (
    <>
      <details class="contents" open={matchMedia("(min-width: 60rem)").matches}>
        <summary>Contents</summary>
        <nav aria-label="Contents">
          <p>Guides</p>
          {Object.keys(guides).map((title) => (
            <ContentsLink key={title} to={guideAddress(title)}>
              {title}
            </ContentsLink>
          ))}
          {[...groups, { name: "Events", operations: events }].map((group) => (
            <>
              <p>{group.name}</p>
              {group.operations.map((one) => (
                <ContentsLink key={one.operationId} to={addressOf(one)}>
                  {[<Method of={one.method} />, " ", one.summary]}
                </ContentsLink>
              ))}
            </>
          ))}
          <p>More</p>
          {Object.entries(others).map(([title, address]) => (
            <ContentsLink key={title} to={address}>
              {title}
            </ContentsLink>
          ))}
        </nav>
      </details>
      <main>
        <h1>
          {info.title}{" "}
          <small>
            version {info.version}, licence {info.license?.name}
          </small>
        </h1>
        <Markdown text={introduction} />
        {Object.entries(guides).map(([title, text]) => (
          <section key={title} id={guideAddress(title)}>
            <h2>{title}</h2>
            <Markdown text={text} />
            {title === "Authentication" && (
              <Markdown text={components.securitySchemes["bearerAuth"]?.description ?? ""} />
            )}
            {title === "Errors" && <Markdown text={errors} />}
          </section>
        ))}
        {groups.map((group) => (
          <section key={group.name}>
            <h2>{group.name}</h2>
            <Markdown text={group.description} />
            {group.operations.map((one) => (
              <OperationCard key={addressOf(one)} operation={one} />
            ))}
          </section>
        ))}
        <section>
          <h2>Events</h2>
          <p>What a webhook gets. The service sends these requests.</p>
          {events.map((one) => (
            <EventCard key={addressOf(one)} event={one} />
          ))}
        </section>
        <section id="/settings">
          <h2>Settings</h2>
          <p>
            For the operator, as environment variables or flags. <code>plantstore config</code>{" "}
            shows them as they are.
          </p>
          <Table
            isListing
            label="Settings"
            heads={["variable", "default", "meaning", "allowed"]}
            rows={settings.map(({ variable, fallback, meaning, allowed }) => [
              <code id={`/settings/${variable}`}>{variable}</code>,
              fallback === "" ? "–" : <code>{fallback}</code>,
              meaning,
              allowed,
            ])}
          />
        </section>
        <section id="/headers">
          <h2>Headers</h2>
          <Terms
            class="answers"
            of={Object.entries(components.headers).map(([name, header]) => [
              <span id={`/headers/${name}`}>{name}</span>,
              markCode(header.description),
            ])}
          />
        </section>
        <section id="/schemas">
          <h2>Schemas</h2>
          {Object.entries(components.schemas).map(([name, schema]) => (
            <section key={name} class="card" id={`/schemas/${name}`}>
              <h3>{name}</h3>
              <Markdown text={schema.description ?? ""} />
              <small>
                <Type of={schema} />
              </small>
              <Members of={schema} />
            </section>
          ))}
        </section>
      </main>
    </>
  );
}

await show();
