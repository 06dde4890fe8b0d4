/** What this page changes about Swagger UI: its frame, its samples of code, and its rounding of long numbers. */

import { createAnswers } from "./answers.ts";
import { createCodeSamples, type Description } from "./code-samples.ts";
import { layOutJson } from "./exact-json.ts";
import type { SharedValue } from "./shared-value.ts";
import type { Component, GetComponent, Node, Plugin, Props, React, System } from "./swagger-ui.ts";

export const LAYOUT = "ReferenceLayout";

/** From here on the introduction goes to the end of the page: it is looked up, not read. */
const ERRORS_HEADING = "\n## Errors\n";

interface Info {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
}

export function createPlugin(
  description: Description & Info,
  token: SharedValue,
): (system: System) => Plugin {
  return ({ React }) => ({
    components: { [LAYOUT]: createLayout(React, description) },
    wrapComponents: {
      responses: () => createAnswers(React, createCodeSamples(React, description, token)),
      responseBody: (original) => createExactBody(React, original),
      // Its own is a link, and stands in a button. Pressing that changes the address too.
      DeepLink:
        () =>
        ({ text }: { readonly text: Node }) =>
          React.createElement("span", null, text),
      ...createNames(React),
      // The samples show the request in curl, among others.
      curl: () => nothing,
      // There is one service, the one that served this page, and one token, that of the header.
      OperationServers: () => nothing,
      authorizeOperationBtn: () => nothing,
    },
    afterLoad(this: System) {
      const { getSampleSchema } = this.fn;
      // Its own takes lines of JSON for a text within JSON, and quotes them.
      this.fn.getSampleSchema = (schema, mediaType, options, example) =>
        typeof example === "string" && mediaType === "application/x-ndjson"
          ? example
          : getSampleSchema(schema, mediaType, options, example);
    },
    statePlugins: {
      layout: {
        wrapActions: {
          // Its own scrolls to the very top, where the header covers what was looked for.
          scrollToElement: () => (element: Element) => element.scrollIntoView(),
        },
      },
    },
  });
}

/** What can be filled in has a name for those who do not see where it stands. */
function createNames({ createElement: h }: React): NonNullable<Plugin["wrapComponents"]> {
  return {
    TextArea: (original) => (props: Props) =>
      h(original, { "aria-label": "Request body", ...props }),
    ExamplesSelect: (original) => (props: Props) => h("label", null, h(original, props)),
    JsonSchemaForm: (original) => (props: Props) =>
      h(
        "label",
        null,
        h("span", { className: "unseen" }, String(props["description"])),
        h(original, props),
      ),
  };
}

const nothing: Component = () => null;

function createLayout({ createElement: h }: React, { info }: Info): Component {
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
      // For those who jump from heading to heading: those of the groups are of the third level.
      h("h2", { className: "unseen" }, "Operations"),
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

/** Its own parses the answer, and so shows 9007199254740993 as 9007199254740992. */
function createExactBody({ createElement: h }: React, original: Component): Component {
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
        // Lines of JSON are no JSON, and are shown as they came.
        layOutJson(content) ?? content,
      ),
    );
  };
}
