/** What can be done with webhooks, over HTTP and on the command line. */

import { grantRules } from "../auth/token.ts";
import { type ChangePage, type ChangeType, changeTypes } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { parseMembers } from "../domain/json.ts";
import type { ServedStore } from "../domain/store.ts";
import type { Attempt, Webhook } from "../domain/webhook.ts";
import {
  createSecret,
  createTestEvent,
  explainPrivate,
  findLiteral,
  isPrivate,
  sendEvent,
  type SendOptions,
} from "./send.ts";

/** For how long the old secret signs too. */
const ROTATION_MS = 86_400_000;
/** The instance that sends writes the record once a second. */
const CHANGES_MAX = 20;

export type WebhookStore = Pick<ServedStore, "listWebhooks" | "putWebhook" | "readChanges">;

const iso = (ms: number): string => new Date(ms).toISOString();

const show = (webhook: Webhook) => ({
  name: webhook.name,
  url: webhook.url,
  types: webhook.types,
  state: webhook.paused === undefined ? "active" : "paused",
  reason: webhook.paused ?? null,
  lastChange: webhook.cursor,
  failures: webhook.failures,
  nextAttempt: webhook.failures === 0 ? null : iso(webhook.nextAttemptAtMs),
  created: iso(webhook.createdAtMs),
  attempts: webhook.attempts,
});
export type ShownWebhook = ReturnType<typeof show>;
export type ShownSecret = ShownWebhook & { readonly secret: string };

export class Webhooks {
  private readonly store: WebhookStore;
  private readonly options: SendOptions;

  constructor(store: WebhookStore, options: SendOptions) {
    this.store = store;
    this.options = options;
  }

  async list(): Promise<ShownWebhook[]> {
    return (await this.store.listWebhooks()).map(show);
  }

  async get(name: string): Promise<ShownWebhook> {
    return show(await this.find(name));
  }

  /** Begins behind the newest change. The secret is shown only here. */
  async add(given: unknown): Promise<ShownSecret> {
    const asked = this.parseAllowed(given);
    const secret = createSecret();
    const webhook: Webhook = {
      ...asked,
      secret,
      oldSecret: undefined,
      createdAtMs: Date.now(),
      cursor: (await this.readChanges(0, 0)).newest,
      paused: undefined,
      failures: 0,
      nextAttemptAtMs: 0,
      attempts: [],
      holder: undefined,
      version: crypto.randomUUID(),
    };
    if (await this.store.putWebhook(webhook, undefined)) return { ...show(webhook), secret };
    const names = (await this.store.listWebhooks()).map(({ name }) => name);
    throw new Refusal(names.includes(webhook.name) ? "webhook_name_taken" : "webhooks_full");
  }

  async remove(name: string): Promise<void> {
    await this.change(name, () => undefined);
  }

  /** Sends one event, paused or not, and shows what became of it. */
  async test(name: string): Promise<Attempt> {
    const sent = await sendEvent(await this.find(name), createTestEvent(), this.options);
    return sent.attempt;
  }

  pause(name: string): Promise<ShownWebhook> {
    return this.update(name, { paused: "Paused on request." });
  }

  /** Goes on where it was, at once. */
  resume(name: string): Promise<ShownWebhook> {
    return this.update(name, { paused: undefined });
  }

  /** Goes on behind the change that is given, or behind the newest. */
  async replay(name: string, given: unknown): Promise<ShownWebhook> {
    const { from } = parseMembers(given, replayRules);
    await this.find(name);
    // Refuses a number that the journal does not have.
    const { changes, last, newest } = await this.readChanges(from === "newest" ? 0 : from, 1);
    // Not 0: the oldest change may be removed before it is sent, and then that has to be said.
    const start = (changes[0]?.seq ?? last + 1) - 1;
    return this.update(name, {
      cursor: from === "newest" ? newest : from || start,
      paused: undefined,
    });
  }

  async rotate(name: string): Promise<ShownSecret> {
    const secret = createSecret();
    const changed = await this.change(name, (webhook) => ({
      ...webhook,
      secret,
      oldSecret: { secret: webhook.secret, untilMs: Date.now() + ROTATION_MS },
    }));
    return { ...show(changed as Webhook), secret };
  }

  private async find(name: string): Promise<Webhook> {
    const found = (await this.store.listWebhooks()).find((webhook) => webhook.name === name);
    if (found === undefined) throw new Refusal("webhook_not_found");
    return found;
  }

  private async update(name: string, changes: Partial<Webhook>): Promise<ShownWebhook> {
    const fresh = { failures: 0, nextAttemptAtMs: 0, holder: undefined };
    const changed = await this.change(name, (webhook) => ({ ...webhook, ...fresh, ...changes }));
    return show(changed as Webhook);
  }

  /** Again if another writer came first. */
  private async change(
    name: string,
    make: (webhook: Webhook) => Webhook | undefined,
  ): Promise<Webhook | undefined> {
    for (let tries = 0; tries < CHANGES_MAX; tries++) {
      const webhook = await this.find(name);
      const made = make(webhook);
      const next = made && { ...made, version: crypto.randomUUID() };
      if (await this.store.putWebhook(next, webhook)) return next;
    }
    throw new Refusal("store_busy");
  }

  private readChanges(after: number, limit: number): Promise<ChangePage> {
    return this.store.readChanges({ after, limit, id: undefined, types: undefined });
  }

  private parseAllowed(given: unknown): Pick<Webhook, "name" | "url" | "types"> {
    const asked = parseNewWebhook(given);
    const literal = findLiteral(asked.url);
    if (literal !== undefined && isPrivate(literal) && !this.options.webhooksPrivate)
      throw new Refusal("invalid_body", `url: ${explainPrivate(literal)}`);
    return { ...asked, url: asked.url.href };
  }
}

/** Throws a Refusal. */
export function parseNewWebhook(given: unknown) {
  const { url } = Object(given) as { readonly url?: unknown };
  const host = URL.parse(String(url))?.hostname.replaceAll(/[^A-Za-z0-9.-]/g, "");
  // Without a host the URL is refused, and the name is not at fault.
  const name = host?.slice(0, 64) || "webhook";
  return parseMembers(given, newRules, { name, types: changeTypes });
}

const URL_CHARACTERS_MAX = 2_048;

const newRules = {
  url: {
    expected: `an http or https URL of at most ${URL_CHARACTERS_MAX} characters without a user`,
    find: (value: unknown) => {
      const url = typeof value === "string" ? URL.parse(value) : null;
      if (url === null || url.href.length > URL_CHARACTERS_MAX) return undefined;
      return /^https?:$/.test(url.protocol) && url.username + url.password === "" ? url : undefined;
    },
  },
  name: grantRules.name,
  types: {
    expected: `one or more of ${changeTypes.join(", ")}`,
    find: (value: unknown) =>
      Array.isArray(value) &&
      value.length > 0 &&
      new Set(value).size === value.length &&
      value.every((type) => changeTypes.includes(type as ChangeType))
        ? (value as readonly ChangeType[])
        : undefined,
  },
};

const replayRules = {
  from: {
    expected: 'the number of a change, 0 for the oldest, or "newest"',
    find: (value: unknown) =>
      value === "newest" || (Number.isSafeInteger(value) && Number(value) >= 0)
        ? (value as number | "newest")
        : undefined,
  },
};
