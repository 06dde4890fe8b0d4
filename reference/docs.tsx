/** The API reference: the description of the service that serves the page, with requests to try. */

import { type JSX, render } from "preact";
import { KEPT_SESSION, recall } from "../console/state/storage.ts";
import { Terms } from "../console/view/controls.tsx";
import { addressOf, type Description, formatType, guides, listOperations } from "./description.ts";
import { markCode, Markdown } from "./markdown.tsx";
import { Method, OperationCard, token } from "./operation.tsx";

const reference = document.querySelector("#reference") as HTMLElement;
const field = document.querySelector("#token") as HTMLInputElement;

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
  render(<Reference of={(await response.json()) as Description} />, reference);
  // The browser looked for the fragment before the page was rendered.
  document.querySelector(`[id="${CSS.escape(location.hash.slice(1))}"]`)?.scrollIntoView();
}

let kept = "";

/** Uses the token of the console's session on this device, until the user signs out. */
function followSession(): void {
  const session = recall("localStorage", KEPT_SESSION) as { readonly token?: string } | undefined;
  if (field.value === kept) field.value = session?.token ?? "";
  kept = session?.token ?? "";
  useToken();
}

function useToken(): void {
  token.value = field.value.trim();
}

const guideAddress = (title: string): string => `/guides/${title.toLowerCase()}`;

function Reference({ of: description }: { readonly of: Description }): JSX.Element {
  const { info, tags, components } = description;
  const operations = listOperations(description);
  const [introduction = "", errors = ""] = info.description.split("\n## Errors\n");
  const groups = tags.map(({ name }) => ({
    name: name.charAt(0).toUpperCase() + name.slice(1),
    operations: operations.filter((one) => one.tags?.includes(name)),
  }));
  return (
    <>
      <details class="contents" open={matchMedia("(min-width: 60rem)").matches}>
        <summary>Contents</summary>
        <nav aria-label="Contents">
          <p>Guides</p>
          {Object.keys(guides).map((title) => (
            <a key={title} href={`#${guideAddress(title)}`}>
              {title}
            </a>
          ))}
          <a href="#/schemas">Schemas</a>
          {groups.map((group) => (
            <>
              <p>{group.name}</p>
              {group.operations.map((one) => (
                <a key={one.operationId} href={`#${addressOf(one)}`}>
                  <Method of={one.method} /> {one.summary}
                </a>
              ))}
            </>
          ))}
        </nav>
      </details>
      <main>
        <h1>
          {info.title} <small>version {info.version}</small>
        </h1>
        <Markdown text={introduction} />
        {Object.entries(guides).map(([title, text]) => (
          <section key={title} id={guideAddress(title)}>
            <h2>{title}</h2>
            <Markdown text={text} />
            {title === "Errors" && <Markdown text={errors} />}
          </section>
        ))}
        {groups.map((group) => (
          <section key={group.name}>
            <h2>{group.name}</h2>
            {group.operations.map((one) => (
              <OperationCard key={addressOf(one)} operation={one} />
            ))}
          </section>
        ))}
        <section id="/schemas">
          <h2>Schemas</h2>
          {Object.entries(components.schemas).map(([name, schema]) => (
            <section key={name} class="card" id={`/schemas/${name}`}>
              <h3>{name}</h3>
              <Markdown text={schema.description ?? ""} />
              <Terms
                class="answers"
                of={Object.entries(schema.properties ?? {}).map(([property, one]) => [
                  <>
                    {property}
                    {schema.required?.includes(property) === true && <small> required</small>}
                  </>,
                  <>
                    <small>{formatType(one)}</small> {markCode(one.description ?? "")}{" "}
                    {one.enum?.map(String).join(", ")}
                  </>,
                ])}
              />
            </section>
          ))}
        </section>
      </main>
    </>
  );
}

await show();
