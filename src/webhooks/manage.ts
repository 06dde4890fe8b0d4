/** What can be done with webhooks, over HTTP and on the command line. */

import { type ChangeType, changeTypes } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { describe } from "../domain/json.ts";
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

const NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
const NAME_EXPECTED = "1 to 64 characters out of A-Z a-z 0-9 . _ @ -, the first a letter or digit";
const URL_CHARACTERS_MAX = 2_048;
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
type WithSecret = ShownWebhook & { readonly secret: string };

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

  /** Begins behind the newest change. The secret is shown this once. */
  async add(given: unknown): Promise<WithSecret> {
    const asked = this.parseNew(given);
    const secret = createSecret();
    const webhook: Webhook = {
      ...asked,
      secret,
      oldSecret: undefined,
      createdAtMs: Date.now(),
      cursor: await this.findNewest(),
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
    const { from } = parseMembers(given, ["from"]);
    const isNumber = Number.isSafeInteger(from) && (from as number) >= 0;
    if (from !== "newest" && !isNumber)
      throw new Refusal(
        "invalid_body",
        `from: expected the number of a change, 0 for the oldest, or "newest", got ${describe(from)}`,
      );
    await this.find(name);
    const cursor = from === "newest" ? await this.findNewest() : (from as number);
    // Refuses a number that the journal does not have.
    if (from !== "newest") await this.readChanges(cursor);
    return this.update(name, { cursor, paused: undefined });
  }

  async rotate(name: string): Promise<WithSecret> {
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

  private async findNewest(): Promise<number> {
    return (await this.readChanges(0)).newest;
  }

  private readChanges(after: number) {
    return this.store.readChanges({ after, limit: 0, id: undefined, types: undefined });
  }

  private parseNew(given: unknown): Pick<Webhook, "name" | "url" | "types"> {
    const { url, name, types = changeTypes } = parseMembers(given, ["url", "name", "types"]);
    const faults: string[] = [];
    const expect = (member: string, isRight: boolean, expected: string, came: unknown): void => {
      if (!isRight) faults.push(`${member}: expected ${expected}, got ${describe(came)}`);
    };
    const parsed = typeof url === "string" ? URL.parse(url) : null;
    const isUrl =
      parsed !== null &&
      /^https?:$/.test(parsed.protocol) &&
      parsed.href.length <= URL_CHARACTERS_MAX &&
      parsed.username + parsed.password === "";
    expect(
      "url",
      isUrl,
      `an http or https URL of at most ${URL_CHARACTERS_MAX} characters without a user`,
      url,
    );
    const literal = isUrl ? findLiteral(parsed) : undefined;
    if (literal !== undefined && isPrivate(literal) && !this.options.webhooksPrivate)
      faults.push(`url: ${explainPrivate(literal)}`);
    const named = name ?? parsed?.hostname.replaceAll(/[^A-Za-z0-9.-]/g, "").slice(0, 64);
    expect("name", typeof named === "string" && NAME.test(named), NAME_EXPECTED, named);
    const isTypes =
      Array.isArray(types) &&
      types.length > 0 &&
      types.every((type) => (changeTypes as readonly unknown[]).includes(type)) &&
      new Set(types).size === types.length;
    expect("types", isTypes, `one or more of ${changeTypes.join(", ")}`, types);
    if (faults.length > 0) throw new Refusal("invalid_body", faults.join("; "));
    return { name: named as string, url: parsed?.href ?? "", types: types as ChangeType[] };
  }
}

/** Members that are null count as left out. A misspelt member is refused. */
function parseMembers<Name extends string>(
  given: unknown,
  known: readonly Name[],
): Partial<Record<Name, unknown>> {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(given)}`);
  const unknown = Object.keys(given).filter((member) => !known.includes(member as Name));
  if (unknown.length > 0)
    throw new Refusal(
      "invalid_body",
      unknown
        .map((member) => `${describe(member)}: unknown; known are ${known.join(", ")}`)
        .join("; "),
    );
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)) as Partial<
    Record<Name, unknown>
  >;
}
