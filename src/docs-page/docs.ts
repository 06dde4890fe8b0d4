/** The page of the API reference: Swagger UI over the description of this very service. */

import { createPlugin, LAYOUT } from "./plugin.ts";
import { shareValue } from "./shared-value.ts";
import type { SwaggerUi } from "./swagger-ui.ts";

/** Defined by swagger-ui-bundle.js, which the page loads first. */
declare const SwaggerUIBundle: (configuration: Readonly<Record<string, unknown>>) => SwaggerUi;

const SCHEME = "bearerAuth";

const reference = document.querySelector("#reference");
const field = document.querySelector<HTMLInputElement>("#token");
/** In memory only: it is gone with the page. */
const token = shareValue("");

await showReference();

async function showReference(): Promise<void> {
  const response = await fetch("openapi.json");
  if (!response.ok) {
    reference?.append(`openapi.json: the service answers ${response.status}. Reload to try again.`);
    return;
  }
  const spec = JSON.parse(await response.text(), withoutHead) as Parameters<typeof createPlugin>[0];
  const ui = SwaggerUIBundle({
    spec,
    domNode: reference,
    layout: LAYOUT,
    plugins: [createPlugin(spec, token)],
    deepLinking: true,
    displayOperationId: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 1,
    syntaxHighlight: { activated: false },
    // It would send the description to somebody else's service.
    validatorUrl: null,
    persistAuthorization: false,
  });
  const useToken = (): void => {
    const pasted = field?.value.trim() ?? "";
    if (pasted !== "") ui.preauthorizeApiKey(SCHEME, pasted);
    else if (token.get() !== "") ui.authActions.logout([SCHEME]);
    token.set(pasted);
  };
  field?.addEventListener("input", useToken);
  // A browser may have kept what was typed before a reload.
  useToken();
}

/** HEAD answers wherever GET does: listing it would only make the page longer. */
function withoutHead(key: string, value: unknown): unknown {
  return key === "head" ? undefined : value;
}
