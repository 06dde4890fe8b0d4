/** The API reference: Swagger UI with the description of the service that serves the page. */

import {
  createPlugin,
  type Description,
  LAYOUT,
  SharedValue,
  type SwaggerUi,
  type System,
} from "./plugin.ts";

/** Defined by swagger-ui-bundle.js, which the page loads first. */
declare const SwaggerUIBundle: (configuration: Readonly<Record<string, unknown>>) => SwaggerUi;

const SCHEME = "bearerAuth";

const reference = document.querySelector("#reference");
const field = document.querySelector<HTMLInputElement>("#token");
/** This page keeps it in memory only. */
const token = new SharedValue("");

await showReference();

async function showReference(): Promise<void> {
  const response = await fetch("openapi.json");
  if (!response.ok) {
    reference?.append(`openapi.json: the service answers ${response.status}. Reload to try again.`);
    return;
  }
  const spec = JSON.parse(await response.text(), withoutHead) as Description;
  const ui = SwaggerUIBundle({
    spec,
    domNode: reference,
    layout: LAYOUT,
    plugins: [(system: System) => createPlugin(system, spec, token)],
    deepLinking: true,
    displayOperationId: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 1,
    syntaxHighlight: { activated: false },
    // The validator is a foreign service.
    validatorUrl: null,
    persistAuthorization: false,
  });
  const useToken = (): void => {
    const pasted = field?.value.trim() ?? "";
    if (pasted !== "") ui.preauthorizeApiKey(SCHEME, pasted);
    else if (token.current !== "") ui.authActions.logout([SCHEME]);
    token.set(pasted);
  };
  field?.addEventListener("input", useToken);
  if (field?.value === "") field.value = findKeptToken();
  // A browser may have kept the token over a reload.
  useToken();
}

/** Of a person who stays signed in to the console on this device. */
function findKeptToken(): string {
  try {
    const key = `plantstore.session ${new URL(".", document.baseURI).pathname}`;
    return (JSON.parse(localStorage.getItem(key) ?? "{}") as { token?: string }).token ?? "";
  } catch {
    return "";
  }
}

/** HEAD answers wherever GET does: listing it would only make the page longer. */
function withoutHead(key: string, value: unknown): unknown {
  return key === "head" ? undefined : value;
}
