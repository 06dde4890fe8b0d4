/** Code samples of a request, and JSON indented without rounding. Nothing here needs a browser. */

import { formatExample, listExamples, type Operation } from "./description.ts";

export interface SnippetRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: string | undefined;
  /** The answer is printed while it arrives: it may never end. */
  readonly isStream?: boolean;
}

/** The exact request in each language. Ids are never parsed, so none is rounded. */
export const languages = {
  /** For a POSIX shell. With `--data`, curl would take a body that begins with `@` for a file name. */
  curl: ({ method, url, headers, body, isStream }: SnippetRequest): string => {
    const implied = body === undefined ? "GET" : "POST";
    const flags = `${isStream === true ? "-N " : ""}${method === implied ? "" : `-X ${method} `}`;
    return [
      `curl ${flags}${quoteShell(url)}`,
      ...headers.map((header) => `-H ${quoteShell(header.join(": "))}`),
      ...(body === undefined ? [] : [`--data-raw ${quoteShell(body)}`]),
    ].join(" \\\n  ");
  },

  JavaScript: ({ method, url, headers, body, isStream }: SnippetRequest): string =>
    `const response = await fetch(${quote(url)}, {
  method: ${quote(method)},
  headers: ${quoteMembers(headers, "  ")},${body === undefined ? "" : `\n  body: ${quote(body)},`}
});
// JSON.parse would round ids beyond 2^53.
${
  isStream === true
    ? `console.log(response.status);
const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
for (;;) {
  const { done, value } = await reader.read();
  if (done) break;
  console.log(value);
}`
    : "console.log(response.status, await response.text());"
}`,

  Python: ({ method, url, headers, body, isStream }: SnippetRequest): string =>
    `import requests

response = requests.${method.toLowerCase()}(
    ${quote(url)},
    headers=${quoteMembers(headers, "    ")},${body === undefined ? "" : `\n    data=${quote(body)}.encode(),`}
${
  isStream === true
    ? `    stream=True,
    timeout=60,
)
print(response.status_code)
for line in response.iter_lines():
    print(line.decode(), flush=True)`
    : `    timeout=10,
)
print(response.status_code, response.content.decode())`
}`,

  Go: ({ method, url, headers, body, isStream }: SnippetRequest): string => {
    const imports = [
      "fmt",
      "io",
      "net/http",
      ...(isStream === true ? ["os"] : []),
      ...(body === undefined ? [] : ["strings"]),
    ];
    const onError = "if err != nil {\n\t\tpanic(err)\n\t}";
    const lines = [
      ...(body === undefined ? [] : [`body := strings.NewReader(${quote(body)})`]),
      `request, err := http.NewRequest(${quote(method)}, ${quote(url)}, ${body === undefined ? "nil" : "body"})`,
      onError,
      ...headers.map(([name, value]) => `request.Header.Set(${quote(name)}, ${quote(value)})`),
      "response, err := http.DefaultClient.Do(request)",
      onError,
      "defer response.Body.Close()",
      ...(isStream === true
        ? [
            "fmt.Println(response.StatusCode)",
            "_, err = io.Copy(os.Stdout, response.Body)",
            onError,
          ]
        : [
            "answer, err := io.ReadAll(response.Body)",
            onError,
            "fmt.Println(response.StatusCode, string(answer))",
          ]),
    ];
    return `package main

import (
${imports.map((name) => `\t"${name}"`).join("\n")}
)

func main() {
${lines.map((line) => `\t${line}`).join("\n")}
}`;
  },
};

export type Language = keyof typeof languages;

const quoteShell = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** A JSON string literal is valid in all three languages. Go allows a byte order mark only at the start of a file. */
const quote = (text: string): string =>
  JSON.stringify(text).replaceAll("\ufeff", String.raw`\ufeff`);

const quoteMembers = (headers: SnippetRequest["headers"], indent: string): string =>
  JSON.stringify(Object.fromEntries(headers), null, indent).replaceAll("\n", `\n${indent}`);

/** By the names of parameters and headers; `body` is the body. */
export type Values = Readonly<Record<string, string>>;

/** The examples of the description, for a body of this type, by default the first. */
export function exampleValues({ parameters = [], requestBody }: Operation, type?: string): Values {
  const [first = ""] = Object.keys(requestBody?.content ?? {});
  const mediaType = type ?? first;
  const [[, body] = []] = listExamples(requestBody?.content[mediaType] ?? {});
  return {
    ...Object.fromEntries(parameters.map((one) => [one.name, String(one.example ?? "")])),
    "Content-Type": mediaType,
    body: formatExample(body),
  };
}

/** These answers can be long, or follow what happens. */
const STREAMED = /^(text\/event-stream|text\/csv|application\/(x-)?ndjson|application\/jsonl)$/;

/** Parameters without a value are left out. `baseUrl` has no trailing slash. */
export function exampleRequest(
  { path, method, parameters = [], requestBody, security }: Operation,
  baseUrl: string,
  token: string,
  values: Values,
): SnippetRequest {
  const listValues = (names: readonly string[]): [name: string, value: string][] =>
    names.map((name): [string, string] => [name, values[name] ?? ""]).filter(([, value]) => value);
  const ofKind = (kind: string): [name: string, value: string][] =>
    listValues(parameters.filter((one) => one.in === kind).map(({ name }) => name));
  const filled = ofKind("path").reduce(
    (before, [name, value]) => before.replace(`{${name}}`, encodeURIComponent(value)),
    path,
  );
  const query = new URLSearchParams(ofKind("query")).toString();
  const isOpen = security?.length === 0;
  return {
    method: method.toUpperCase(),
    url: `${baseUrl}${filled}${query && `?${query}`}`,
    headers: [
      ...(isOpen ? [] : [["Authorization", `Bearer ${token || "YOUR_TOKEN"}`] as const]),
      ...listValues(["Content-Type", "Accept"]),
      ...ofKind("header"),
    ],
    body: requestBody && values["body"],
    ...(STREAMED.test(values["Accept"] ?? "") && { isStream: true }),
  };
}

/** What a sample shows instead of the token. The copy has the token. */
export const maskToken = (token: string): string => token && `${token.slice(0, 4)}••••••••`;

/** Indents JSON and keeps every number as written. Undefined if it is not JSON, or the browser lacks `JSON.rawJSON`. */
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
