/** One operation: its parameters, its request in code, a form that sends it, and its answers. */

import { signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { Button } from "../console/view/controls.tsx";
import {
  addressOf,
  type Answer,
  type Description,
  formatType,
  nameOf,
  type Placed,
  type Schema,
} from "./description.ts";
import { markCode, Markdown } from "./markdown.tsx";
import {
  exampleBody,
  exampleRequest,
  exampleValues,
  languages,
  layOutJson,
  type SnippetRequest,
} from "./samples.ts";

/** This page keeps it in memory only. */
export const token = signal("");
/** One choice for all operations. */
const language = signal("curl");

export const Method = ({ of: method }: { readonly of: string }): JSX.Element => (
  <span class={`method method-${method}`}>{method.toUpperCase()}</span>
);

interface OperationProps {
  readonly placed: Placed;
  readonly description: Description;
}

export function OperationCard({ placed, description }: OperationProps): JSX.Element {
  const { path, method, operation } = placed;
  const { operationId = "", parameters = [], requestBody, responses = {} } = operation;
  const values = useSignal(exampleValues(operation));
  const sent = useSignal<Sent | undefined>(undefined);
  const baseUrl = new URL(description.servers[0]?.url ?? "/", location.href).href;
  const request = useComputed(() =>
    exampleRequest(
      operation,
      { baseUrl: baseUrl.replace(/\/$/, ""), method, path, token: token.value },
      values.value,
    ),
  );
  const put = (name: string, value: string): void => {
    const body = name === "Content-Type" && { body: exampleBody(requestBody?.content[value]) };
    values.value = { ...values.value, ...body, [name]: value };
  };
  const bind = (name: string) => ({
    id: `${operationId}-${name}`,
    value: values.value[name],
    onInput: (event: { readonly currentTarget: { readonly value: string } }) =>
      put(name, event.currentTarget.value),
  });
  const success = Object.entries(responses).find(([status]) => status < "300")?.[1];
  const bodies = Object.keys(requestBody?.content ?? {});
  const accepted = Object.keys(success?.content ?? {});
  const choose = (name: string, label: string, options: readonly string[]): JSX.Element | false =>
    options.length > 1 && (
      <Field id={`${operationId}-${name}`} label={label}>
        <select {...bind(name)}>
          {options.map((option, at) => (
            <option key={option} value={at === 0 && name === "Accept" ? "" : option}>
              {option}
            </option>
          ))}
        </select>
      </Field>
    );
  return (
    <section class="card" id={addressOf(placed)} aria-label={`${method} ${path}`}>
      <h3>{operation.summary}</h3>
      <p>
        <Method of={method} /> <code>{path}</code> <small>{operationId}</small>
      </p>
      <Markdown text={operation.description ?? ""} />
      <div class="columns">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            sent.value?.stop?.();
            void send(request.value, (answer) => {
              sent.value = answer;
            });
          }}
        >
          {parameters.map((one) => (
            <Field
              key={one.name}
              id={`${operationId}-${one.name}`}
              label={one.name}
              note={`${formatType(one.schema ?? {})}, ${one.in}${one.required === true ? ", required" : ""}`}
              text={one.description}
            >
              <input {...bind(one.name)} required={one.required} autocomplete="off" />
            </Field>
          ))}
          {requestBody !== undefined && (
            <Field
              id={`${operationId}-body`}
              label="Request body"
              note={formatType(requestBody.content[bodies[0] ?? ""]?.schema ?? {})}
              text={requestBody.description}
            >
              <textarea {...bind("body")} rows={6} spellcheck={false} />
            </Field>
          )}
          {choose("Content-Type", "Content type", bodies)}
          {choose("Accept", "Accept", accepted)}
          <div class="form-actions">
            <Button kind="main" type="submit">
              Send request
            </Button>
            {sent.value?.stop !== undefined && <Button onClick={sent.value.stop}>Stop</Button>}
          </div>
        </form>
        <div>
          <Samples name={`${method} ${path}`} request={request.value} />
          {sent.value !== undefined && <Live name={`${method} ${path}`} sent={sent.value} />}
        </div>
      </div>
      <Answers responses={responses} description={description} />
    </section>
  );
}

interface FieldProps {
  readonly id: string;
  readonly label: string;
  readonly note?: string;
  readonly text?: string | undefined;
  readonly children: ComponentChildren;
}

const Field = ({ id, label, note, text, children }: FieldProps): JSX.Element => (
  <div class="field">
    <label for={id}>{label}</label> <small>{note}</small>
    {children}
    {text !== undefined && <p class="hint">{markCode(text)}</p>}
  </div>
);

interface SamplesProps {
  readonly name: string;
  readonly request: SnippetRequest;
}

function Samples({ name, request }: SamplesProps): JSX.Element {
  const text = languages.find(({ title }) => title === language.value)?.write(request) ?? "";
  return (
    <section class="samples" aria-label={`${name} in code`}>
      <div class="form-actions" role="group" aria-label="Language">
        {languages.map(({ title }) => (
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
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </section>
  );
}

interface Sent {
  /** 0 until an answer comes. */
  readonly status: number;
  readonly headers: string;
  readonly text: string;
  readonly ms: number;
  /** While the answer arrives. */
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
  let sent: Sent = { status: 0, headers: "", text: "", ms: 0, stop: () => controller.abort() };
  const put = (change: Partial<Sent>): void => {
    sent = { ...sent, ...change, ms: performance.now() - startedAtMs };
    show(sent);
  };
  show(sent);
  try {
    const response = await fetch(url, {
      method,
      // Without a token, the request in code has a placeholder.
      headers: headers.flatMap(([name, value]) =>
        name === "Authorization" && token.value === "" ? [] : [[name, value]],
      ),
      body: body ?? null,
      cache: "no-store",
      signal: controller.signal,
    });
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
    if (sent.status === 0) put({ text: String(error) });
  }
  controller.abort();
  put({ stop: undefined });
}

/** The body keeps every digit; lines of JSON stay as they are. */
function Live({ name, sent }: { readonly name: string; readonly sent: Sent }): JSX.Element {
  const { status, headers, text, ms, stop } = sent;
  const isLost = status === 0 && stop === undefined;
  return (
    <section
      class="live"
      data-failed={status >= 400 || isLost ? "" : undefined}
      aria-live="polite"
      aria-label={`Answer of ${name}`}
    >
      <p>
        <strong class="status">{status || (isLost ? "No answer" : "Waiting…")}</strong>{" "}
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

interface AnswersProps {
  readonly responses: Readonly<Record<string, Answer>>;
  readonly description: Description;
}

function Answers({ responses, description }: AnswersProps): JSX.Element {
  const statuses = Object.keys(responses);
  const show = (status: string): JSX.Element => {
    const { $ref = "", ...own } = responses[status] ?? {};
    const { description: text = "", content = {} } =
      description.components.responses[nameOf($ref)] ?? own;
    const schema = Object.values(content)[0]?.schema;
    return (
      <div key={status}>
        <dt class={isFailure(status) ? "status failed" : "status"}>{status}</dt>
        <dd>
          <Markdown text={text} />
          {!isFailure(status) && schema !== undefined && <Type of={schema} />}
        </dd>
      </div>
    );
  };
  const failures = statuses.filter(isFailure);
  return (
    <div class="responses">
      <h4>Answers</h4>
      <dl class="answers">{statuses.filter((status) => !isFailure(status)).map(show)}</dl>
      <details>
        <summary>Failures: {failures.join(", ")}</summary>
        <dl class="answers">{failures.map(show)}</dl>
      </details>
    </div>
  );
}

function Type({ of: schema }: { readonly of: Schema }): JSX.Element {
  const { $ref = schema.items?.$ref } = schema;
  const text = formatType(schema);
  return $ref === undefined ? <>{text}</> : <a href={`#/schemas/${nameOf($ref)}`}>{text}</a>;
}
