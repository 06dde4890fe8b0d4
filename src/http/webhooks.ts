/** Webhooks over HTTP: the operations, their description, and the events that receivers get. */

import { fixedLimits } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import type { Scope } from "../domain/token.ts";
import { WEBHOOKS_MAX } from "../domain/webhook.ts";
import { newRules, replayRules, webhookActions } from "../webhooks/manage.ts";
import {
  answering,
  describeParameters,
  type Endpoint,
  type Endpoints,
  json,
  jsonBody,
  operation,
} from "./endpoint.ts";
import type { Input } from "./exchange.ts";
import { webhookPath } from "./field.ts";
import { answer, answerJson } from "./answer.ts";
import {
  define,
  describeRules,
  annotate,
  int64,
  integer,
  list,
  maybe,
  object,
  type Shape,
  text,
  time,
} from "./shape.ts";

const AttemptShape = object({
  event: text("msg_1767225600000001", "The `webhook-id`. For a test it begins with `msg_test_`."),
  time: time("2026-01-01T00:00:01.000Z"),
  durationMs: integer(12),
  status: maybe(integer(503, "The status of the answer; 2xx is success.")),
  error: maybe(text(null, "Why there was no answer.")),
  answer: maybe(text("try later", "The beginning of the answer's body.")),
});

const types = list(text(undefined, undefined, { enum: changeTypes }), undefined, { minItems: 1 });
const CREATED = "2026-01-01T00:00:00.000Z";

const webhookMembers = {
  name: text("shop"),
  url: text("https://shop.example/plants"),
  types: { ...types, example: changeTypes },
  tags: maybe(
    list(
      text("indoor"),
      "Sends only changes of plants with these tags: those of the token that added it; null for the whole store.",
    ),
  ),
  state: text("active", undefined, { enum: ["active", "paused"] }),
  reason: maybe(text(null, "Why it is paused.")),
  lastChange: int64(1_767_225_600_000_001, "The cursor: sending resumes after this change."),
  failures: integer(1, "Failed attempts since the last success."),
  nextAttempt: maybe(time("2026-01-01T00:00:06.000Z", "When a failed event is sent again.")),
  created: time(CREATED),
  attempts: list(AttemptShape, "The last attempts, newest first, tests included."),
};
const Webhook = define("Webhook", webhookMembers);
const withSecret = object({ ...webhookMembers, secret: text("whsec_…", "Shown only once.") });

const skipped = int64(1_767_225_600_000_001, "The number of the change; null if none had failed.");
const withSkipped = object({ ...webhookMembers, skipped: maybe(skipped) });

const NewWebhookShape = object(
  describeRules(newRules, {
    url: text("https://shop.example/plants", "http or https, at a public address."),
    name: text("shop", "Unique. By default the host of the URL."),
    types: annotate(types, "Which changes are sent. By default all."),
  }),
  { additionalProperties: false },
);

const ReplayShape = object(
  describeRules(replayRules, {
    from: {
      schema: {
        description: "The number of a change, 0 for the oldest in the journal, or `newest`.",
        oneOf: [
          { type: "integer", format: "int64", minimum: 0 },
          { type: "string", enum: ["newest"] },
        ],
      },
      example: 0,
    },
  }),
);

type Action = keyof typeof webhookActions;

type Managed = Pick<Endpoint, "at" | "summary" | "description" | "fails"> & {
  readonly body?: Shape;
  readonly needs?: Scope;
  readonly status?: number;
  readonly shows?: Shape;
};

function manage(
  action: Action,
  { body, needs, shows, fails = [], ...described }: Managed,
): Endpoint {
  const { status = shows === undefined ? 204 : 200, ...rest } = described;
  const isNamed = rest.at.includes("{name}");
  return operation({
    ...rest,
    scopes: needs === undefined ? ["webhooks:manage"] : ["webhooks:manage", needs],
    kind: "manage",
    ...(isNamed && { path: webhookPath }),
    ...(body && { body: jsonBody(body, (value) => value) }),
    run: async ({ path, body: input }: Input<{ readonly name?: string }>, exchange) => {
      const { service, parent, confinement } = exchange;
      // A test waits for its receiver, and the runtime's timer may fire early.
      exchange.limitIdle(2 * service.config.webhookSecondsMax);
      const { store, config, tracer } = service;
      const context = { store, confinement, config, tracer, parent };
      const result = await webhookActions[action](context, path.name ?? "", input);
      if (shows === undefined) return answer(status, null);
      return answerJson(exchange, result, undefined, status);
    },
    answers: answering(status, "Done.", shows && json(shows)),
    fails: [
      body ? "BadBody" : "BadQuery",
      ...(isNamed ? (["WebhookNotFound"] as const) : []),
      ...fails,
    ],
  });
}

const act = (action: Action, summary: string, description: string, shows = Webhook): Endpoint =>
  manage(action, { at: `POST /webhooks/{name}/${action}`, summary, description, shows });

export const webhookOperations: Endpoints = {
  listWebhooks: manage("list", {
    at: "GET /webhooks",
    summary: "List the webhooks",
    description: "All webhooks by name, without their secrets.",
    shows: list(Webhook),
  }),
  addWebhook: manage("add", {
    at: "POST /webhooks",
    summary: "Add a webhook",
    description: `Sends every change from now on to a URL, signed, in order and at least once. At most ${WEBHOOKS_MAX} webhooks.`,
    needs: "plants:read",
    body: NewWebhookShape,
    status: 201,
    shows: withSecret,
    fails: ["WebhookConflict", "ChangesGone"],
  }),
  readWebhook: manage("show", {
    at: "GET /webhooks/{name}",
    summary: "Show a webhook",
    description: "The webhook, without its secret.",
    shows: Webhook,
  }),
  removeWebhook: manage("remove", {
    at: "DELETE /webhooks/{name}",
    summary: "Remove a webhook",
    description: "An event in flight may still arrive.",
  }),
  testWebhook: act(
    "test",
    "Send a test event",
    "The event has the type `webhook.test`.",
    AttemptShape,
  ),
  replayWebhook: manage("replay", {
    at: "POST /webhooks/{name}/replay",
    summary: "Send changes again",
    description: "Sends the changes after that number again, even if the webhook was paused.",
    body: ReplayShape,
    shows: Webhook,
    fails: ["ChangesGone"],
  }),
  skipWebhook: act(
    "skip",
    "Skip the change that fails",
    "Skips the change that failed and resumes at once, even if the webhook was paused. Does nothing if none has failed, so it is safe to repeat.",
    withSkipped,
  ),
  pauseWebhook: act("pause", "Pause a webhook", "Nothing is sent until the webhook is resumed."),
  resumeWebhook: act("resume", "Resume a webhook", "Continues from its cursor at once."),
  rotateWebhook: act(
    "rotate",
    "Replace the secret",
    "For 24 hours events are signed with both secrets.",
    withSecret,
  ),
};

const eventHeaders = {
  "webhook-id": text(undefined, "The same in every attempt to send the event."),
  "webhook-timestamp": text(undefined, "When this attempt was made, in seconds since 1970."),
  "webhook-signature": text(
    undefined,
    "`v1,` and an HMAC-SHA256 in base64. Several are separated by spaces.",
  ),
};

export function describeEvents(example: object): object {
  const events = changeTypes.map((change) => {
    const type = `plant.${change}`;
    const event = object({
      type: text(type, undefined, { enum: [type] }),
      timestamp: time(CREATED),
      data: {
        schema: { $ref: "#/components/schemas/Change" },
        example: { ...example, type: change },
      },
    });
    const post = {
      operationId: `onPlant${change[0]?.toUpperCase()}${change.slice(1)}`,
      tags: ["webhooks"],
      summary: `A plant was ${change === "replaced" ? "changed" : change}`,
      description: `Signed by Standard Webhooks 1.0.0. Answer 2xx within ${fixedLimits.webhookSecondsMax.value} s. Anything else is sent again later; 410 pauses the webhook.`,
      security: [],
      parameters: describeParameters("header", eventHeaders),
      requestBody: { required: true, content: json(event) },
      responses: {
        "2XX": { description: "Accepted." },
        "4XX": { description: "Refused. 410 pauses the webhook." },
      },
    };
    return [type, { post }] as const;
  });
  return Object.fromEntries(events);
}
