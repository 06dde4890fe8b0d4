/** What an operation answers: the samples of its request, the live answer, and every status with its codes. */

import type { Component, GetComponent, Node, Props, React, Tree } from "./swagger-ui.ts";

interface AnswersProps extends Props {
  readonly path: string;
  readonly method: string;
  readonly responses: Tree;
  readonly request: Tree | null | undefined;
  readonly tryItOutResponse: Tree | null | undefined;
  readonly specPath: Tree;
  readonly getComponent: GetComponent;
  readonly oas3Selectors: {
    readonly activeExamplesMember: (...key: readonly string[]) => unknown;
  };
  readonly oas3Actions: { readonly setResponseContentType: (choice: object) => void };
}

/** In place of Swagger UI's own, whose table has no headers and repeats the shape of an error for every status. */
export function createAnswers({ createElement: h }: React, codeSamples: Component): Component {
  return (props: AnswersProps) => {
    const { getComponent, path, method, request, responses, tryItOutResponse } = props;
    const statuses = [...responses.entrySeq()];
    const acceptControlling = statuses.find(([code, one]) => code < "300" && one.has("content"));
    const describeStatus = ([code, response]: readonly [string, Tree]): Node =>
      code < "400"
        ? h(getComponent("response"), {
            ...props,
            key: code,
            code,
            response,
            specPath: props.specPath.push(code),
            controlsAcceptHeader: code === acceptControlling?.[0],
            activeExamplesKey: props.oas3Selectors.activeExamplesMember(
              path,
              method,
              "responses",
              code,
            ),
            onContentTypeChange: ({ controlsAcceptHeader, value }: Props) => {
              if (controlsAcceptHeader)
                props.oas3Actions.setResponseContentType({ path, method, value });
            },
          })
        : describeFailure(code, response, getComponent);
    const describeFailure = (code: string, response: Tree, get: GetComponent): Node =>
      h(
        "tr",
        { key: code, className: "response failure", "data-code": code },
        h("td", { className: "response-col_status" }, code),
        h("td", null, h(get("Markdown", true), { source: response.get("description") })),
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
              "aria-live": "polite",
              "aria-label": `Answer of ${method} ${path}`,
            },
            h(getComponent("liveResponse"), { ...props, response: tryItOutResponse }),
          )
        : null,
      h("h4", { className: "answers-title" }, "Answers"),
      h(
        "table",
        { className: "responses-table" },
        h(
          "thead",
          { className: "unseen" },
          h("tr", null, h("th", { scope: "col" }, "Status"), h("th", { scope: "col" }, "Meaning")),
        ),
        h("tbody", null, statuses.map(describeStatus)),
      ),
    );
  };
}
