/**
 * A client of the S3 protocol: signs requests, sends them, watches their progress, retries them.
 *
 * The runtime's own S3 client has neither a deadline nor an abort, does not sign what it sends, and signs by the clock
 * of this machine, which may be wrong on the day of a restore. So requests are signed here, and sent by `fetch`.
 */

import { createHash, createHmac } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { readWhole } from "../answer.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { parseBucketUrl } from "../store-url.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Where a bucket is, and who we are there. */
export interface Target {
  /** For people. */
  readonly url: string;
  /** Every key begins with it. Empty, or ends in a slash. */
  readonly prefix: string;
  /** The URL of the bucket, without a slash at its end. */
  readonly base: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
  /** Certificate authorities in PEM, trusted in place of the system's. */
  readonly authorities: string | undefined;
}

export interface Limits {
  /** A request without progress is aborted after this time. */
  readonly stallMs: number;
  /** A request is retried until it has failed for this long. */
  readonly retryMs: number;
  readonly backoffMs: number;
}

interface ObjectRequest {
  /** For people: what was to be done to the object, or to the bucket. */
  readonly done: "listed" | "read" | "written" | "removed";
  /** Undefined for the bucket itself. */
  readonly name?: string;
  readonly method?: "PUT" | "POST" | "DELETE";
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | Part;
  /** Statuses that are read like a success. */
  readonly accepts?: readonly number[];
  readonly isTriedOnce?: boolean;
}

/** A part of a file. */
export interface Part {
  readonly path: string;
  readonly from: number;
  readonly bytes: number;
  readonly sha256: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  chunks(): AsyncGenerator<Uint8Array>;
  /** The whole XML document with this root. */
  document(root: string): Promise<string>;
}

/** Reads the answer; undefined stands for an object that does not exist. */
type Read<Value> = (answer: Answer | undefined) => Promise<Value>;

/** Rejects with a StoreOpenError: a sentence without a secret. `read` may be called again after a failure. */
export type Send = <Value>(request: ObjectRequest, read: Read<Value>) => Promise<Value>;

/** Another attempt may succeed. */
export class Transient extends Error {}

/** No other attempt will. */
class Refused extends Error {}

const BACKOFF_MS_MAX = 5_000;
/** The size of one read of a file, and of one piece of a body. */
const CHUNK_BYTES = 262_144;
const DOCUMENT_BYTES_MAX = 16_777_216;
/** The rest of an answer is read up to this size, to use its connection again. */
const REST_BYTES_MAX = 65_536;
/** The kernel buffers what is sent. The answer may be as late as a link of this rate makes it. */
const BYTES_PER_MS_MIN = 64;
/** Servers refuse signatures that are 15 minutes off. */
const SKEW_MS_MAX = 300_000;

const transientCodes = new Set([
  "BadDigest",
  "IncompleteBody",
  "InternalError",
  "OperationAborted",
  "RequestTimeout",
  "ServiceUnavailable",
  "SlowDown",
  "XAmzContentSHA256Mismatch",
]);

const hints: Readonly<Record<string, string>> = {
  ExpiredToken: "AWS_SESSION_TOKEN has expired",
  InvalidAccessKeyId: "AWS_ACCESS_KEY_ID is unknown there",
  SignatureDoesNotMatch: "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID",
};

/** Codes of the runtime for a certificate that the next attempt would not trust either. */
const UNTRUSTED = /CERT|SELF_SIGNED|UNABLE_TO/;

export function createSender(target: Target, limits: Limits, closed: AbortSignal): Send {
  const { host } = new URL(target.base);
  /** How far this machine's clock is behind the server's. */
  let skewMs = 0;

  async function attempt<Value>(request: ObjectRequest, read: Read<Value>): Promise<Value> {
    using watch = startWatch(limits.stallMs, closed);
    const timeMs = Date.now() + skewMs;
    const { url, ...init } = sign(target, request, timeMs);
    const { body } = request;
    const response = await fetch(url, {
      ...init,
      signal: watch.signal,
      redirect: "manual",
      // Compressed bytes have other lengths and ranges. The request does not accept them either.
      decompress: false,
      ...(body !== undefined && { body: "sha256" in body ? streamPart(body, watch.touch) : body }),
      ...(target.authorities !== undefined && { tls: { ca: target.authorities } }),
    }).catch((error: unknown) => {
      const { code } = error as { readonly code?: unknown };
      const reason = `${host} cannot be reached${typeof code === "string" ? ` (${code})` : ""}`;
      if (typeof code === "string" && UNTRUSTED.test(code)) throw new Refused(reason);
      throw new Transient(watch.hasStalled() ? `${host} does not answer` : reason);
    });
    watch.touch();
    const answer = openAnswer(response, watch.touch);
    // 416 says that the object is empty.
    const isAccepted = response.status === 416 || request.accepts?.includes(response.status);
    const isFound = response.ok || isAccepted === true;
    if (!isFound) await judge(answer, timeMs);
    const value = await read(isFound ? answer : undefined);
    await answer.discard();
    return value;
  }

  /** Throws, unless the answer says that the object does not exist. */
  async function judge(answer: Answer, timeMs: number): Promise<void> {
    const { status, headers } = answer;
    const text = (await readWhole(answer.chunks(), DOCUMENT_BYTES_MAX))?.toString() ?? "";
    const code = /^[A-Za-z0-9.]{1,64}$/.exec(findElement(text, "Code") ?? "")?.[0] ?? "";
    if (status === 404 && code === "NoSuchKey") return;
    const answered = `${host} answered ${status} ${code}`.trimEnd();
    const serverMs = Date.parse(headers.get("date") ?? "");
    // A wrong clock must not prevent a backup.
    if (status === 403 && Math.abs(serverMs - timeMs) > SKEW_MS_MAX) {
      skewMs = serverMs - Date.now();
      throw new Transient(answered);
    }
    const isTransient = status === 429 || (status >= 500 && status !== 501);
    if (isTransient || transientCodes.has(code)) throw new Transient(answered);
    const region = headers.get("x-amz-bucket-region") ?? findElement(text, "Region");
    const isElsewhere = region !== undefined && region !== target.region;
    const hint = isElsewhere ? `AWS_REGION must be ${region}` : hints[code];
    throw new Refused(hint === undefined ? answered : `${answered}: ${hint}`);
  }

  return async (request, read) => {
    let failedAtMs: number | undefined;
    try {
      for (let attempts = 0; ; attempts++)
        try {
          return await attempt(request, read);
        } catch (error) {
          const nowMs = performance.now();
          failedAtMs ??= nowMs;
          const isOver = request.isTriedOnce === true || nowMs - failedAtMs >= limits.retryMs;
          if (!(error instanceof Transient) || isOver) throw error;
          const backoffMs = Math.min(BACKOFF_MS_MAX, limits.backoffMs * 2 ** attempts);
          await sleep(backoffMs * (0.5 + Math.random() / 2), undefined, { signal: closed });
        }
    } catch (error) {
      if (closed.aborted) throw new StoreOpenError(`${target.url} was closed.`);
      if (!(error instanceof Transient || error instanceof Refused)) throw error;
      const { name, done } = request;
      const what = name === undefined ? target.url : `${target.url}/${name}`;
      throw new StoreOpenError(`${what} cannot be ${done}: ${error.message}.`);
    }
  };
}

/** Aborts a request that makes no progress, or whose place is closed. */
function startWatch(stallMs: number, closed: AbortSignal) {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  let hasStalled = false;
  const onStall = (): void => {
    hasStalled = true;
    abort();
  };
  let timer = setTimeout(onStall, stallMs);
  closed.addEventListener("abort", abort);
  if (closed.aborted) abort();
  return {
    signal: controller.signal,
    hasStalled: () => hasStalled,
    /** `graceMs` is granted beyond the usual time. */
    touch: (graceMs = 0): void => {
      clearTimeout(timer);
      timer = setTimeout(onStall, stallMs + graceMs);
    },
    [Symbol.dispose]: (): void => {
      clearTimeout(timer);
      closed.removeEventListener("abort", abort);
      // Without effect if the answer was read to its end.
      abort();
    },
  };
}

type Touch = ReturnType<typeof startWatch>["touch"];

async function* streamPart(part: Part, touch: Touch): AsyncGenerator<Buffer> {
  for (const chunk of readChunks(part.path, part.from, part.bytes)) {
    touch();
    yield chunk;
  }
  touch(part.bytes / BYTES_PER_MS_MIN);
}

/** All in the same memory: a chunk is valid until the next one. `fetch` copies it before it asks for another. */
export function* readChunks(path: string, from: number, bytes: number): Generator<Buffer> {
  const file = openSync(path, "r");
  const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, bytes));
  try {
    for (let at = 0; at < bytes;) {
      const read = readSync(file, buffer, 0, Math.min(CHUNK_BYTES, bytes - at), from + at);
      if (read === 0) throw new StoreOpenError(`${path} became shorter while it was read.`);
      yield buffer.subarray(0, read);
      at += read;
    }
  } finally {
    closeSync(file);
  }
}

function openAnswer({ status, headers, body }: Response, touch: Touch) {
  async function* chunks(): AsyncGenerator<Uint8Array> {
    if (body === null) return;
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new Transient("the answer was cut off");
      });
      if (done) return;
      touch();
      yield value as Uint8Array;
    }
  }
  return {
    status,
    headers,
    chunks,
    async document(root: string): Promise<string> {
      const text = (await readWhole(chunks(), DOCUMENT_BYTES_MAX))?.toString();
      // A document that was cut off must not pass for a short one.
      if (text?.trimEnd().endsWith(`</${root}>`)) return text;
      const code = findElement(text ?? "", "Code");
      throw new Transient(code === undefined ? "the answer is not an S3 document" : code);
    },
    discard: async (): Promise<void> => {
      if (body?.locked === false) await readWhole(chunks(), REST_BYTES_MAX);
    },
  };
}

const EMPTY_SHA256 = createHash("sha256").digest("hex");

/** AWS Signature Version 4, with the hash of the body. */
function sign(target: Target, request: ObjectRequest, timeMs: number) {
  const { name, method = "GET", body } = request;
  const key = name === undefined ? "" : `/${target.prefix}${name}`;
  const path = key.split("/").map(encode).join("/");
  const query = Object.entries(request.query ?? {})
    .map(([parameter, value]) => `${encode(parameter)}=${encode(value)}`)
    .toSorted()
    .join("&");
  const url = new URL(`${target.base}${path}${query === "" ? "" : `?${query}`}`);
  const stamp = new Date(timeMs).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const payload = body === undefined ? EMPTY_SHA256 : "sha256" in body ? body.sha256 : sha256(body);
  const headers: Record<string, string> = {
    ...request.headers,
    host: url.host,
    "x-amz-content-sha256": payload,
    "x-amz-date": stamp,
    ...(target.sessionToken !== undefined && { "x-amz-security-token": target.sessionToken }),
  };
  const names = Object.keys(headers).toSorted();
  const canonical = [
    method,
    url.pathname,
    query,
    ...names.map((header) => `${header}:${headers[header]}`),
    "",
    names.join(";"),
    payload,
  ].join("\n");
  const day = stamp.slice(0, 8);
  const scope = [day, target.region, "s3", "aws4_request"];
  const start: string | Buffer = `AWS4${target.secretAccessKey}`;
  const signingKey = scope.reduce<string | Buffer>(hmac, start);
  const text = ["AWS4-HMAC-SHA256", stamp, scope.join("/"), sha256(canonical)].join("\n");
  const credential = `${target.accessKeyId}/${scope.join("/")}`;
  const signature = hmac(signingKey, text).toString("hex");
  const authorization = `AWS4-HMAC-SHA256 Credential=${credential},SignedHeaders=${names.join(";")},Signature=${signature}`;
  const length = body === undefined ? undefined : "bytes" in body ? body.bytes : body.length;
  return {
    url: url.href,
    method,
    headers: {
      ...headers,
      authorization,
      // With it a stream is not sent in chunks, which servers refuse.
      ...(length !== undefined && { "content-length": String(length) }),
    },
  };
}

const sha256 = (data: string | Buffer): string => createHash("sha256").update(data).digest("hex");

const hmac = (key: string | Buffer, text: string): Buffer =>
  createHmac("sha256", key).update(text).digest();

const encode = (text: string): string =>
  encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );

/** The text of the first element with this name. Servers write no attributes where we read. */
function findElement(xml: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
  return text?.replaceAll(/&(#x?[0-9A-Fa-f]+|[a-z]+);/g, (entity, code: string) =>
    code.startsWith("#")
      ? String.fromCodePoint(Number(code.replace(/^#/, "").replace(/^x/, "0x")))
      : (entities[code] ?? entity),
  );
}

const entities: Readonly<Record<string, string>> = {
  amp: "&",
  apos: "'",
  gt: ">",
  lt: "<",
  quot: '"',
};

export function getElement(xml: string, name: string): string {
  const text = findElement(xml, name);
  if (text === undefined) throw new Transient(`the answer has no ${name}`);
  return text;
}

/** By the variables of AWS's own programs. Throws a StoreOpenError. */
export function locateBucket(url: string, environment: Environment): Target {
  const find = (...names: readonly string[]): string | undefined =>
    names.map((name) => environment[name]?.trim()).find((value) => value);
  const get = (...names: readonly string[]): string => {
    const value = find(...names);
    if (value !== undefined) return value;
    throw new StoreOpenError(`${url} needs the variable ${names.join(" or ")}.`);
  };
  const { bucket, prefix } = parseUrl(url);
  const accessKeyId = get("AWS_ACCESS_KEY_ID");
  const secretAccessKey = get("AWS_SECRET_ACCESS_KEY");
  const endpoint = find("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  const regions = ["AWS_REGION", "AWS_DEFAULT_REGION"];
  // Most other services have one region, and accept this name for it.
  const region = endpoint === undefined ? get(...regions) : (find(...regions) ?? "us-east-1");
  if (!/^[A-Za-z0-9-]+$/.test(region))
    throw new StoreOpenError("AWS_REGION is not the name of a region, as in eu-central-1.");
  const authorities = find("AWS_CA_BUNDLE");
  return {
    url: prefix === "" ? `s3://${bucket}` : `s3://${bucket}/${prefix}`,
    prefix: prefix === "" ? "" : `${prefix}/`,
    base: endpoint === undefined ? locateAtAws(bucket, region) : locateAt(endpoint, bucket),
    region,
    accessKeyId,
    secretAccessKey,
    sessionToken: find("AWS_SESSION_TOKEN"),
    authorities: authorities === undefined ? undefined : readAuthorities(authorities),
  };
}

function parseUrl(url: string) {
  try {
    return parseBucketUrl(url);
  } catch (error) {
    throw new StoreOpenError(`Not the URL of a bucket: ${(error as Error).message}.`);
  }
}

function locateAtAws(bucket: string, region: string): string {
  const host = `s3.${region}.amazonaws.com${region.startsWith("cn-") ? ".cn" : ""}`;
  // Their certificate does not cover a bucket with a dot in its name.
  return bucket.includes(".") ? `https://${host}/${bucket}` : `https://${bucket}.${host}`;
}

/** The bucket is a part of the path, or of the host where the endpoint says so: `https://{bucket}.example.com`. */
function locateAt(endpoint: string, bucket: string): string {
  const isHosted = endpoint.includes("{bucket}");
  const url = URL.parse(endpoint.replace("{bucket}", bucket));
  const { username, password, search, hash, protocol = "" } = url ?? {};
  if (url === null || !/^https?:$/.test(protocol) || username || password || search || hash)
    throw new StoreOpenError("AWS_ENDPOINT_URL_S3 is not a URL as in https://s3.example.com.");
  const base = `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  return isHosted ? base : `${base}/${bucket}`;
}

function readAuthorities(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    throw new StoreOpenError(`AWS_CA_BUNDLE: ${path} cannot be read.`);
  }
}
