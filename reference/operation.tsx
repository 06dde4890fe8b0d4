/** One operation: its parameters, its request in code, a form that sends it, and its answers. */

import { effect, signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { keep, recall } from "../console/state/storage.ts";
import { Button, Choice, Field, Form, Terms } from "../console/view/controls.tsx";
import {
  addressOf,
  formatExample,
  formatType,
  listExamples,
  listLimits,
  type Operation,
  type Parameter,
} from "./description.ts";
import { markCode, Markdown } from "./markdown.tsx";
import {
  exampleRequest,
  exampleValues,
  type Language,
  languages,
  layOutJson,
  maskToken,
  type SnippetRequest,
} from "./samples.ts";
import { Contents, HeaderNames } from "./schema.tsx";

/** Kept in memory only. */
export const token = signal("");

/** Version 1.0 kept it where the console keeps its own language. */
const SAMPLES = "samples";
const kept = (recall("localStorage", SAMPLES) ?? recall("localStorage", "language")) as
  Language | undefined;
/** Shared by all operations, and kept for the next visit. */
const language = signal<Language>(kept !== undefined && kept in languages ? kept : "curl");

effect(() => {
  if (language.value !== (recall("localStorage", SAMPLES) ?? "curl"))
    keep("localStorage", SAMPLES, language.value);
});

const EVENTS = "text/event-stream";

/** Relative to the page, so it works behind a proxy with any prefix. */
const baseUrl = new URL(".", location.href).href.slice(0, -1);

export const Method = ({ of: method }: { readonly of: string }): JSX.Element => (
  <span class={`method method-${method}`}>{method.toUpperCase()}</span>
);

interface CardProps {
  readonly of: Operation;
  readonly label: string;
  readonly children: ComponentChildren;
}

const Card = ({ of, label, children }: CardProps): JSX.Element => (
  <section class="card" id={addressOf(of)} aria-label={label}>
    <h3>{of.summary}</h3>
    <p>
      <Method of={of.method} /> <code>{of.path}</code> <small>{of.operationId}</small>
    </p>
    <Markdown text={of.description ?? ""} />
    {children}
    {of.requestBody !== undefined && (
      <details>
        <summary>Request body</summary>
        <Contents of={of.requestBody.content} />
      </details>
    )}
    <Answers responses={of.responses ?? {}} />
  </section>
);

export function OperationCard({ operation }: { readonly operation: Operation }): JSX.Element {
  const name = `${operation.method} ${operation.path}`;
  return (
    <Card of={operation} label={name}>
      <Trial of={operation} name={name} />
    </Card>
  );
}

interface TrialProps {
  readonly of: Operation;
  readonly name: string;
}

/** A request to fill in and send, beside the code that sends it. */
function Trial({ of: operation, name }: TrialProps): JSX.Element {
  const { operationId, parameters = [], requestBody, responses = {} } = operation;
  const values = useSignal(exampleValues(operation));
  const sent = useSignal<Sent | undefined>(undefined);
  /** Required fields that were empty when the request was about to be sent. */
  const missing = useSignal<readonly string[]>([]);
  const request = useComputed(() => exampleRequest(operation, baseUrl, token.value, values.value));
  const masked = useComputed(() =>
    exampleRequest(operation, baseUrl, maskToken(token.value), values.value),
  );
  const bind = (field: string) => ({
    id: `${operationId}-${field}`,
    value: values.value[field] ?? "",
    fault: missing.value.includes(field) ? "Required: enter a value." : undefined,
    onText: (value: string): void => {
      const body = field === "Content-Type" && { body: exampleValues(operation, value)["body"] };
      const start = field === "Accept" && hasStart && chooseStart(value);
      values.value = { ...values.value, ...body, ...start, [field]: value };
      missing.value = missing.value.filter((other) => other !== field);
    },
  });
  const hasStart = parameters.some(({ name: parameter }) => parameter === "from");
  /** An event stream without a start has the whole history first. */
  const now = useSignal("");
  const chooseStart = (accept: string) => {
    const { from = "" } = values.value;
    const isOurs = from === now.value;
    now.value = accept === EVENTS ? new Date().toISOString() : "";
    return isOurs && { from: now.value };
  };
  const submit = (form: HTMLFormElement): void => {
    const required = parameters.filter((one) => one.required === true).map((one) => one.name);
    missing.value = [...required, ...(requestBody?.required === true ? ["body"] : [])].filter(
      (field) => (values.value[field] ?? "").trim() === "",
    );
    const [first] = missing.value;
    if (first !== undefined)
      return form.querySelector<HTMLElement>(`#${operationId}-${first}`)?.focus();
    sent.value?.stop?.();
    void send(request.value, (answer) => (sent.value = answer));
  };
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
  const taken = requestBody?.content[values.value["Content-Type"] ?? ""] ?? {};
  const bodies = listExamples(taken).map(
    ([title, value]) => [formatExample(value), title] as const,
  );
  return (
    <div class="columns">
      <div>
        <Form onSubmit={submit}>
          {parameters.map((parameter) => (
            <ParameterField key={parameter.name} of={parameter} bound={bind(parameter.name)} />
          ))}
          {requestBody !== undefined && (
            <>
              {bodies.length > 1 && (
                <Choice
                  {...bind("body")}
                  id={`${operationId}-example`}
                  label="Example"
                  options={bodies}
                />
              )}
              <Field
                {...bind("body")}
                control="textarea"
                label="Request body"
                note={requestBody.description && markCode(requestBody.description)}
                spellcheck={false}
              />
            </>
          )}
          {choose("Content-Type", "Content type", requestBody?.content)}
          {choose("Accept", "Accept", success?.content)}
          {now.value !== "" && (
            <Choice
              {...bind("from")}
              id={`${operationId}-start`}
              label="Example"
              options={[
                [now.value, "changes from now on"],
                ["", "the history, then new changes"],
              ]}
            />
          )}
          <div class="form-actions">
            <Button kind="main" type="submit">
              Send request
            </Button>
            {sent.value?.stop !== undefined && <Button onClick={sent.value.stop}>Stop</Button>}
          </div>
        </Form>
        {sent.value !== undefined && <Live name={name} sent={sent.value} />}
      </div>
      <Samples name={name} request={request.value} masked={masked.value} />
    </div>
  );
}

/** An event that a webhook gets: a request that the service sends. */
export const EventCard = ({ event }: { readonly event: Operation }): JSX.Element => (
  <Card of={event} label={event.path}>
    <Terms
      class="answers"
      of={(event.parameters ?? []).map((one) => [one.name, markCode(one.description ?? "")])}
    />
  </Card>
);

interface ParameterFieldProps {
  readonly of: Parameter;
  readonly bound: {
    readonly id: string;
    readonly value: string;
    readonly fault: string | undefined;
    readonly onText: (text: string) => void;
  };
}

/** A choice, if only some values are allowed. */
function ParameterField({ of: parameter, bound }: ParameterFieldProps): JSX.Element {
  const { name, in: place, required = false, schema = {}, description } = parameter;
  const { items, enum: values, default: fallback } = schema;
  const several = items?.enum?.map((value) => `\`${formatExample(value)}\``).join(", ");
  const field = {
    ...bound,
    label: name,
    hint: [
      items === undefined ? formatType(schema) : `${formatType(items)}s`,
      place,
      required && "required",
      ...listLimits(schema),
    ]
      .filter(Boolean)
      .join(", "),
    note: markCode([description, several && `Of ${several}.`].filter(Boolean).join(" ")),
    required,
  };
  if (values === undefined) return <Field {...field} />;
  const options = values.map((value) => [formatExample(value), formatExample(value)] as const);
  const none = fallback === undefined ? "–" : `${formatExample(fallback)} (default)`;
  const others = options.filter(([value]) => value !== formatExample(fallback));
  return <Choice {...field} options={required ? options : [["", none], ...others]} />;
}

interface SamplesProps {
  readonly name: string;
  readonly request: SnippetRequest;
  /** Without the token, which others may see on the screen. */
  readonly masked: SnippetRequest;
}

function Samples({ name, request, masked }: SamplesProps): JSX.Element {
  const write = languages[language.value];
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
        <CopyButton text={write(request)} hasToken={write(request) !== write(masked)} />
      </div>
      <pre tabIndex={0}>{write(masked)}</pre>
    </section>
  );
}

const COPIED_MS = 2000;

interface CopyButtonProps {
  readonly text: string;
  /** The text shows a part of it only. */
  readonly hasToken: boolean;
}

function CopyButton({ text, hasToken }: CopyButtonProps): JSX.Element {
  const isCopied = useSignal(false);
  const copy = async (): Promise<void> => {
    // Browsers offer the clipboard only on a secure origin.
    if ("clipboard" in navigator) await navigator.clipboard.writeText(text);
    else copySelected(text);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), COPIED_MS);
  };
  return (
    <Button kind="small" onClick={() => void copy()}>
      <span aria-live="polite">{`${isCopied.value ? "Copied" : "Copy"}${hasToken ? " with your token" : ""}`}</span>
    </Button>
  );
}

function copySelected(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
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
  const section = useRef<HTMLElement>(null);
  useEffect(() => section.current?.scrollIntoView({ block: "nearest" }), [status]);
  return (
    <section ref={section} class="live" aria-live="polite" aria-label={`Answer of ${name}`}>
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
      of={statuses.map((status) => {
        const answer = responses[status] ?? {};
        return [
          <span class={isFailure(status) ? "status failed" : "status"}>{status}</span>,
          <>
            <Markdown text={answer.description ?? ""} />
            <HeaderNames of={answer} />
            <Contents of={answer.content ?? {}} />
          </>,
        ];
      })}
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
