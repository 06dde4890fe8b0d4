/** Our changes to Swagger UI: the layout, code samples, the list of answers, and exact numbers. */

import {
  type DescribedOperation,
  exampleRequest,
  languages,
  layOutJson,
  type SnippetRequest,
} from "./samples.ts";

// The part of Swagger UI that the plugin uses. Its bundle has no types.

type Node = object | string | null;
type Props = Readonly<Record<string, unknown>>;
type Component = (props: never) => Node;

interface React {
  readonly createElement: (
    type: string | Component,
    props?: Props | null,
    ...children: readonly (Node | readonly Node[])[]
  ) => Node;
  readonly useSyncExternalStore: <Value>(
    subscribe: (onChange: () => void) => () => void,
    getSnapshot: () => Value,
  ) => Value;
}

/** A map of Immutable.js. */
interface Tree {
  readonly get: (key: string) => unknown;
  readonly has: (key: string) => boolean;
  readonly toJS: () => unknown;
  readonly entrySeq: () => Iterable<readonly [string, Tree]>;
  readonly push: (key: string) => Tree;
}

type GetComponent = (name: string, isConnected?: boolean) => Component;

type GetSampleSchema = (schema: unknown, mediaType: string, ...rest: unknown[]) => unknown;

export interface System {
  readonly fn: { getSampleSchema: GetSampleSchema };
  readonly React: React;
}

interface Plugin {
  readonly components?: Readonly<Record<string, Component>>;
  readonly wrapComponents?: Readonly<Record<string, (original: Component) => Component>>;
  readonly afterLoad?: (this: System) => void;
  readonly statePlugins?: object;
}

export interface SwaggerUi {
  readonly preauthorizeApiKey: (scheme: string, token: string) => void;
  readonly authActions: { readonly logout: (schemes: readonly string[]) => void };
}

/** Swagger UI brings its own React. It is known once the plugin is loaded. */
let react: System["React"];
const h: System["React"]["createElement"] = (...given) => react.createElement(...given);

export const LAYOUT = "ReferenceLayout";

/** The part of the introduction that moves to the end of the page. */
const ERRORS_HEADING = "\n## Errors\n";

/** The part of the description that this page uses itself. */
export interface Description {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Methods & Pick<DescribedOperation, "parameters">>>;
}

type Methods = Readonly<Record<string, DescribedOperation>>;

/** A value that several components show. */
export class SharedValue {
  current: string;
  private readonly listeners = new Set<() => void>();

  constructor(value: string) {
    this.current = value;
  }

  set(value: string): void {
    this.current = value;
    for (const listener of this.listeners) listener();
  }

  /** For a component, which is drawn again when the value changes. */
  use(): string {
    return react.useSyncExternalStore(this.subscribe, () => this.current);
  }

  private readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

const nothing: Component = () => null;

export function createPlugin(system: System, description: Description, token: SharedValue): Plugin {
  react = system.React;
  return {
    components: { [LAYOUT]: createLayout(description) },
    wrapComponents: {
      ...labels,
      responses: () => createAnswers(createCodeSamples(description, token)),
      responseBody: createExactBody,
      // The original is a link inside a button. The button changes the address as well.
      DeepLink:
        () =>
        ({ text }: { readonly text: Node }) =>
          h("span", null, text),
      // The code samples include curl.
      curl: () => nothing,
      // The page has one service, its own, and one token, in the header.
      OperationServers: () => nothing,
      authorizeOperationBtn: () => nothing,
    },
    afterLoad(this: System) {
      const { getSampleSchema } = this.fn;
      // The original quotes lines of JSON as if they were one JSON string.
      this.fn.getSampleSchema = (schema, mediaType, options, example) =>
        typeof example === "string" && mediaType === "application/x-ndjson"
          ? example
          : getSampleSchema(schema, mediaType, options, example);
    },
    statePlugins: {
      layout: {
        wrapActions: {
          // The original scrolls to the very top, under the sticky header.
          scrollToElement: () => (element: Element) => element.scrollIntoView(),
        },
      },
    },
  };
}

function createLayout({ info }: Description): Component {
  const [introduction, errors] = info.description.split(ERRORS_HEADING);
  return ({ getComponent }: { readonly getComponent: GetComponent }) => {
    const markdown = getComponent("Markdown", true);
    return h(
      "div",
      { className: "swagger-ui" },
      h(
        "div",
        { className: "introduction" },
        h("h1", null, info.title, " ", h("small", null, `version ${info.version}`)),
        h(markdown, { source: introduction }),
      ),
      h(getComponent("errors", true)),
      // The groups below have headings of the third level.
      h("h2", { className: "visually-hidden" }, "Operations"),
      h(getComponent("operations", true)),
      h(getComponent("Models", true)),
      errors === undefined
        ? null
        : h(
            "section",
            { className: "errors-catalogue", id: "errors" },
            h("h2", null, "Errors"),
            h(markdown, { source: errors }),
          ),
    );
  };
}

/** For form controls that have none. */
const labels: NonNullable<Plugin["wrapComponents"]> = {
  TextArea: (original) => (props: Props) => h(original, { "aria-label": "Request body", ...props }),
  ExamplesSelect: (original) => (props: Props) => h("label", null, h(original, props)),
  JsonSchemaForm: (original) => (props: Props) =>
    h(
      "label",
      null,
      h("span", { className: "visually-hidden" }, String(props["description"])),
      h(original, props),
    ),
};

/** The original parses the answer and shows 9007199254740993 as 9007199254740992. */
function createExactBody(original: Component): Component {
  return (props: Props) => {
    const { content, contentType, getComponent } = props;
    if (typeof content !== "string" || !/json/i.test(String(contentType)))
      return h(original, props);
    return h(
      "div",
      null,
      h("h5", null, "Response body"),
      h(
        (getComponent as GetComponent)("HighlightCode", true),
        { language: "json", downloadable: true, fileName: "response.json", canCopy: true },
        // Lines of JSON are not JSON, and stay as they are.
        layOutJson(content) ?? content,
      ),
    );
  };
}

interface AnswersProps extends Props {
  readonly path: string;
  readonly method: string;
  readonly responses: Tree;
  /** What Swagger UI sent, if anything. */
  readonly request: Tree | null | undefined;
  readonly tryItOutResponse: Tree | null | undefined;
  readonly specPath: Tree;
  readonly getComponent: GetComponent;
  readonly oas3Selectors: {
    readonly activeExamplesMember: (...key: readonly string[]) => unknown;
  };
  readonly oas3Actions: { readonly setResponseContentType: (choice: object) => void };
}

/** The original table has no headers and repeats the shape of an error for every status. */
function createAnswers(codeSamples: Component): Component {
  return (props: AnswersProps) => {
    const { getComponent, path, method, request, responses, tryItOutResponse } = props;
    const statuses = [...responses.entrySeq()];
    const [accepting] = statuses.find(([code, one]) => code < "300" && one.has("content")) ?? [];
    const { activeExamplesMember } = props.oas3Selectors;
    const describeSuccess = (code: string, response: Tree): Node =>
      h(getComponent("response"), {
        ...props,
        key: code,
        code,
        response,
        specPath: props.specPath.push(code),
        controlsAcceptHeader: code === accepting,
        activeExamplesKey: activeExamplesMember(path, method, "responses", code),
        onContentTypeChange: ({ controlsAcceptHeader, value }: Props) => {
          if (controlsAcceptHeader)
            props.oas3Actions.setResponseContentType({ path, method, value });
        },
      });
    const describeFailure = (code: string, response: Tree): Node =>
      h(
        "tr",
        { key: code, className: "response failure", "data-code": code },
        h("td", { className: "response-col_status" }, code),
        h("td", null, h(getComponent("Markdown", true), { source: response.get("description") })),
      );
    return h(
      "div",
      { className: "responses-wrapper" },
      h(codeSamples, { path, method, request }),
      tryItOutResponse
        ? h(
            "section",
            {
              className: "live",
              "data-failed": Number(tryItOutResponse.get("status")) >= 400 ? "" : undefined,
              "aria-live": "polite",
              "aria-label": `Answer of ${method} ${path}`,
            },
            h(getComponent("liveResponse"), { ...props, response: tryItOutResponse }),
          )
        : null,
      h("h4", null, "Answers"),
      h(
        "table",
        { className: "responses-table" },
        h(
          "thead",
          { className: "visually-hidden" },
          h("tr", null, h("th", { scope: "col" }, "Status"), h("th", { scope: "col" }, "Meaning")),
        ),
        h(
          "tbody",
          null,
          statuses.map(([code, response]) =>
            (code < "400" ? describeSuccess : describeFailure)(code, response),
          ),
        ),
      ),
    );
  };
}

/** One choice for all operations. */
const chosen = new SharedValue("curl");

function createCodeSamples(description: Description, token: SharedValue): Component {
  return ({ path, method, request }: Pick<AnswersProps, "path" | "method" | "request">) => {
    const key = chosen.use();
    const pasted = token.use();
    const language = languages.find((one) => one.key === key);
    const shown = request
      ? readRequest(request)
      : exampleRequest(findOperation(description, path, method), {
          baseUrl: findBaseUrl(description),
          method,
          path,
          token: pasted,
        });
    const code = language?.write(shown) ?? "";
    const languageButton = (one: (typeof languages)[number]): Node =>
      h(
        "button",
        {
          key: one.key,
          type: "button",
          "aria-pressed": one === language,
          onClick: () => chosen.set(one.key),
        },
        one.title,
      );
    const copy = (): void => void navigator.clipboard.writeText(code);
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
          languages.map(languageButton),
        ),
        // Browsers offer the clipboard only on a secure origin.
        "clipboard" in navigator
          ? h("button", { type: "button", className: "samples-copy", onClick: copy }, "Copy")
          : null,
      ),
      h("pre", { tabIndex: 0, "data-language": key }, h("code", null, code)),
    );
  };
}

function findOperation({ paths }: Description, path: string, method: string): DescribedOperation {
  const operation = paths[path]?.[method] ?? {};
  const parameters = [...(paths[path]?.parameters ?? []), ...(operation.parameters ?? [])];
  return { ...operation, parameters };
}

const findBaseUrl = ({ servers }: Description): string =>
  new URL(servers[0]?.url ?? "/", location.href).href.replace(/\/$/, "");

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
