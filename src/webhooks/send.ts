/** Sends one event to a receiver, by Standard Webhooks 1.0.0. Never to an address inside our own network. */

import { familyOf, isIn } from "../address.ts";
import { readStart } from "../answer.ts";
import type { ListedChange } from "../domain/change.ts";
import { DAY_MS, findRetryAfterMs } from "../domain/time.ts";
import { type Attempt, hasSucceeded, type Webhook } from "../domain/webhook.ts";
import type { Tracer } from "../observe/tracer.ts";
import { within } from "../tick.ts";

export interface SendOptions {
  readonly webhooksPrivate: boolean;
  readonly webhookSecondsMax: number;
  readonly resolve?: ((host: string) => Promise<readonly string[]>) | undefined;
}

export interface Event {
  /** The same in every attempt, so a receiver can dedupe. */
  readonly id: string;
  readonly body: string;
  readonly traceHeaders?: Readonly<Record<string, string>> | undefined;
}

const ANSWER_BYTES_MAX = 4_096;
/** The start of the body comes with the status. A receiver may keep the rest open. */
const ANSWER_MS_MAX = 500;
const ANSWER_CHARACTERS_MAX = 200;

export const toEvent = ({ seq, atMs, type, json }: ListedChange): Event => ({
  id: `msg_${seq}`,
  body: formatEvent(`plant.${type}`, atMs, json),
});

export const createTestEvent = (): Event => ({
  id: `msg_test_${crypto.randomUUID().replaceAll("-", "")}`,
  body: formatEvent("webhook.test", Date.now(), "{}"),
});

const formatEvent = (type: string, atMs: number, data: string): string =>
  `{"type":"${type}","timestamp":"${new Date(atMs).toISOString()}","data":${data}}`;

export const createSecret = (): string =>
  `whsec_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("base64")}`;

function sign(secret: string, head: string, body: string): string {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  return `v1,${new Bun.CryptoHasher("sha256", key).update(head).update(body).digest("base64")}`;
}

/** As `sendEvent`, with a span if deliveries are traced. */
export async function deliver(
  tracer: Tracer | undefined,
  origin: Parameters<Tracer["startDelivery"]>[0],
  webhook: Pick<Webhook, "name" | "url" | "secret" | "oldSecret" | "failures">,
  event: Event,
  options: SendOptions,
  signal?: AbortSignal,
) {
  const span = tracer?.startDelivery(origin);
  const traced = { ...event, traceHeaders: span?.headers };
  const sent = await sendEvent(webhook, traced, options, signal);
  const isError = !hasSucceeded(sent.attempt);
  span?.end(`POST ${webhook.name}`, describeDelivery(webhook, sent.attempt), isError);
  const { traceId, spanId } = span?.context ?? {};
  return { ...sent, ids: { traceId, spanId } };
}

/** Without url.full: the path or query of a receiver's URL may have a secret. */
function describeDelivery(
  { name, url, failures }: Pick<Webhook, "name" | "url" | "failures">,
  attempt: Attempt,
) {
  const { protocol, hostname, port } = new URL(url);
  const type = attempt.status === null ? "no_answer" : String(attempt.status);
  const [, change] = /^msg_(\d+)$/.exec(attempt.event) ?? [];
  return {
    "http.request.method": "POST",
    "http.request.resend_count": failures || undefined,
    "http.response.status_code": attempt.status ?? undefined,
    "url.scheme": protocol.slice(0, -1),
    "server.address": hostname,
    "server.port": Number(port) || (protocol === "https:" ? 443 : 80),
    "error.type": hasSucceeded(attempt) ? undefined : type,
    "plantstore.webhook": name,
    "plantstore.change": change === undefined ? undefined : Number(change),
  };
}

/** Never rejects: the attempt has the error, even if the signal aborted it. */
export async function sendEvent(
  { url, secret, oldSecret }: Pick<Webhook, "url" | "secret" | "oldSecret">,
  { id, body, traceHeaders }: Event,
  options: SendOptions,
  signal?: AbortSignal,
) {
  const atMs = Date.now();
  const startedAtMs = performance.now();
  const timestamp = String(Math.floor(atMs / 1000));
  const secrets = [secret, ...(oldSecret && oldSecret.untilMs > atMs ? [oldSecret.secret] : [])];
  const headers = {
    "content-type": "application/json",
    "accept-encoding": "identity",
    "user-agent": "plantstore",
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": secrets.map((one) => sign(one, `${id}.${timestamp}.`, body)).join(" "),
    ...traceHeaders,
  };
  const end = (rest: Partial<Attempt>, retryAfterMs = 0) => {
    const durationMs = Math.round(performance.now() - startedAtMs);
    const time = new Date(atMs).toISOString();
    const none = { status: null, error: null, answer: null };
    const attempt: Attempt = { event: id, time, durationMs, ...none, ...rest };
    return { attempt, retryAfterMs };
  };
  const ending = new AbortController();
  const post = async (): Promise<Response> => {
    const target = new URL(url);
    const { host, hostname } = target;
    const isLiteral = findLiteral(target) !== undefined;
    const address = await findAddress(target, options);
    // Connects to the checked address, whatever the name resolves to by then. Host and certificate keep the name.
    target.hostname = familyOf(address) === 6 ? `[${address}]` : address;
    return fetch(target, {
      method: "POST",
      headers: { ...headers, host },
      body,
      signal: ending.signal,
      redirect: "manual",
      decompress: false,
      // A proxy from the environment would resolve the name itself, and could reach any address.
      proxy: false,
      ...(!isLiteral && { tls: { serverName: hostname } }),
    } as unknown as BunFetchRequestInit);
  };
  const msMax = options.webhookSecondsMax * 1000;
  const response = await within(msMax, post(), signal).catch(explainUnsent);
  if (response === undefined) {
    ending.abort();
    return end({ error: `No answer within ${options.webhookSecondsMax} s.` });
  }
  if (typeof response === "string") return end({ error: response });
  const leftMs = startedAtMs + msMax - performance.now();
  const text = await readStart(response, ANSWER_BYTES_MAX, Math.min(leftMs, ANSWER_MS_MAX));
  const answer = text.slice(0, ANSWER_CHARACTERS_MAX).toWellFormed();
  const retryAfterMs = findRetryAfterMs(response.headers.get("retry-after")) ?? 0;
  return end({ status: response.status, answer }, Math.min(retryAfterMs, DAY_MS));
}

/** Omits the URL, which is in some of the runtime's messages: its path or query may have a secret. */
const explainUnsent = ({ message, code = "" }: NodeJS.ErrnoException): string => {
  const text = message.includes("://") ? code : message;
  return (text.includes(code) ? text : `${text} (${code})`).slice(0, ANSWER_CHARACTERS_MAX);
};

/** Rejects if any address of the name is not public. */
async function findAddress(url: URL, { webhooksPrivate, resolve = lookUp }: SendOptions) {
  const literal = findLiteral(url);
  const addresses = literal === undefined ? await resolve(url.hostname) : [literal];
  const refused = addresses.find(isPrivate);
  if (refused !== undefined && !webhooksPrivate) throw new Error(explainPrivate(refused));
  const address = addresses.find((one) => familyOf(one) === 4) ?? addresses[0];
  if (address === undefined) throw new Error(`${url.hostname} has no address.`);
  return address;
}

async function lookUp(host: string): Promise<readonly string[]> {
  const found = await Bun.dns.lookup(host, { socketType: "tcp" });
  return found.map(({ address }) => address);
}

export const explainPrivate = (address: string): string =>
  `${address} is not a public address, and PLANTSTORE_WEBHOOKS_PRIVATE is not true.`;

/** From IANA's special-purpose registries. Two lists, because one would match IPv4 addresses as IPv6 too. */
const PRIVATE_V4 = `0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
  192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4`;
const privateV4 = PRIVATE_V4.split(/\s+/);
const privateV6 = "::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20".split(" ");

export const isPrivate = (address: string): boolean =>
  isIn(familyOf(address) === 6 ? privateV6 : privateV4, address);

export function findLiteral({ hostname }: URL): string | undefined {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return familyOf(host) === 0 ? undefined : host;
}
