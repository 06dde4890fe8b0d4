/** The actions on webhooks, over HTTP and on the command line. */

import { DAY_MS, formatTime } from "../domain/time.ts";
import { changeTypes, findChangeTypes } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/members.ts";
import type { ServedStore, StoreView } from "../domain/store.ts";
import { type Confinement, confinementOf } from "../domain/token.ts";
import type { SpanContext } from "../domain/trace.ts";
import { type Attempt, joinAttempts, type Webhook } from "../domain/webhook.ts";
import type { Tracer } from "../observe/tracer.ts";
import {
  createSecret,
  createTestEvent,
  deliver,
  explainPrivate,
  findLiteral,
  isPrivate,
  type SendOptions,
} from "./send.ts";

/** Compare-and-set attempts: the sending instance writes the record once a second. */
const CHANGES_MAX = 20;

const describe = (webhook: Webhook) => ({
  name: webhook.name,
  url: webhook.url,
  types: webhook.types,
  tags: webhook.tags ?? null,
  state: webhook.paused === undefined ? "active" : "paused",
  reason: webhook.paused ?? null,
  lastChange: webhook.cursor,
  failures: webhook.failures,
  nextAttempt: webhook.failures > 0 && !webhook.paused ? formatTime(webhook.nextAttemptAtMs) : null,
  created: new Date(webhook.createdAtMs).toISOString(),
  attempts: webhook.attempts,
});
export type ShownWebhook = ReturnType<typeof describe>;
export type ShownSecret = ShownWebhook & { readonly secret: string };
/** The number of the change that was skipped; null if none was. */
export type ShownSkip = ShownWebhook & { readonly skipped: number | null };

interface Context {
  readonly store: Pick<ServedStore, "for">;
  /** Of the caller: it sees the webhooks within, and those that it adds send no more. */
  readonly confinement: Confinement;
  readonly config: SendOptions;
  readonly tracer?: Tracer | undefined;
  /** The request's own span, or its caller's. */
  readonly parent?: SpanContext | undefined;
}

type Action = (context: Context, name: string, input?: unknown) => Promise<unknown>;

const viewOf = ({ store, confinement }: Context): StoreView => store.for(confinement);

/** The changes that a webhook sends: its own tags decide, not those of the caller. */
export const sentBy = ({ store }: Pick<Context, "store">, webhook: Webhook): StoreView =>
  store.for(confinementOf(webhook));

export const webhookActions = {
  list: async (context) => (await viewOf(context).listWebhooks()).map(describe),

  show: async (context, name) => describe(await find(context, name)),

  /** Starts after the newest change. The secret is shown only here. */
  add: async (context, _name, input): Promise<ShownSecret> => {
    const { config } = context;
    const store = viewOf(context);
    const fields = parseNewWebhook(input);
    const literal = findLiteral(fields.url);
    if (literal !== undefined && isPrivate(literal) && !config.webhooksPrivate)
      throw new Refusal("invalid_body", `url: ${explainPrivate(literal)}`);
    const secret = createSecret();
    const webhook: Webhook = {
      ...fields,
      url: fields.url.href,
      secret,
      oldSecret: undefined,
      createdAtMs: Date.now(),
      cursor: (await store.readChanges({ after: 0, limit: 0 })).newest,
      paused: undefined,
      ...fresh,
      attempts: [],
      version: crypto.randomUUID(),
    };
    return { ...describe(await store.addWebhook(webhook)), secret };
  },

  remove: async (context, name) => void (await change(context, name, () => undefined)),

  test: async (context, name): Promise<Attempt> => {
    const webhook = await find(context, name);
    const { config, tracer, parent } = context;
    const { attempt } = await deliver(tracer, { parent }, webhook, createTestEvent(), config);
    await change(context, name, (last) => ({
      ...last,
      attempts: joinAttempts(attempt, ...last.attempts),
    }));
    return attempt;
  },

  /** Skips the change that failed, and resumes at once. Idempotent: a second call skips no other change. */
  skip: async (context, name): Promise<ShownSkip> => {
    const webhook = await find(context, name);
    const failed = webhook.failures === 0 ? undefined : await findNext(context, webhook);
    if (failed === undefined) return { ...describe(webhook), skipped: null };
    const shown = await update(context, name, ({ cursor }) => ({
      // If the cursor has moved, the change was delivered meanwhile, or the webhook was replayed.
      cursor: cursor === webhook.cursor ? failed : cursor,
      paused: undefined,
    }));
    return { ...shown, skipped: shown.lastChange === failed ? failed : null };
  },

  /** Keeps the failure count, so the failed change can be skipped. */
  pause: (context, name) =>
    update(context, name, ({ failures }) => ({ failures, paused: "Paused on request." })),

  resume: (context, name) => update(context, name, () => ({ paused: undefined })),

  replay: async (context, name, input) => {
    const { from } = parseMembers(input, replayRules);
    const webhook = await find(context, name);
    // Refuses a number that the journal does not have.
    const after = from === "newest" ? 0 : from;
    const page = await sentBy(context, webhook).readChanges({ after, limit: 1 });
    // Not 0: if the oldest change is trimmed before it is sent, the webhook must report the gap.
    const start = (page.changes[0]?.seq ?? page.last + 1) - 1;
    const cursor = from === "newest" ? page.newest : from || start;
    return update(context, name, () => ({ cursor, paused: undefined }));
  },

  rotate: async (context, name): Promise<ShownSecret> => {
    const secret = createSecret();
    const changed = await change(context, name, (webhook) => ({
      ...webhook,
      secret,
      oldSecret: { secret: webhook.secret, untilMs: Date.now() + DAY_MS },
    }));
    return { ...describe(changed as Webhook), secret };
  },
} satisfies Record<string, Action>;

const fresh = { failures: 0, nextAttemptAtMs: 0, waitMs: 0, holder: undefined };

async function find(context: Context, name: string): Promise<Webhook> {
  const found = (await viewOf(context).listWebhooks()).find((webhook) => webhook.name === name);
  if (found === undefined) throw new Refusal("webhook_not_found");
  return found;
}

async function update(
  context: Context,
  name: string,
  make: (last: Webhook) => Partial<Webhook>,
): Promise<ShownWebhook> {
  const changed = await change(context, name, (last) => ({ ...last, ...fresh, ...make(last) }));
  return describe(changed as Webhook);
}

async function change(
  context: Context,
  name: string,
  make: (webhook: Webhook) => Webhook | undefined,
): Promise<Webhook | undefined> {
  for (let tries = 0; tries < CHANGES_MAX; tries++) {
    const webhook = await find(context, name);
    const changed = make(webhook);
    const next = changed && { ...changed, version: crypto.randomUUID() };
    if (await viewOf(context).putWebhook(next, webhook)) return next;
  }
  throw new Refusal("store_busy");
}

async function findNext(context: Context, webhook: Webhook): Promise<number | undefined> {
  const store = sentBy(context, webhook);
  for (let after = webhook.cursor; ;) {
    const page = await store.readChanges({ after, limit: 1, types: webhook.types });
    const [first] = page.changes;
    if (first !== undefined || !page.hasMore) return first?.seq;
    after = page.last;
  }
}

export function parseNewWebhook(input: unknown) {
  const { url } = Object(input) as { readonly url?: unknown };
  const host = URL.parse(String(url))?.hostname.replaceAll(/[^A-Za-z0-9.-]/g, "");
  // Without a host the URL is refused, not the name.
  const name = host?.slice(0, 64) || "webhook";
  return parseMembers(input, newRules, { name, types: changeTypes });
}

const URL_CHARACTERS_MAX = 2_048;

const NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;

/** Of a new webhook. The name and the types have defaults. */
export const newRules = {
  url: {
    expected: `an http or https URL of at most ${URL_CHARACTERS_MAX} characters without a user`,
    find: (value: unknown) => {
      const url = typeof value === "string" ? URL.parse(value) : null;
      if (url === null || url.href.length > URL_CHARACTERS_MAX) return undefined;
      return /^https?:$/.test(url.protocol) && url.username + url.password === "" ? url : undefined;
    },
  },
  /** It is part of URLs. */
  name: {
    optional: true,
    expected: "1 to 64 characters out of A-Z a-z 0-9 . _ @ -, the first a letter or digit",
    find: (value: unknown) => (typeof value === "string" && NAME.test(value) ? value : undefined),
  },
  types: {
    optional: true,
    expected: `one or more of ${changeTypes.join(", ")}`,
    find: findChangeTypes,
  },
};

export const replayRules = {
  from: {
    expected: 'the number of a change, 0 for the oldest, or "newest"',
    find: (value: unknown) =>
      value === "newest" || (Number.isSafeInteger(value) && Number(value) >= 0)
        ? (value as number | "newest")
        : undefined,
  },
};
