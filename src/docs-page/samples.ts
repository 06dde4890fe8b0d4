/** Code samples of a request, and JSON laid out without rounding. Nothing here needs a browser. */

import type { Media, Operation } from "./description.ts";

export interface SnippetRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: string | undefined;
}

export const languages = [
  { title: "curl", write: writeCurl },
  { title: "JavaScript", write: writeJavaScript },
  { title: "Python", write: writePython },
  { title: "Go", write: writeGo },
] as const;

/** For a POSIX shell. With `--data` curl would read a body that begins with `@` from a file. */
export function writeCurl({ method, url, headers, body }: SnippetRequest): string {
  const implied = body === undefined ? "GET" : "POST";
  return [
    method === implied ? `curl ${quoteShell(url)}` : `curl -X ${method} ${quoteShell(url)}`,
    ...headers.map((header) => `-H ${quoteShell(header.join(": "))}`),
    ...(body === undefined ? [] : [`--data-raw ${quoteShell(body)}`]),
  ].join(" \\\n  ");
}

export function writeJavaScript({ method, url, headers, body }: SnippetRequest): string {
  const options = [
    ...(method === "GET" ? [] : [`  method: ${JSON.stringify(method)},`]),
    ...(headers.length === 0 ? [] : ["  headers: {", ...members(headers, "    "), "  },"]),
    ...(body === undefined ? [] : [`  body: ${quoteJavaScript(body)},`]),
  ];
  const given = options.length === 0 ? "" : `, {\n${options.join("\n")}\n}`;
  return `const response = await fetch(${JSON.stringify(url)}${given});
// JSON.parse would round ids beyond 2^53.
console.log(response.status, await response.text());`;
}

export function writePython({ method, url, headers, body }: SnippetRequest): string {
  const given = [
    `    ${JSON.stringify(url)},`,
    ...(headers.length === 0 ? [] : ["    headers={", ...members(headers, "        "), "    },"]),
    ...(body === undefined ? [] : [`    data=${quotePython(body)}.encode(),`]),
    "    timeout=10,",
  ];
  return `import requests

response = requests.${method.toLowerCase()}(
${given.join("\n")}
)
print(response.status_code, response.content.decode())`;
}

export function writeGo({ method, url, headers, body }: SnippetRequest): string {
  const imports = ["fmt", "io", "net/http", ...(body === undefined ? [] : ["strings"])];
  const content = body === undefined ? "nil" : "body";
  const lines = [
    ...(body === undefined ? [] : [`body := strings.NewReader(${quoteGo(body)})`]),
    `request, err := http.NewRequest(${quoteGo(method)}, ${quoteGo(url)}, ${content})`,
    ...onError,
    ...headers.map(([name, value]) => `request.Header.Set(${quoteGo(name)}, ${quoteGo(value)})`),
    "response, err := http.DefaultClient.Do(request)",
    ...onError,
    "defer response.Body.Close()",
    "answer, err := io.ReadAll(response.Body)",
    ...onError,
    "fmt.Println(response.StatusCode, string(answer))",
  ];
  return `package main

import (
${imports.map((name) => `\t"${name}"`).join("\n")}
)

func main() {
${lines.map((line) => `\t${line}`).join("\n")}
}`;
}

const onError = ["if err != nil {", "\tpanic(err)", "}"];

const members = (headers: SnippetRequest["headers"], indent: string): string[] =>
  headers.map(([name, value]) => `${indent}${JSON.stringify(name)}: ${JSON.stringify(value)},`);

const quoteShell = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Several lines become a template. It would drop a carriage return, so that is escaped. */
function quoteJavaScript(text: string): string {
  if (!text.includes("\n")) return JSON.stringify(text);
  const escaped = text
    .replaceAll(/[`\\]|\$(?=\{)/g, String.raw`\$&`)
    .replaceAll("\r", String.raw`\r`);
  return `\`${escaped}\``;
}

/** The escapes of JSON mean the same in Python. */
function quotePython(text: string): string {
  if (!text.includes("\n")) return JSON.stringify(text);
  const escaped = text
    .replaceAll("\\", "\\\\")
    .replaceAll(/"(?="|$)/g, String.raw`\"`)
    .replaceAll("\r", String.raw`\r`);
  return `"""${escaped}"""`;
}

/** Go allows a byte order mark only at the start of a file, and its raw strings drop carriage returns. */
function quoteGo(text: string): string {
  const needsRaw = text.includes("\n") || text.includes('"');
  if (needsRaw && !/[`\r\ufeff]/.test(text)) return `\`${text}\``;
  return JSON.stringify(text).replaceAll("\ufeff", String.raw`\ufeff`);
}

interface Place {
  /** The address of the service, without a slash at the end. */
  readonly baseUrl: string;
  readonly method: string;
  readonly path: string;
  readonly token: string;
}

const PLACEHOLDER = "YOUR_TOKEN";

/** By the names of parameters and headers; the body is called `body`. */
export type Values = Readonly<Record<string, string>>;

/** The examples of the description. */
export function exampleValues({ parameters = [], requestBody }: Operation): Values {
  const [mediaType = ""] = Object.keys(requestBody?.content ?? {});
  return {
    ...Object.fromEntries(parameters.map(({ name, example }) => [name, String(example ?? "")])),
    "Content-Type": mediaType,
    body: exampleBody(requestBody?.content[mediaType]),
  };
}

/** Without the parameters that have no value. */
export function exampleRequest(
  operation: Operation,
  place: Place,
  values = exampleValues(operation),
): SnippetRequest {
  const { parameters = [], requestBody, security } = operation;
  const given = parameters.filter(({ name }) => (values[name] ?? "") !== "");
  const ofKind = (kind: string): (readonly [string, string])[] =>
    given.filter((one) => one.in === kind).map(({ name }) => [name, values[name] ?? ""]);
  const path = ofKind("path").reduce(
    (filled, [name, value]) => filled.replace(`{${name}}`, encodeURIComponent(value)),
    place.path,
  );
  const query = new URLSearchParams(ofKind("query").map(([...pair]) => pair)).toString();
  const headers = ["Content-Type", "Accept"].map((name) => [name, values[name] ?? ""] as const);
  return {
    method: place.method.toUpperCase(),
    url: `${place.baseUrl}${path}${query === "" ? "" : `?${query}`}`,
    headers: [
      ...(security?.length === 0
        ? []
        : [["Authorization", `Bearer ${place.token || PLACEHOLDER}`] as const]),
      ...headers.filter(([, value]) => value !== ""),
      ...ofKind("header"),
    ],
    body: requestBody === undefined ? undefined : values["body"],
  };
}

export function exampleBody({ example, examples }: Media = {}): string {
  const value = example ?? Object.values(examples ?? {})[0]?.value;
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** Indents JSON and keeps every number as written. Undefined if it is not JSON, or the browser can't do it. */
export function layOutJson(text: string): string | undefined {
  const { rawJSON } = JSON as unknown as { readonly rawJSON: (number: string) => object };
  const keepDigits = (_key: string, value: unknown, context?: { readonly source: string }) =>
    typeof value === "number" ? rawJSON(context?.source ?? "") : value;
  try {
    return JSON.stringify(JSON.parse(text, keepDigits), null, 2);
  } catch {
    return undefined;
  }
}
