/** A real S3 server, and a proxy in front of it that fails as networks and servers do. */

import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import {
  createServer,
  type IncomingMessage,
  request as sendRequest,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { makeTemporaryFolder } from "./folder.ts";

/** The server has this one key pair. */
const KEY = "S3RVER";
export const BUCKET = "plants-backup";

export interface Seen {
  readonly method: string;
  /** With the query, without the bucket. */
  readonly path: string;
}

export type Fault =
  /** An answer of S3 in place of the server's own. */
  | { readonly status: number; readonly code: string; readonly headers?: Record<string, string> }
  /** The connection is reset before the server has seen the request. */
  | "reset"
  /** The server has done it, and the connection is reset before the answer. */
  | "lose-answer"
  /** The answer ends in the middle, with the connection. */
  | "truncate"
  /** Half of the answer comes in place of the whole, and nothing shows it but what is in it. */
  | "shorten"
  /** Nothing comes. */
  | "hang"
  /** Half of the answer comes, and then nothing. */
  | "hang-in-answer"
  /** The answer comes in small pieces, with pauses. */
  | "slow"
  /** A bit of the request's body flips on the way. */
  | "flip";

/** It ends with the pipe, so with us. Its logger does not load on Bun, and its page tokens use an old cipher. */
const PROGRAM = `
  const S3rver = require("@20minutes/s3rver");
  const [directory, name] = process.argv.slice(1);
  new S3rver({ address: "127.0.0.1", port: 0, silent: true, directory, vhostBuckets: false, configureBuckets: [{ name }] })
    .run().then(({ port }) => console.log(port));
  process.stdin.on("end", () => process.exit()).resume();`;

async function startServer(folder: string) {
  const command = ["node", "--openssl-legacy-provider", "--eval", PROGRAM, folder, BUCKET];
  const child = Bun.spawn(command, {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
    cwd: import.meta.dir,
  });
  const { value } = await child.stdout.getReader().read();
  return {
    port: Number(new TextDecoder().decode(value)),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      child.kill();
      await child.exited;
    },
  };
}

/** Faults are asked for every request, and undefined lets it pass. */
export async function startBucket() {
  await using started = new AsyncDisposableStack();
  const folder = started.use(makeTemporaryFolder());
  const server = started.use(await startServer(folder.path));
  const seen: Seen[] = [];
  const bucket = {
    seen,
    fault: (() => undefined) as (seen: Seen) => Fault | undefined,
    /** What becomes of a condition of a PUT: providers keep it, some ignore it, others refuse it with this status. */
    conditions: "kept" as "kept" | "ignored" | 400 | 501,
    /** Connections that a client gave up. */
    abortedCount: 0,
    /** Bytes of bodies, of requests and of answers. */
    bytesUp: 0,
    bytesDown: 0,
  };
  const proxy = createServer((request, response) => {
    const found = {
      method: request.method ?? "",
      path: request.url?.slice(`/${BUCKET}`.length) ?? "",
    };
    seen.push(found);
    response.on("close", () => {
      if (!response.writableEnded) bucket.abortedCount++;
    });
    const { fault, conditions } = bucket;
    pass(request, response, server.port, { fault: fault(found), conditions }, (up, down) => {
      bucket.bytesUp += up;
      bucket.bytesDown += down;
    }).catch(() => request.socket.destroy());
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  started.defer(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const { port } = proxy.address() as AddressInfo;
  const stack = started.move();
  /** Puts objects below `of/tests` into the server's own folder: thousands of requests would take minutes. */
  const seed = (under: string, objects: readonly (readonly [name: string, text: string])[]) => {
    const place = `${folder.path}/${BUCKET}/of/tests/${under}`;
    mkdirSync(place, { recursive: true });
    for (const [name, text] of objects) {
      const path = `${place}/${name}._S3rver_object`;
      writeFileSync(path, text);
      writeFileSync(`${path}.md5`, createHash("md5").update(text).digest("hex"));
    }
  };
  return Object.assign(bucket, {
    url: `s3://${BUCKET}/of/tests`,
    seed,
    env: {
      AWS_ACCESS_KEY_ID: KEY,
      AWS_SECRET_ACCESS_KEY: KEY,
      AWS_REGION: "us-east-1",
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`,
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  });
}

type Conditions = Awaited<ReturnType<typeof startBucket>>["conditions"];

async function pass(
  request: IncomingMessage,
  response: ServerResponse,
  port: number,
  { fault, conditions }: { readonly fault: Fault | undefined; readonly conditions: Conditions },
  count: (up: number, down: number) => void,
): Promise<void> {
  const cut = (): void => void request.socket.destroy();
  if (fault === "reset") return cut();
  const body = Buffer.concat((await Array.fromAsync(request).catch(() => [])) as Buffer[]);
  if (fault === "hang") return;
  if (typeof fault === "object") return answer(response, fault);
  if (fault === "flip" && body.length > 0) body[0] = (body[0] as number) ^ 1;
  // The server behind does not compare it. Those of providers do.
  if (createHash("sha256").update(body).digest("hex") !== request.headers["x-amz-content-sha256"])
    return answer(response, { status: 400, code: "XAmzContentSHA256Mismatch" });
  const isConditional = /if-(none-)?match/.test(Object.keys(request.headers).join());
  if (request.method === "PUT" && isConditional && typeof conditions === "number")
    return answer(response, { status: conditions, code: "NotImplemented" });
  const mustMatch = request.method === "PUT" && isConditional && conditions === "kept";
  const { status, headers, content } = await (mustMatch ? forwardIfMatched : forward)(
    request,
    body,
    port,
  );
  count(body.length, content.length);
  if (fault === "lose-answer") return cut();
  // Some proxies compress what they may.
  if (request.headers["accept-encoding"]?.includes("gzip"))
    return answer(response, { status: 406, code: "NotToBeCompressed" });
  const half = content.subarray(0, content.length / 2);
  if (fault === "shorten") {
    response.writeHead(status, { ...headers, "content-length": half.length });
    return void response.end(half);
  }
  response.writeHead(status, headers);
  if (fault === "truncate") return void response.write(half, cut);
  if (fault === "hang-in-answer") return void response.write(half);
  if (fault === "slow")
    for (let at = 0; at < content.length; at += content.length / 20) {
      response.write(content.subarray(at, at + content.length / 20));
      await Bun.sleep(5);
    }
  response.end(fault === "slow" ? undefined : content);
}

function answer(
  response: ServerResponse,
  { status, code, headers = {} }: Extract<Fault, object>,
): void {
  response.writeHead(status, { "content-type": "application/xml", ...headers });
  response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>m</Message></Error>`);
}

interface Asked {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: IncomingMessage["headers"];
}

interface Forwarded {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly content: Buffer;
}

let replacing: Promise<unknown> = Promise.resolve();

/** The server behind knows no conditions of a PUT. One after the other, so nothing comes between the two requests. */
function forwardIfMatched(from: Asked, body: Buffer, port: number): Promise<Forwarded> {
  const { "if-match": tag, "if-none-match": none } = from.headers;
  const { host = "" } = from.headers;
  const replaced = replacing.then(async () => {
    // The server behind needs no signature.
    const head = { method: "HEAD", url: from.url, headers: { host } };
    const found = await forward(head, Buffer.of(), port);
    const isThere = found.status === 200;
    const isMatched = none === "*" ? !isThere : isThere && found.headers.etag === tag;
    if (isMatched) return forward(from, body, port);
    const code = isThere || none === "*" ? "PreconditionFailed" : "NoSuchKey";
    const content = Buffer.from(`<?xml version="1.0"?><Error><Code>${code}</Code></Error>`);
    return { status: code === "NoSuchKey" ? 404 : 412, headers: {}, content };
  });
  replacing = replaced.catch(() => undefined);
  return replaced;
}

function forward(from: Asked, body: Buffer, port: number) {
  return new Promise<Forwarded>((resolve, reject) => {
    const { method, url: path, headers } = from;
    const target = { host: "127.0.0.1", port, method: method ?? "", path: path ?? "", headers };
    sendRequest(target, (answered) => {
      const { statusCode: status = 0, headers: answeredHeaders } = answered;
      Array.fromAsync(answered)
        .then((chunks) =>
          resolve({ status, headers: answeredHeaders, content: Buffer.concat(chunks) }),
        )
        .catch(reject);
    })
      .on("error", reject)
      .end(body);
  });
}
