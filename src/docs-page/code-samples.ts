/** The request of an operation in every language: the one that was just sent, or an example. */

import { type DescribedOperation, exampleRequest } from "./example-request.ts";
import { shareValue, type SharedValue } from "./shared-value.ts";
import { languages, type SnippetRequest } from "./snippets.ts";
import type { Component, Node, React, Tree } from "./swagger-ui.ts";

/** As much of the description as matters here. */
export interface Description {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<
    Record<
      string,
      Readonly<Record<string, DescribedOperation>> & {
        readonly parameters?: DescribedOperation["parameters"];
      }
    >
  >;
}

interface CodeSamplesProps {
  readonly path: string;
  readonly method: string;
  /** What Swagger UI has sent, once it has. */
  readonly request: Tree | null | undefined;
}

/** Whoever reads Go reads Go everywhere. */
const chosen = shareValue(languages[0]?.key ?? "");

export function createCodeSamples(
  { createElement: h, useSyncExternalStore }: React,
  description: Description,
  token: SharedValue,
): Component {
  const chooseButton = (key: string, title: string, isChosen: boolean): Node =>
    h(
      "button",
      { key, type: "button", "aria-pressed": isChosen, onClick: () => chosen.set(key) },
      title,
    );

  return ({ path, method, request }: CodeSamplesProps) => {
    const key = useSyncExternalStore(chosen.subscribe, chosen.get);
    const pasted = useSyncExternalStore(token.subscribe, token.get);
    const language = languages.find((one) => one.key === key) ?? languages[0];
    const shown = request
      ? readRequest(request)
      : exampleRequest(findOperation(description, path, method), {
          baseUrl: findBaseUrl(description),
          method,
          path,
          token: pasted,
        });
    const code = language?.write(shown) ?? "";
    return h(
      "section",
      { className: "samples", "aria-label": `${method} ${path} in code` },
      h(
        "div",
        { className: "samples-bar" },
        h("h4", null, request ? "Request as sent" : "Request"),
        h(
          "div",
          { className: "samples-languages", role: "group", "aria-label": "Language" },
          languages.map((one) => chooseButton(one.key, one.title, one === language)),
        ),
        // Browsers give it to pages of a secure origin only.
        "clipboard" in navigator
          ? h(
              "button",
              {
                type: "button",
                className: "samples-copy",
                onClick: () => void navigator.clipboard.writeText(code),
              },
              "Copy",
            )
          : null,
      ),
      h("pre", { tabIndex: 0, "data-language": key }, h("code", null, code)),
    );
  };
}

/** With the parameters of its path, which hold for all operations there. */
function findOperation({ paths }: Description, path: string, method: string): DescribedOperation {
  const operation = paths[path]?.[method] ?? {};
  const parameters = [...(paths[path]?.parameters ?? []), ...(operation.parameters ?? [])];
  return { ...operation, parameters };
}

function findBaseUrl({ servers }: Description): string {
  return new URL(servers[0]?.url ?? "/", location.href).href.replace(/\/$/, "");
}

function readRequest(request: Tree): SnippetRequest {
  const { method, url, headers, body } = request.toJS() as {
    readonly method: string;
    readonly url: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: unknown;
  };
  return {
    method,
    url,
    headers: Object.entries(headers ?? {}),
    body: typeof body === "string" ? body : undefined,
  };
}
