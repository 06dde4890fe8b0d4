/** An operation's request with the examples of the description filled in: what a reader could send as it stands. */

import type { SnippetRequest } from "./snippets.ts";

interface Media {
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value?: unknown }>>;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly example?: unknown;
}

/** As much of an operation of OpenAPI 3.1 as matters here, with the parameters of its path. */
export interface DescribedOperation {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, Media>> };
  readonly security?: readonly object[];
}

interface Place {
  /** Where the service is, without a slash at the end. */
  readonly baseUrl: string;
  readonly method: string;
  readonly path: string;
  readonly token: string;
}

const PLACEHOLDER = "YOUR_TOKEN";

export function exampleRequest(operation: DescribedOperation, place: Place): SnippetRequest {
  const parameters = (operation.parameters ?? []).filter(({ example }) => example !== undefined);
  const ofKind = (kind: string): Parameter[] => parameters.filter((one) => one.in === kind);
  const path = ofKind("path").reduce(
    (filled, { name, example }) => filled.replace(`{${name}}`, encodeURIComponent(String(example))),
    place.path,
  );
  const query = new URLSearchParams(
    ofKind("query").map(({ name, example }) => [name, String(example)] satisfies [string, string]),
  ).toString();
  const [[mediaType, media] = []] = Object.entries(operation.requestBody?.content ?? {});
  const isOpen = operation.security?.length === 0;
  return {
    method: place.method.toUpperCase(),
    url: `${place.baseUrl}${path}${query === "" ? "" : `?${query}`}`,
    headers: [
      ...(isOpen ? [] : [["Authorization", `Bearer ${place.token || PLACEHOLDER}`] as const]),
      ...(mediaType === undefined ? [] : [["Content-Type", mediaType] as const]),
    ],
    body: media === undefined ? undefined : exampleBody(media),
  };
}

function exampleBody({ example, examples }: Media): string {
  const value = example ?? Object.values(examples ?? {})[0]?.value;
  return typeof value === "string" ? value : JSON.stringify(value);
}
