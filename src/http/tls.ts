/** The certificate and the key of the listener: read from their files, checked, and read again while the service runs. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import { type Config, ConfigError, settings } from "../config.ts";
import type { Log } from "../observe/log.ts";
import type { TlsState } from "../observe/reporter.ts";

/** In PEM format. Plain data: other threads get it by message. It has the key, so it is never logged. */
export interface TlsPair {
  readonly cert: string;
  readonly key: string;
}

export type Tls = Awaited<ReturnType<typeof openTls>>;

type Files = Pick<Config, "tlsCert" | "tlsKey">;

/** Rejects with a ConfigError if the pair cannot be used. */
export async function openTls(config: Files & Pick<Config, "tlsPollSeconds">, log: Log) {
  let current = await readPair(config);
  requireUsable(current, config);
  if (current.validFromMs > Date.now())
    // Not refused: after a start without a network, a machine's clock may be in the past.
    log.warn("tls_not_valid_yet", { validFrom: new Date(current.validFromMs).toISOString() });
  let problem: string | undefined;
  let timer: Timer | undefined;
  let looking: Promise<void> = Promise.resolve();
  let isLooking = false;

  /** A renewal may replace the two files a moment apart: until both are there, the old pair stays. */
  const look = async (replace: (pair: TlsPair) => Promise<void>): Promise<void> => {
    try {
      const found = await readPair(config);
      const { cert, key } = current.pair;
      if (found.pair.cert !== cert || found.pair.key !== key) {
        refuseFuture(found);
        requireUsable(found, config);
        await replace(found.pair);
        current = found;
        log.info("tls_replaced", { validTo: new Date(found.validToMs).toISOString() });
      }
      problem = undefined;
    } catch (cause) {
      const { message } = cause as Error;
      if (message !== problem)
        log.error(
          "tls_not_replaced",
          cause instanceof ConfigError ? { warning: message } : { cause },
        );
      problem = message;
    }
  };

  const state: TlsState = {
    get expiresAtMs() {
      return current.validToMs;
    },
    get hasProblem() {
      return problem !== undefined;
    },
  };
  return {
    pair: current.pair,
    state,
    names: current.names,
    /** Polls: a renewal that renames files, or a mounted secret that is swapped, may not be reported by the system. */
    watch(replace: (pair: TlsPair) => Promise<void>): void {
      timer = setInterval(() => {
        if (isLooking) return;
        isLooking = true;
        looking = look(replace).finally(() => (isLooking = false));
      }, config.tlsPollSeconds * 1000).unref();
    },
    async close(): Promise<void> {
      clearInterval(timer);
      await looking;
    },
  };
}

async function readPair(files: Files) {
  const cert = await readPem("tlsCert", files);
  const key = await readPem("tlsKey", files);
  // The first one is the service's own; those of the authorities between it and the root follow.
  const [own] = parseOr(() => parseCertificates(cert), "tlsCert", files, "a certificate");
  if (key.includes("ENCRYPTED")) refuse("tlsKey", files, "has a passphrase; it must not have one");
  const privateKey = parseOr(() => createPrivateKey(key), "tlsKey", files, "a private key");
  if (!own.checkPrivateKey(privateKey))
    refuse("tlsKey", files, `does not belong to the first certificate in ${files.tlsCert}`);
  const validToMs = Date.parse(own.validTo);
  if (validToMs <= Date.now())
    refuse("tlsCert", files, `has expired: it was valid until ${toIso(validToMs)}`);
  return {
    pair: { cert, key },
    validFromMs: Date.parse(own.validFrom),
    validToMs,
    names: listNames(own),
  };
}

function refuseFuture({ validFromMs }: { readonly validFromMs: number }): void {
  if (validFromMs > Date.now())
    throw new ConfigError(`The new certificate is not valid before ${toIso(validFromMs)}.`);
}

/** The listener takes fewer kinds of keys than the parser does. */
function requireUsable({ pair }: { readonly pair: TlsPair }, files: Files): void {
  try {
    createSecureContext(pair);
  } catch (error) {
    const { code = "no reason" } = error as NodeJS.ErrnoException;
    refuse("tlsCert", files, `cannot be used for TLS (${code})`);
  }
}

const toIso = (ms: number): string => new Date(ms).toISOString();

/** Far more than the longest chain. A device or a wrong file is not read to its end. */
const PEM_BYTES_MAX = 1_048_576;

async function readPem(name: keyof Files, files: Files): Promise<string> {
  let isFile = false;
  try {
    const facts = await stat(files[name]);
    isFile = facts.isFile() && facts.size <= PEM_BYTES_MAX;
    if (isFile) return await readFile(files[name], "latin1");
  } catch (error) {
    const [, what = "cannot be read"] = /^E[A-Z0-9]+: ([^,]+)/.exec((error as Error).message) ?? [];
    return refuse(name, files, `cannot be read: ${what}`);
  }
  return refuse(name, files, "is not a file in PEM format");
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/g;

function parseCertificates(pem: string): [X509Certificate, ...X509Certificate[]] {
  const [first = "", ...others] = pem.match(PEM_CERTIFICATE) ?? [];
  if (pem.replaceAll(PEM_CERTIFICATE, "").includes("-----BEGIN CERT"))
    throw new Error("The last certificate is cut off.");
  return [new X509Certificate(first), ...others.map((block) => new X509Certificate(block))];
}

function parseOr<Parsed>(
  parse: () => Parsed,
  name: keyof Files,
  files: Files,
  what: string,
): Parsed {
  try {
    return parse();
  } catch {
    // Without the library's message, which might quote the file.
    return refuse(name, files, `is not ${what} in PEM format`);
  }
}

function refuse(name: keyof Files, files: Files, reason: string): never {
  throw new ConfigError(`${settings[name].env}: ${files[name]} ${reason}.`);
}

/** Host names and addresses that the certificate is for, as in a URL. */
function listNames({ subjectAltName = "" }: X509Certificate): readonly string[] {
  return [...subjectAltName.matchAll(/(?:DNS|IP Address):([^\s,*]+)(?=,|$)/g)].map(
    ([, name = ""]) => (name.includes(":") ? new URL(`https://[${name}]`).hostname : name),
  );
}
