/** One operation: its parameters, its request in code, a form that sends it, and its answers. */

import { signal, useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { Button, Choice, Field, Form, Terms } from "../console/view/controls.tsx";
import { addressOf, formatType, nameOf, type Operation, type Schema } from "./description.ts";
import { markCode, Markdown } from "./markdown.tsx";
import {
  exampleRequest,
  exampleValues,
  type Language,
  languages,
  layOutJson,
  type SnippetRequest,
} from "./samples.ts";

/** Kept in memory only. */
export const token = signal("");
/** Shared by all operations. */
const language = signal<Language>("curl");

/** Relative to the page, so it works behind a proxy with any prefix. */
const baseUrl = new URL(".", location.href).href.slice(0, -1);

export const Method = ({ of: method }: { readonly of: string }): JSX.Element => (
  <span class={`method method-${method}`}>{method.toUpperCase()}</span>
);

export function OperationCard({ operation }: { readonly operation: Operation }): JSX.Element {
  const { path, method, operationId, parameters = [], requestBody, responses = {} } = operation;
  const name = `${method} ${path}`;
  const values = useSignal(exampleValues(operation));
  const sent = useSignal<Sent | undefined>(undefined);
  const request = useComputed(() => exampleRequest(operation, baseUrl, token.value, values.value));
  const bind = (field: string) => ({
    id: `${operationId}-${field}`,
    value: values.value[field] ?? "",
    onText: (value: string): void => {
      const body = field === "Content-Type" && { body: exampleValues(operation, value)["body"] };
      values.value = { ...values.value, ...body, [field]: value };
    },
  });
  const success = Object.entries(responses).find(([status]) => status < "300")?.[1];
  const choose = (field: string, label: string, content: object = {}): JSX.Element | false => {
    const types = Object.keys(content);
    return (
      types.length > 1 && (
        <Choice
          {...bind(field)}
          label={label}
          options={types.map((type, at) => [at === 0 && field === "Accept" ? "" : type, type])}
        />
      )
    );
  };
  return (
    <section class="card" id={addressOf(operation)} aria-label={name}>
      <h3>{operation.summary}</h3>
      <p>
        <Method of={method} /> <code>{path}</code> <small>{operationId}</small>
      </p>
      <Markdown text={operation.description ?? ""} />
      <div class="columns">
        <Form
          onSubmit={(form) => {
            if (!form.reportValidity()) return;
            sent.value?.stop?.();
            void send(request.value, (answer) => (sent.value = answer));
          }}
        >
          {parameters.map(({ name: field, in: place, required, schema = {}, description }) => (
            <Field
              key={field}
              {...bind(field)}
              label={field}
              hint={`${formatType(schema)}, ${place}${required === true ? ", required" : ""}`}
              note={description && markCode(description)}
              required={required}
            />
          ))}
          {requestBody !== undefined && (
            <Field
              {...bind("body")}
              control="textarea"
              label="Request body"
              hint={formatType(Object.values(requestBody.content)[0]?.schema ?? {})}
              note={requestBody.description && markCode(requestBody.description)}
              spellcheck={false}
            />
          )}
          {choose("Content-Type", "Content type", requestBody?.content)}
          {choose("Accept", "Accept", success?.content)}
          <div class="form-actions">
            <Button kind="main" type="submit">
              Send request
            </Button>
            {sent.value?.stop !== undefined && <Button onClick={sent.value.stop}>Stop</Button>}
          </div>
        </Form>
        <div>
          <Samples name={name} request={request.value} />
          {sent.value !== undefined && <Live name={name} sent={sent.value} />}
        </div>
      </div>
      <Answers responses={responses} />
    </section>
  );
}

interface SamplesProps {
  readonly name: string;
  readonly request: SnippetRequest;
}

function Samples({ name, request }: SamplesProps): JSX.Element {
  const text = languages[language.value](request);
  return (
    <section class="samples" aria-label={`${name} in code`}>
      <div class="form-actions" role="group" aria-label="Language">
        {(Object.keys(languages) as Language[]).map((title) => (
          <Button
            key={title}
            kind="small"
            aria-pressed={title === language.value}
            onClick={() => (language.value = title)}
          >
            {title}
          </Button>
        ))}
        {/* Browsers offer the clipboard only on a secure origin. */}
        {"clipboard" in navigator && (
          <Button kind="small" onClick={() => void navigator.clipboard.writeText(text)}>
            Copy
          </Button>
        )}
      </div>
      <pre tabIndex={0}>{text}</pre>
    </section>
  );
}

interface Sent {
  /** The HTTP status, or why there is none. */
  readonly status: number | "Waiting…" | "No answer";
  readonly headers: string;
  readonly text: string;
  readonly ms: number;
  /** Defined while the answer arrives. */
  readonly stop: (() => void) | undefined;
}

/** A stream may never end. */
const CHARACTERS_MAX = 200_000;

/** Shows the answer while it arrives. */
async function send(
  { method, url, headers, body }: SnippetRequest,
  show: (sent: Sent) => void,
): Promise<void> {
  const controller = new AbortController();
  const startedAtMs = performance.now();
  const stop = (): void => controller.abort();
  let sent: Sent = { status: "Waiting…", headers: "", text: "", ms: 0, stop };
  const put = (change: Partial<Sent>): void => {
    sent = { ...sent, ...change, ms: performance.now() - startedAtMs };
    show(sent);
  };
  put({});
  try {
    // The samples show a placeholder if there is no token. It is not sent.
    const given = headers.filter(([name]) => name !== "Authorization" || token.value !== "");
    const init = { method, headers: Object.fromEntries(given), signal: controller.signal };
    const response = await fetch(url, { ...init, body: body ?? null, cache: "no-store" });
    const lines = Array.from(response.headers, (header) => header.join(": "));
    put({ status: response.status, headers: lines.join("\n") });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    while (sent.text.length < CHARACTERS_MAX) {
      const { done = true, value = "" } = (await reader?.read()) ?? {};
      if (done) break;
      put({ text: sent.text + value });
    }
    if (sent.text.length >= CHARACTERS_MAX) put({ text: `${sent.text}\n… and more` });
  } catch (error) {
    if (sent.status === "Waiting…") put({ status: "No answer", text: String(error) });
  }
  stop();
  put({ stop: undefined });
}

/** The body keeps every digit. NDJSON is not indented. */
function Live({ name, sent }: { readonly name: string; readonly sent: Sent }): JSX.Element {
  const { status, headers, text, ms } = sent;
  const hasFailed = status === "No answer" || Number(status) >= 400;
  return (
    <section class="live" aria-live="polite" aria-label={`Answer of ${name}`}>
      <p>
        <strong class={hasFailed ? "status failed" : "status"}>{status}</strong>{" "}
        <small>{ms.toFixed(0)} ms</small>
      </p>
      {text !== "" && (
        <pre class="body" tabIndex={0}>
          {layOutJson(text) ?? text}
        </pre>
      )}
      <details>
        <summary>Headers</summary>
        <pre tabIndex={0}>{headers}</pre>
      </details>
    </section>
  );
}

const isFailure = (status: string): boolean => status >= "400";

function Answers({ responses }: Required<Pick<Operation, "responses">>): JSX.Element {
  const failures = Object.keys(responses).filter(isFailure);
  const show = (statuses: readonly string[]): JSX.Element => (
    <Terms
      class="answers"
      of={statuses.map((status) => [
        <span class={isFailure(status) ? "status failed" : "status"}>{status}</span>,
        <>
          <Markdown text={responses[status]?.description ?? ""} />
          <Type of={Object.values(responses[status]?.content ?? {})[0]?.schema} />
        </>,
      ])}
    />
  );
  return (
    <div class="responses">
      <h4>Answers</h4>
      {show(Object.keys(responses).filter((status) => !isFailure(status)))}
      <details>
        <summary>Failures: {failures.join(", ")}</summary>
        {show(failures)}
      </details>
    </div>
  );
}

function Type({ of: schema }: { readonly of: Schema | undefined }): JSX.Element | null {
  if (schema === undefined) return null;
  const { $ref = schema.items?.$ref } = schema;
  const text = formatType(schema);
  return $ref === undefined ? <>{text}</> : <a href={`#/schemas/${nameOf($ref)}`}>{text}</a>;
}
