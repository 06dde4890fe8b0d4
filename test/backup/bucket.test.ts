import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  setSystemTime,
  test,
} from "bun:test";
import { randomBytes } from "node:crypto";
import {
  existsSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { openBucket } from "../../src/backup/bucket.ts";
import { openPlace } from "../../src/backup/place.ts";
import { locateBucket } from "../../src/backup/s3.ts";
import { nameProcess } from "../../src/backup/scratch.ts";
import { StoreOpenError } from "../../src/domain/errors.ts";
import { BUCKET, type Fault, type Seen, startBucket } from "../support/bucket.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { canMount, mountSmallFolder } from "../support/small-disk.ts";

let bucket: Awaited<ReturnType<typeof startBucket>>;
let folder: ReturnType<typeof makeTemporaryFolder>;
const opened: ReturnType<typeof openBucket>[] = [];
/** Each test has its own, so none sees another's objects. */
let url: string;

beforeAll(async () => {
  bucket = await startBucket();
});
afterAll(() => bucket[Symbol.asyncDispose]());
beforeEach(() => {
  folder = makeTemporaryFolder();
  url = `s3://${BUCKET}/${randomBytes(4).toString("hex")}/plants`;
  Object.assign(bucket, { fault: () => undefined, conditions: "kept" });
  bucket.seen.length = 0;
});
afterEach(() => {
  setSystemTime();
  for (const place of opened.splice(0)) place.close();
  folder[Symbol.dispose]();
});

/** Short pauses, much patience: a busy machine must not look like a broken server. */
const patient = { stallMs: 10_000, retryMs: 60_000, backoffMs: 1, partBytes: 100_000 };

function open(options: Parameters<typeof openBucket>[3] = {}, env: Record<string, string> = {}) {
  const place = openBucket(url, folder.path, { ...bucket.env, ...env }, { ...patient, ...options });
  opened.push(place);
  return place;
}

type Opened = ReturnType<typeof open>;

async function keep(place: Opened, name: string, bytes: string | Buffer): Promise<void> {
  const staged = place.stage("copy");
  writeFileSync(staged, bytes);
  await place.keep(staged, name);
}

const listFolder = (): string[] => readdirSync(folder.path);

/** Lets the request pass after it has failed so often. */
function failFirst(
  count: number,
  fault: Fault,
  isMeant: (seen: Seen) => boolean = () => true,
): void {
  let left = count;
  bucket.fault = (seen) => (isMeant(seen) && left-- > 0 ? fault : undefined);
}

async function readError(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(StoreOpenError);
  return (error as StoreOpenError).message;
}

describe("a bucket", () => {
  test("keeps pieces of any size, lists them, and returns their bytes", async () => {
    const place = open();
    expect(await place.list()).toEqual([]);
    // One part; a last part that is full, and one that is not; several ranges.
    const sizes = { a: 1, b: 100_000, c: 200_000, d: 250_001, e: 9_000_000 };
    const pieces = Object.entries(sizes).map(
      ([name, bytes]) => [name, randomBytes(bytes)] as const,
    );
    for (const [name, bytes] of pieces) await keep(place, name, bytes);
    expect(await place.list()).toEqual(
      Object.entries(sizes).map(([name, bytes]) => ({ name, bytes })),
    );
    expect(listFolder()).toEqual([]);
    for (const [name, bytes] of pieces) {
      const path = await place.fetch(name);
      expect(readFileSync(path).equals(bytes)).toBe(true);
      expect(statSync(path).mode & 0o777).toBe(0o600);
      expect(await place.fetch(name)).toBe(path);
    }
    place.release();
    expect(listFolder()).toEqual([]);
    await place.remove("a");
    await place.remove("a");
    expect(await readError(place.fetch("a"))).toBe(`${url}/a does not exist.`);
    expect(listFolder()).toEqual([]);
  });

  test("has notes, which are replaced as a whole", async () => {
    const place = open();
    expect(await place.readNote("lease")).toBeUndefined();
    const first = "the first one, and a long one";
    expect(await place.writeNote("lease", first, undefined)).toBe(true);
    expect(await place.writeNote("lease", "é", first)).toBe(true);
    expect(await place.readNote("lease")).toBe("é");
    await keep(place, "large", Buffer.alloc(70_000));
    expect(await readError(place.readNote("large"))).toContain("is not ours");
  });

  test.each([
    ["a bucket", () => open()],
    ["a folder", () => openPlace(folder.path, folder.path)],
  ])("of two writers that replace a note of %s at once, one succeeds", async (_, openOne) => {
    const [one, other] = [await openOne(), await openOne()];
    let before: string | undefined;
    for (let round = 0; round < 3; round++) {
      for (const place of [one, other])
        expect(await place.readNote("lease")).toBe(before as string);
      const texts = [`one ${round}`, `other ${round}`];
      const done = await Promise.all(
        [one, other].map((place, nth) => place.writeNote("lease", texts[nth] ?? "", before)),
      );
      expect(done.filter(Boolean)).toHaveLength(1);
      before = texts[done.indexOf(true)];
      expect(await one.readNote("lease")).toBe(before as string);
    }
    expect(await other.writeNote("lease", "of an older one", "one 0")).toBe(false);
    // A person removed it.
    await other.remove("lease");
    expect(await one.writeNote("lease", "another", before)).toBe(false);
    expect(await one.readNote("lease")).toBeUndefined();
    expect(await one.writeNote("lease", "another", undefined)).toBe(true);
  });

  test.skipIf(!canMount)("a full folder keeps nothing of a note that did not fit", async () => {
    using small = mountSmallFolder("64k");
    const place = await openPlace(small.path, folder.path);
    expect(await place.writeNote("lease", "text", undefined)).toBe(true);
    expect(() => writeFileSync(`${small.path}/rest`, Buffer.alloc(1_000_000))).toThrow("ENOSPC");
    expect(place.writeNote("lease", "x".repeat(10_000), "text")).rejects.toThrow("ENOSPC");
    expect(readdirSync(small.path).toSorted()).toEqual(["lease", "rest"]);
  });

  test("a lock that a killed process left beside a note is removed after a minute", async () => {
    const place = await openPlace(folder.path, folder.path);
    const lock = `${folder.path}/lease.lock`;
    writeFileSync(lock, "");
    expect(await place.writeNote("lease", "text", undefined)).toBe(false);
    const longAgo = new Date(Date.now() - 61_000);
    utimesSync(lock, longAgo, longAgo);
    expect(await place.writeNote("lease", "text", undefined)).toBe(false);
    expect(await place.writeNote("lease", "text", undefined)).toBe(true);
    expect(listFolder()).toEqual(["lease"]);
  });

  test.each(["ignored", 400, 501] as const)(
    "whose server cannot write on a condition (%s) has notes too",
    async (conditions) => {
      bucket.conditions = conditions;
      const [place, other] = [open(), open()];
      expect(await place.writeNote("lease", "first", undefined)).toBe(true);
      expect(await place.writeNote("lease", "second", "first")).toBe(true);
      expect(await other.readNote("lease")).toBe("second");
    },
  );

  test("lists more objects than fit on a page, and only those directly below its prefix", async () => {
    const place = open({ pageLengthMax: 20 });
    const names = Array.from({ length: 50 }, (_, index) => `note-${1_000 + index}`);
    await Promise.all(names.map((name) => place.writeNote(name, "x", undefined)));
    const below = openBucket(`${url}/below`, folder.path, bucket.env, patient);
    const beside = openBucket(`${url}beside`, folder.path, bucket.env, patient);
    await below.writeNote("b", "x", undefined);
    await beside.writeNote("c", "x", undefined);
    bucket.seen.length = 0;
    expect((await place.list()).map(({ name }) => name)).toEqual(names);
    expect(bucket.seen).toHaveLength(3);
    expect(await below.list()).toHaveLength(1);
  });

  test("stages files that only the owner can read, and removes what dead processes left there", async () => {
    const nameOf = (owner: string) => `copy.${owner}.000000000000.piece.tmp`;
    const [namespace] = nameProcess().split("-");
    const dead = nameOf(`${namespace}-${2 ** 30}-1`);
    // From an earlier process with the same number.
    const earlier = nameOf(`${namespace}-${process.pid}-1`);
    const alive = nameOf(nameProcess(process.ppid));
    // Of another container, which cannot be seen. After a day it counts as left behind.
    const [foreign, old] = [nameOf("1-1-1"), nameOf("1-1-2")];
    writeFileSync(join(folder.path, old), "");
    utimesSync(join(folder.path, old), 1, 1);
    writeFileSync(join(folder.path, foreign), "");
    for (const name of [dead, `${dead}-wal`, earlier, alive, "copy.tmp"])
      writeFileSync(join(folder.path, name), "");
    const place = open();
    const staged = place.stage("copy");
    expect(statSync(staged)).toMatchObject({ size: 0, mode: 0o100600 });
    open();
    expect(listFolder().toSorted()).toEqual(
      [alive, foreign, staged.slice(folder.path.length + 1), "copy.tmp"].toSorted(),
    );
  });

  test("is closed at once, whatever it waits for, and leaves no file", async () => {
    const place = open();
    await keep(place, "piece", "of text");
    await place.fetch("piece");
    const asked = Promise.withResolvers<void>();
    bucket.fault = () => {
      asked.resolve();
      return "hang";
    };
    const work = [
      keep(place, "other", "text"),
      place.list(),
      place.fetch("more"),
      place.readNote("a"),
      place.readNote("b"),
    ];
    await asked.promise;
    const errors = work.map(readError);
    place.close();
    for (const error of errors) expect(await error).toBe(`${url} was closed.`);
    expect(listFolder()).toEqual([]);
  });
});

describe("a piece", () => {
  test("never replaces another one, but may be kept again", async () => {
    const place = open();
    for (const [name, bytes] of [
      ["small", 10],
      ["large", 300_000],
    ] as const) {
      const text = "x".repeat(bytes);
      await keep(place, name, text);
      await keep(place, name, text);
      expect(await readError(keep(place, name, text.replace("x", "y")))).toBe(
        `${url}/${name} was created in the meantime. It was left alone.`,
      );
      expect(readFileSync(await place.fetch(name), "utf8")).toBe(text);
    }
    expect(bucket.seen.filter(({ method }) => method === "PUT")).toHaveLength(1 + 3);
  });

  test("appears whole or not at all, and the parts of a failed upload are given back", async () => {
    const place = open({ retryMs: 0 });
    bucket.fault = ({ path }) =>
      path.includes("partNumber=3") ? { status: 500, code: "InternalError" } : undefined;
    expect(await readError(keep(place, "copy", randomBytes(450_000)))).toContain(
      "500 InternalError",
    );
    expect(await place.list()).toEqual([]);
    const [begun, aborted] = ["POST", "DELETE"].map((sought) =>
      bucket.seen.find(({ method }) => method === sought),
    );
    expect(begun?.path).toEndWith("/copy?uploads=");
    expect(aborted?.path).toMatch(/\/copy\?uploadId=\w+$/);
    expect(listFolder()).toEqual([]);
  });

  test.each([
    ["with its answer lost", "lose-answer"],
    ["with an error after the status 200", { status: 200, code: "InternalError" }],
  ] as const)("is whole if its upload is finished %s", async (_, fault) => {
    const place = open();
    failFirst(1, fault, ({ method, path }) => method === "POST" && path.includes("uploadId"));
    const bytes = randomBytes(450_000);
    await keep(place, "copy", bytes);
    expect(readFileSync(await place.fetch("copy")).equals(bytes)).toBe(true);
  });
});

describe("a request", () => {
  const faults: [string, Fault][] = [
    ["is answered 503", { status: 503, code: "SlowDown" }],
    ["is answered 500", { status: 500, code: "InternalError" }],
    ["is answered 429", { status: 429, code: "TooManyRequests" }],
    ["times out at the server", { status: 400, code: "RequestTimeout" }],
    ["is reset", "reset"],
    ["is done, and its answer lost", "lose-answer"],
    ["is answered with half an answer", "truncate"],
    ["is answered slowly", "slow"],
    ["flips a bit on the way", "flip"],
  ];

  test.each(faults)("that %s is retried, and nothing is lost or doubled", async (_, fault) => {
    const place = open();
    let count = 0;
    bucket.fault = () => (count++ % 3 === 2 ? undefined : fault);
    const [small, large] = [randomBytes(1_000), randomBytes(450_000)];
    expect(await place.writeNote("note", "the first", undefined)).toBe(true);
    expect(await place.writeNote("note", "text", "the first")).toBe(true);
    await keep(place, "small", small);
    await keep(place, "large", large);
    expect(await place.list()).toEqual([
      { name: "large", bytes: 450_000 },
      { name: "note", bytes: 4 },
      { name: "small", bytes: 1_000 },
    ]);
    expect(await place.readNote("note")).toBe("text");
    expect(readFileSync(await place.fetch("small")).equals(small)).toBe(true);
    expect(readFileSync(await place.fetch("large")).equals(large)).toBe(true);
    await place.remove("small");
    expect(await place.list()).toHaveLength(2);
  });

  test.each(["hang", "hang-in-answer"] as const)(
    "that stalls (%s) is aborted and retried",
    async (fault) => {
      const bytes = randomBytes(450_000);
      await keep(open(), "copy", bytes);
      const before = bucket.abortedCount;
      failFirst(1, fault);
      const path = await open({ stallMs: 500 }).fetch("copy");
      expect(readFileSync(path).equals(bytes)).toBe(true);
      expect(bucket.abortedCount).toBeGreaterThan(before);
    },
  );

  test("whose answer is shorter than it says is retried", async () => {
    const place = open();
    const bytes = randomBytes(5_000_000);
    await keep(place, "copy", bytes);
    for (const name of ["a", "b", "c"]) await place.writeNote(name, "x", undefined);
    failFirst(2, "shorten");
    expect(await place.list()).toHaveLength(4);
    await place.writeNote("lease", "not half of it", undefined);
    failFirst(2, "shorten");
    expect(await place.readNote("lease")).toBe("not half of it");
    failFirst(2, "shorten");
    expect(readFileSync(await place.fetch("copy")).equals(bytes)).toBe(true);
  });

  test("is given up after a while, in words", async () => {
    const place = open({ retryMs: 50 });
    bucket.fault = () => ({ status: 503, code: "SlowDown" });
    const host = bucket.env.AWS_ENDPOINT_URL_S3.slice("http://".length);
    expect(await readError(place.list())).toBe(
      `${url} cannot be listed: ${host} answered 503 SlowDown.`,
    );
    expect(bucket.seen.length).toBeGreaterThan(1);
    bucket.fault = () => "reset";
    expect(await readError(place.readNote("a"))).toStartWith(
      `${url}/a cannot be read: ${host} cannot be reached (`,
    );
    bucket.fault = () => "hang";
    expect(await readError(open({ retryMs: 0, stallMs: 100 }).list())).toBe(
      `${url} cannot be listed: ${host} does not answer.`,
    );
    expect(
      await readError(open({ retryMs: 0 }, { AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1" }).list()),
    ).toBe(`${url} cannot be listed: 127.0.0.1:1 cannot be reached (ECONNREFUSED).`);
  });

  test.each([
    [{ status: 403, code: "AccessDenied" }, "answered 403 AccessDenied."],
    [{ status: 404, code: "NoSuchBucket" }, "answered 404 NoSuchBucket."],
    [{ status: 501, code: "NotImplemented" }, "answered 501 NotImplemented."],
    [{ status: 400, code: "ExpiredToken" }, "400 ExpiredToken: AWS_SESSION_TOKEN has expired."],
    [
      { status: 301, code: "PermanentRedirect", headers: { "x-amz-bucket-region": "eu-west-1" } },
      "answered 301 PermanentRedirect: AWS_REGION must be eu-west-1.",
    ],
    [
      { status: 400, code: "AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region><Code>" },
      "400 AuthorizationHeaderMalformed: AWS_REGION must be eu-west-1.",
    ],
  ] satisfies [Fault, string][])("that is refused is not retried: %j", async (fault, ending) => {
    const place = open();
    bucket.fault = () => fault;
    for (const work of [
      () => place.list(),
      () => place.readNote("a"),
      () => place.fetch("a"),
      () => place.remove("a"),
      () => keep(place, "a", "b"),
    ]) {
      bucket.seen.length = 0;
      expect(await readError(work())).toEndWith(ending);
      expect(bucket.seen).toHaveLength(1);
    }
  });

  test("with a wrong secret is refused without showing it", async () => {
    const error = await readError(open({}, { AWS_SECRET_ACCESS_KEY: "of-somebody-else" }).list());
    expect(error).toEndWith(
      "403 SignatureDoesNotMatch: AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID.",
    );
    expect(error).not.toContain("of-somebody-else");
  });

  test.each([-400, -1, 1, 400])(
    "is signed by the server's clock if ours is %d days off",
    async (days) => {
      const place = open();
      const step = (): void => void setSystemTime(new Date(Date.now() + days * 86_400_000));
      step();
      await keep(place, "piece", "text");
      setSystemTime();
      expect(await place.list()).toHaveLength(1);
      step();
      expect(readFileSync(await place.fetch("piece"), "utf8")).toBe("text");
    },
  );
});

describe("a bucket is not opened", () => {
  test.each([
    ["s3://", "a bucket has 3 to 63 characters"],
    ["s3://Bad_Bucket", "a bucket has 3 to 63 characters"],
    ["s3://ab", "a bucket has 3 to 63 characters"],
    ["s3://a..b", "a bucket has 3 to 63 characters"],
    ["s3://192.168.0.1/x", "a bucket is not an IP address"],
    ["s3://bucket/../x", "an empty segment, or one of dots"],
    ["s3://bucket//x", "an empty segment, or one of dots"],
    ["s3://bucket/a b", "other characters"],
    ["s3://bucket/x?versionId=1", "other characters"],
    [`s3://bucket/${"x/".repeat(257)}y`, "longer than 512"],
    ["s3://key:very-secret@bucket/x", "credentials belong in AWS_… variables"],
    ["/mnt/backups", "not s3://bucket/prefix"],
  ])("by %s", (given, reason) => {
    const openIt = (): unknown => openBucket(given, folder.path, bucket.env);
    expect(openIt).toThrow(StoreOpenError);
    expect(openIt).toThrow(reason);
    expect(openIt).not.toThrow("very-secret");
  });

  test.each([
    [{ AWS_ACCESS_KEY_ID: "" }, "needs the variable AWS_ACCESS_KEY_ID."],
    [{ AWS_SECRET_ACCESS_KEY: undefined }, "needs the variable AWS_SECRET_ACCESS_KEY."],
    [
      { AWS_ENDPOINT_URL_S3: undefined, AWS_REGION: undefined },
      "needs the variable AWS_REGION or AWS_DEFAULT_REGION.",
    ],
    [{ AWS_REGION: "eu west" }, "AWS_REGION is not the name of a region"],
    [{ AWS_ENDPOINT_URL_S3: "s3.example.com" }, "AWS_ENDPOINT_URL_S3 is not a URL"],
    [
      { AWS_ENDPOINT_URL_S3: "https://key:secret@s3.example.com" },
      "AWS_ENDPOINT_URL_S3 is not a URL",
    ],
    [{ AWS_CA_BUNDLE: "/nowhere/ca.pem" }, "AWS_CA_BUNDLE: /nowhere/ca.pem cannot be read."],
  ])("with %j", (env, reason) => {
    const openIt = (): unknown => openBucket(url, folder.path, { ...bucket.env, ...env });
    expect(openIt).toThrow(StoreOpenError);
    expect(openIt).toThrow(reason);
  });
});

test.each([
  ["s3://bucket", { AWS_REGION: "eu-west-1" }, "https://bucket.s3.eu-west-1.amazonaws.com"],
  [
    "s3://bucket/a/b/",
    { AWS_DEFAULT_REGION: "eu-west-1" },
    "https://bucket.s3.eu-west-1.amazonaws.com",
  ],
  ["s3://a.bucket", { AWS_REGION: "eu-west-1" }, "https://s3.eu-west-1.amazonaws.com/a.bucket"],
  ["s3://bucket", { AWS_REGION: "cn-north-1" }, "https://bucket.s3.cn-north-1.amazonaws.com.cn"],
  ["s3://bucket", { AWS_ENDPOINT_URL: "http://minio:9000/" }, "http://minio:9000/bucket"],
  [
    "s3://bucket",
    { AWS_ENDPOINT_URL_S3: "https://a.example/s3", AWS_ENDPOINT_URL: "https://b.example" },
    "https://a.example/s3/bucket",
  ],
  [
    "s3://bucket",
    { AWS_ENDPOINT_URL_S3: "https://{bucket}.oss.example" },
    "https://bucket.oss.example",
  ],
])("the bucket of %s with %j is at %s", (given, env, base) => {
  const keys = { AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" };
  expect(locateBucket(given, { ...keys, ...env }).base).toBe(base);
});

test("a session token is sent, and signed", async () => {
  const place = open({}, { AWS_SESSION_TOKEN: "of-a-session" });
  await keep(place, "piece", "text");
  expect(existsSync(await place.fetch("piece"))).toBe(true);
});
