/** Backups in a bucket. It has whole objects only; their local files are in a folder of ours. */

import { createHash } from "node:crypto";
import { closeSync, ftruncateSync, openSync, statSync, writeSync } from "node:fs";
import { readWhole } from "../answer.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { type FoundFile, GoneError, type Place } from "./place.ts";
import {
  type Answer,
  createSender,
  type Environment,
  getElement,
  type Limits,
  locateBucket,
  type Part,
  readChunks,
  type Send,
  Transient,
} from "./s3.ts";
import { isPacked, openScratch, pack, sweepScratch, unpack } from "./scratch.ts";

interface BucketLimits extends Limits {
  readonly partBytes: number;
  /** Objects on a page of a listing. */
  readonly pageLengthMax: number;
}

const defaults: BucketLimits = {
  stallMs: 30_000,
  retryMs: 30_000,
  backoffMs: 100,
  // Servers refuse smaller ones.
  partBytes: 5_242_880,
  // Servers send no more.
  pageLengthMax: 1_000,
};

/** Servers refuse more. Larger objects have larger parts. */
const PARTS_MAX = 10_000;
/** Downloads are in ranges: the runtime buffers what is not read yet. */
const RANGE_BYTES = 4_194_304;
const NOTE_BYTES_MAX = 65_536;

/** Metadata that tells an object from another one with the same name. */
const DIGEST = "x-amz-meta-plantstore-digest";

/** Sends nothing yet. Throws a StoreOpenError for a malformed URL, and without credentials or a region. */
export function openBucket(
  url: string,
  scratch: string,
  environment: Environment = process.env,
  options: Partial<BucketLimits> = {},
): Place {
  const limits = { ...defaults, ...options };
  const target = locateBucket(url, environment);
  const closing = new AbortController();
  const send = createSender(target, limits, closing.signal);
  const local = openScratch(scratch);
  const notes = openNotes(send, target.url);

  async function download(name: string, path: string): Promise<void> {
    const packed = isPacked(name) ? local.create("fetched") : undefined;
    try {
      await readObject(send, name, packed ?? path, `${target.url}/${name}`);
      if (packed !== undefined) await unpack(packed, path);
    } catch (error) {
      if (error instanceof StoreOpenError) throw error;
      const why = (error as Error).message;
      throw new StoreOpenError(`${path} cannot be written: ${why}`, { cause: error });
    } finally {
      if (packed !== undefined) local.remove(packed);
    }
  }

  return {
    url: target.url,
    list: () => listObjects(send, target.prefix, limits.pageLengthMax),
    fetch: (name) => local.fetch(name, (path) => download(name, path)),
    release: () => local.release(),
    stage: (prefix) => local.create(prefix),
    async keep(path, name) {
      const packed = isPacked(name) ? local.create("packed") : path;
      try {
        if (packed !== path) await pack(path, packed);
        const staged = readStaged(packed, limits.partBytes);
        await writeObject(send, name, staged, `${target.url}/${name}`);
        return staged.bytes;
      } finally {
        for (const one of [path, packed]) local.remove(one);
      }
    },
    sweep: async () => sweepScratch(scratch),
    remove: (name) => send({ done: "removed", name, method: "DELETE" }, async () => undefined),
    readNote: notes.read,
    writeNote: notes.write,
    close() {
      closing.abort();
      local.close();
    },
  };
}

/** What a server answers if another writer replaced the note: 412, or 409 at the same moment. */
const REPLACED = [409, 412];
/** What it answers if it cannot write on a condition. */
const UNCONDITIONAL = [400, 501];

/** Notes are replaced on a condition, where the server has that. */
function openNotes(send: Send, url: string) {
  /** As they were read or written last. */
  const known = new Map<string, { readonly text: string; readonly tag: string | null }>();

  const read = (name: string): Promise<string | undefined> =>
    send({ done: "read", name, headers: rangeFrom(0, NOTE_BYTES_MAX) }, async (answer) => {
      known.delete(name);
      if (answer === undefined) return undefined;
      const { bytes } = readRange(answer);
      if (bytes > NOTE_BYTES_MAX) throw new StoreOpenError(`${url}/${name} is not ours.`);
      const note = bytes === 0 ? Buffer.of() : await readWhole(answer.chunks(), NOTE_BYTES_MAX);
      if (note?.length !== bytes) throw new Transient("the answer was cut off");
      const text = note.toString();
      known.set(name, { text, tag: answer.headers.get("etag") });
      return text;
    });

  const put = (name: string, text: string, headers: Readonly<Record<string, string>>) => {
    const body = Buffer.from(text);
    const accepts = Object.keys(headers).length === 0 ? [] : [...REPLACED, ...UNCONDITIONAL];
    const request = { done: "written", name, method: "PUT", headers, body, accepts } as const;
    return send(request, async (answer) => ({
      // Without an object there is nothing to replace.
      status: answer?.status ?? 412,
      tag: answer?.headers.get("etag") ?? null,
    }));
  };

  return {
    read,
    write: async (name: string, text: string, before: string | undefined): Promise<boolean> => {
      const found = known.get(name);
      if (found?.text !== before) return false;
      const condition: Record<string, string> = found?.tag ? { "if-match": found.tag } : {};
      if (found === undefined) condition["if-none-match"] = "*";
      let { status, tag } = await put(name, text, condition);
      if (UNCONDITIONAL.includes(status)) ({ status, tag } = await put(name, text, {}));
      // An earlier attempt may have succeeded, and only its answer was lost.
      if (REPLACED.includes(status)) return (await read(name)) === text;
      known.set(name, { text, tag });
      return true;
    },
  };
}

async function listObjects(
  send: Send,
  prefix: string,
  pageLengthMax: number,
): Promise<FoundFile[]> {
  const files: FoundFile[] = [];
  const query = { "list-type": "2", delimiter: "/", "max-keys": `${pageLengthMax}`, prefix };
  let token: string | undefined;
  do {
    const next = token === undefined ? query : { ...query, "continuation-token": token };
    token = await send({ done: "listed", query: next }, async (answer) => {
      const page = (await answer?.document("ListBucketResult")) ?? "";
      const objects = [...page.matchAll(/<Contents>(.*?)<\/Contents>/gs)].map(
        ([, object = ""]) => ({
          name: getElement(object, "Key").slice(prefix.length),
          bytes: Number(getElement(object, "Size")),
        }),
      );
      const isLast = getElement(page, "IsTruncated") === "false";
      const following = isLast ? undefined : getElement(page, "NextContinuationToken");
      // Some programs create an object for a folder.
      files.push(...objects.filter(({ name }) => name !== "" && !name.includes("/")));
      return following;
    });
  } while (token !== undefined);
  return files;
}

const rangeFrom = (at: number, bytes: number) => ({ range: `bytes=${at}-${at + bytes - 1}` });

interface Range {
  readonly from: number;
  readonly end: number;
  /** The size of the whole object. */
  readonly bytes: number;
}

/** Which part of the object an answer holds: a server may ignore the requested range. */
function readRange({ status, headers }: Answer): Range {
  const [, from, last, bytes] =
    /^bytes (\d+)-(\d+)\/(\d+)$/.exec(headers.get("content-range") ?? "") ?? [];
  if (status === 206 && bytes !== undefined)
    return { from: Number(from), end: Number(last) + 1, bytes: Number(bytes) };
  // No range of an empty object can be satisfied.
  if (status === 416) return { from: 0, end: 0, bytes: 0 };
  const length = headers.get("content-length");
  if (status !== 200 || length === null) throw new Transient("the answer has no length");
  return { from: 0, end: Number(length), bytes: Number(length) };
}

async function readObject(send: Send, name: string, path: string, shown: string): Promise<void> {
  const file = openSync(path, "r+");
  try {
    let bytes = Number.POSITIVE_INFINITY;
    let tag: string | null = null;
    for (let at = 0; at < bytes;) {
      const headers = { ...rangeFrom(at, RANGE_BYTES), ...(tag !== null && { "if-match": tag }) };
      at = await send({ done: "read", name, headers }, async (answer) => {
        if (answer === undefined) throw new GoneError(`${shown} does not exist.`);
        const range = readRange(answer);
        ({ bytes } = range);
        tag = answer.headers.get("etag");
        let end = range.from;
        if (bytes > 0)
          for await (const chunk of answer.chunks())
            end += writeSync(file, chunk, 0, chunk.length, end);
        if (end !== range.end) throw new Transient("the answer was cut off");
        return end;
      });
      // Otherwise GC lets tens of megabytes of chunks pile up.
      if (at < bytes) Bun.gc(true);
    }
    ftruncateSync(file, bytes);
  } finally {
    closeSync(file);
  }
}

interface Staged {
  readonly bytes: number;
  readonly parts: readonly [Part, ...Part[]];
  /** The hash of the hashes of all parts. */
  readonly digest: string;
}

/** Each request signs the hash of its part, so the server refuses what was changed on the way. */
function readStaged(path: string, partBytesMin: number): Staged {
  const { size: bytes } = statSync(path);
  const partBytes = Math.max(partBytesMin, Math.ceil(bytes / PARTS_MAX));
  const digest = createHash("sha256");
  const readPart = (from: number): Part => {
    const part = { path, from, bytes: Math.min(partBytes, bytes - from) };
    const hash = createHash("sha256");
    for (const chunk of readChunks(path, from, part.bytes)) hash.update(chunk);
    const sha256 = hash.digest("hex");
    digest.update(sha256);
    return { ...part, sha256 };
  };
  const parts: [Part, ...Part[]] = [readPart(0)];
  for (let from = partBytes; from < bytes; from += partBytes) parts.push(readPart(from));
  return { bytes, parts, digest: digest.digest("hex") };
}

/** Undefined if there is no such object. */
const inspectObject = (send: Send, name: string) =>
  send(
    { done: "read", name, headers: rangeFrom(0, 1) },
    async (answer) =>
      answer && { bytes: readRange(answer).bytes, digest: answer.headers.get(DIGEST) },
  );

/** Resolves when the object is there, whole. */
async function writeObject(send: Send, name: string, staged: Staged, shown: string): Promise<void> {
  const { bytes, parts, digest } = staged;
  const found = await inspectObject(send, name);
  // An earlier upload may have succeeded, and only its answer was lost.
  if (found?.bytes === bytes && found.digest === digest) return;
  if (found !== undefined)
    throw new StoreOpenError(`${shown} was created in the meantime. It was left alone.`);
  // Not every server keeps metadata.
  const isStored = async (): Promise<boolean> => {
    const stored = await inspectObject(send, name);
    return stored?.bytes === bytes && (stored.digest ?? digest) === digest;
  };
  if (parts.length > 1) await writeParts(send, name, staged, isStored);
  else {
    const headers = { [DIGEST]: digest };
    const request = { done: "written", name, method: "PUT", headers, body: parts[0] } as const;
    await send(request, async () => undefined);
  }
  if (!(await isStored()))
    throw new StoreOpenError(`${shown} was written, and is not there as written.`);
}

/** The server may fail after it has answered 200. Then it says so in the document. */
const readFinished = async (answer: Answer | undefined) =>
  answer?.document("CompleteMultipartUploadResult");

async function writeParts(
  send: Send,
  name: string,
  { parts, digest }: Staged,
  isStored: () => Promise<boolean>,
): Promise<void> {
  const headers = { [DIGEST]: digest };
  const uploadId = await send(
    { done: "written", name, method: "POST", query: { uploads: "" }, headers },
    async (answer) => {
      const document = await answer?.document("InitiateMultipartUploadResult");
      return getElement(document ?? "", "UploadId");
    },
  );
  try {
    const list: string[] = [];
    for (const [index, body] of parts.entries()) {
      const query = { partNumber: String(index + 1), uploadId };
      const tag = await send(
        { done: "written", name, method: "PUT", query, body },
        async (answer) => {
          const found = answer?.headers.get("etag");
          if (found) return found.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
          throw new Transient("the answer has no ETag");
        },
      );
      list.push(`<Part><PartNumber>${query.partNumber}</PartNumber><ETag>${tag}</ETag></Part>`);
    }
    const body = Buffer.from(
      `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${list.join("")}</CompleteMultipartUpload>`,
    );
    const finish = { done: "written", name, method: "POST", query: { uploadId }, body } as const;
    await send({ ...finish, isTriedOnce: true }, readFinished).catch(async () => {
      // If only the answer was lost, the server no longer knows the upload.
      if (!(await isStored())) await send(finish, readFinished);
    });
  } catch (error) {
    // The parts cost money. If this fails too, a rule of the bucket removes them.
    const abort = {
      done: "removed",
      name,
      method: "DELETE",
      query: { uploadId },
      isTriedOnce: true,
    } as const;
    await send(abort, async () => undefined).catch(() => undefined);
    throw error;
  }
}
