/** One request in the languages of those who call the service, to be copied and run as it is. */

export interface SnippetRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: string | undefined;
}

export interface Language {
  readonly key: string;
  readonly title: string;
  readonly write: (request: SnippetRequest) => string;
}

export const languages: readonly Language[] = [
  { key: "curl", title: "curl", write: writeCurl },
  { key: "javascript", title: "JavaScript", write: writeJavaScript },
  { key: "python", title: "Python", write: writePython },
  { key: "go", title: "Go", write: writeGo },
];

/** For a POSIX shell. `--data-raw`, because a body that begins with `@` would be taken for a file. */
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

/** Lines stay lines. A template would drop a carriage return, so that has to be written out. */
function quoteJavaScript(text: string): string {
  if (!text.includes("\n")) return JSON.stringify(text);
  const escaped = text
    .replaceAll(/[`\\]|\$(?=\{)/g, String.raw`\$&`)
    .replaceAll("\r", String.raw`\r`);
  return `\`${escaped}\``;
}

/** JSON's escapes mean the same in a literal of Python's. */
function quotePython(text: string): string {
  if (!text.includes("\n")) return JSON.stringify(text);
  const escaped = text
    .replaceAll("\\", "\\\\")
    .replaceAll(/"(?="|$)/g, String.raw`\"`)
    .replaceAll("\r", String.raw`\r`);
  return `"""${escaped}"""`;
}

/** Go's source may have no byte order mark but its first character, and its raw literals drop carriage returns. */
function quoteGo(text: string): string {
  const needsRaw = text.includes("\n") || text.includes('"');
  if (needsRaw && !/[`\r\ufeff]/.test(text)) return `\`${text}\``;
  return JSON.stringify(text).replaceAll("\ufeff", String.raw`\ufeff`);
}
