/** Webhooks over HTTP: the operations, how they are described, and what receivers are sent. */

import { changeTypes } from "../domain/change.ts";
import { parseJson } from "../domain/json.ts";
import type { Scope } from "../domain/token.ts";
import { type Attempt, WEBHOOKS_MAX } from "../domain/webhook.ts";
import { type ShownWebhook, Webhooks } from "../webhooks/manage.ts";
import { requireType } from "./body.ts";
import { answer, LacksScope, requireUnrevoked } from "./handle.ts";
import {
  answer as describeAnswer,
  type Entry,
  int64,
  integer,
  json,
  maybe,
  objectOf,
  parameter,
  schema,
  text,
  withHeaders,
} from "./openapi-parts.ts";
import { JSON_TYPE } from "./request-headers.ts";

/** Longer than a receiver has time to answer a test. */
const IDLE_SECONDS = 30;

const attempt: Attempt = {
  time: "2026-01-01T00:00:01.000Z",
  durationMs: 12,
  status: 503,
  error: null,
  answer: "try later",
};

const shop: ShownWebhook = {
  name: "shop",
  url: "https://shop.example/plants",
  types: changeTypes,
  state: "active",
  reason: null,
  lastChange: 1_767_225_600_000_001,
  failures: 1,
  nextAttempt: "2026-01-01T00:00:06.000Z",
  created: "2026-01-01T00:00:00.000Z",
  attempts: [attempt],
};

const time = { ...text, format: "date-time" };
const types = { type: "array", minItems: 1, items: { ...text, enum: changeTypes } };
const AttemptSchema = objectOf({
  time,
  durationMs: integer,
  status: { ...maybe("integer"), description: "Of the answer; 2xx is success." },
  error: { ...maybe("string"), description: "Why there was no answer." },
  answer: { ...maybe("string"), description: "The beginning of the answer's body." },
});

export const WebhookSchema = objectOf({
  name: text,
  url: text,
  types,
  state: { ...text, enum: ["active", "paused"] },
  reason: { ...maybe("string"), description: "Why it is paused." },
  lastChange: { ...int64, description: "The number of the last change that it needs no more." },
  failures: { ...integer, description: "Failed attempts since the last success." },
  nextAttempt: { ...maybe("string"), format: "date-time", description: "Of a failed event." },
  created: time,
  attempts: { type: "array", items: AttemptSchema, description: "The last ones, newest first." },
});

const one = json(schema("Webhook"), shop);
const all = json({ type: "array", items: schema("Webhook") }, [shop]);
const withSecret = json(
  {
    allOf: [schema("Webhook"), objectOf({ secret: { ...text, description: "Shown this once." } })],
  },
  { ...shop, secret: "whsec_…" },
);

const newWebhook = {
  type: "object",
  required: ["url"],
  additionalProperties: false,
  properties: {
    url: { ...text, description: "http or https, at a public address." },
    name: { ...text, description: "Unique. By default the host of the URL." },
    types: { ...types, description: "Which changes are sent. By default all." },
  },
};
const replay = objectOf({
  from: {
    description: "The number of a change, 0 for the oldest that is kept, or `newest`.",
    oneOf: [
      { ...int64, minimum: 0 },
      { ...text, enum: ["newest"] },
    ],
  },
});

interface Managing extends Pick<Entry, "at" | "id" | "summary" | "description" | "fails"> {
  readonly run: (webhooks: Webhooks, name: string, given: unknown) => Promise<unknown>;
  /** One more scope: changes show plants. */
  readonly needs?: Scope;
  readonly status?: number;
  readonly body?: ReturnType<typeof json>;
  readonly shows?: ReturnType<typeof json>;
}

const act = (
  action: "test" | "pause" | "resume" | "rotate",
  summary: string,
  description: string,
  shows = one,
): Managing => ({
  at: `POST /webhooks/{name}/${action}`,
  id: `${action}Webhook`,
  summary,
  description,
  run: (webhooks, name) => webhooks[action](name),
  shows,
});

const managed: readonly Managing[] = [
  {
    at: "GET /webhooks",
    id: "listWebhooks",
    summary: "List the webhooks",
    description: "By name, without their secrets.",
    run: (webhooks) => webhooks.list(),
    shows: all,
  },
  {
    at: "POST /webhooks",
    id: "addWebhook",
    summary: "Add a webhook",
    description: `Sends every change from now on to a URL, signed, in order and at least once. The token needs \`plants:read\` too. At most ${WEBHOOKS_MAX} webhooks.`,
    run: (webhooks, _name, given) => webhooks.add(given),
    needs: "plants:read",
    status: 201,
    body: json(newWebhook, { url: shop.url, name: shop.name }),
    shows: withSecret,
    fails: ["WebhookConflict", "ChangesGone"],
  },
  {
    at: "GET /webhooks/{name}",
    id: "readWebhook",
    summary: "Show a webhook",
    description: "Without its secret.",
    run: (webhooks, name) => webhooks.get(name),
  },
  {
    at: "DELETE /webhooks/{name}",
    id: "removeWebhook",
    summary: "Remove a webhook",
    description: "An event that is on its way may still arrive.",
    run: (webhooks, name) => webhooks.remove(name),
    status: 204,
  },
  act("test", "Send a test event", "Its type is `webhook.test`.", json(AttemptSchema, attempt)),
  {
    at: "POST /webhooks/{name}/replay",
    id: "replayWebhook",
    summary: "Send changes again",
    description: "Goes on after the change with that number, also if the webhook was paused.",
    run: (webhooks, name, given) => webhooks.replay(name, given),
    body: json(replay, { from: 0 }),
    fails: ["ChangesGone"],
  },
  act("pause", "Pause a webhook", "Nothing is sent until it is resumed."),
  act("resume", "Resume a webhook", "Goes on where it was, at once."),
  act("rotate", "Replace the secret", "For 24 hours events are signed with both.", withSecret),
];

function toEntry(managing: Managing): Entry {
  const { run, needs, status = 200, body, shows = one, fails = [], ...described } = managing;
  return {
    ...described,
    scope: "webhooks:manage",
    tags: ["webhooks"],
    handle: async (exchange, { scopes }) => {
      const { request, service } = exchange;
      if (needs !== undefined && !scopes.includes(needs)) throw new LacksScope(needs);
      if (body === undefined) await request.body?.cancel();
      else requireType(request.headers, JSON_TYPE);
      const given = body && parseJson(await service.bodies.readText(request));
      await requireUnrevoked(exchange);
      service.limitIdle(request, IDLE_SECONDS);
      const webhooks = new Webhooks(service.store, service.config);
      const result = await run(webhooks, request.params?.["name"] ?? "", given);
      return answer(status, status === 204 ? null : JSON.stringify(result));
    },
    ...(body && { bodyTypes: [JSON_TYPE], requestBody: { required: true, content: body } }),
    answers: {
      [status]:
        status === 204
          ? { description: "Done.", headers: withHeaders() }
          : describeAnswer("Done.", shows),
    },
    fails: [
      body ? "BadBody" : "BadQuery",
      ...(described.at.includes("{name}") ? (["WebhookNotFound"] as const) : []),
      ...fails,
    ],
  };
}

export const webhookOperations = managed.map(toEntry);

const eventHeaders = {
  "webhook-id": "The same in every attempt to send the event.",
  "webhook-timestamp": "When this attempt was made, in seconds since 1970.",
  "webhook-signature": "`v1,` and an HMAC-SHA256 in base64. Several are separated by spaces.",
};

/** What receivers are sent. */
export function describeEvents(example: object): object {
  const parameters = Object.entries(eventHeaders).map(([name, description]) =>
    Object.assign(parameter(name, description, text, "header"), { required: true }),
  );
  const events = changeTypes.map((change) => {
    const type = `plant.${change}`;
    const event = objectOf({
      type: { ...text, enum: [type] },
      timestamp: time,
      data: schema("Change"),
    });
    const sent = { type, timestamp: shop.created, data: { ...example, type: change } };
    const post = {
      operationId: `onPlant${change[0]?.toUpperCase()}${change.slice(1)}`,
      tags: ["webhooks"],
      summary: `A plant was ${change}`,
      description:
        "Signed by Standard Webhooks 1.0.0. Answer 2xx within 15 s. Anything else is sent again later; 410 pauses the webhook.",
      security: [],
      parameters,
      requestBody: { required: true, content: json(event, sent) },
      responses: {
        "2XX": { description: "Taken." },
        "4XX": { description: "Not taken. 410: send no more." },
      },
    };
    return [type, { post }] as const;
  });
  return Object.fromEntries(events);
}
