/** The TLS of a connection, and the files that the URL names for it. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { StoreOpenError } from "../../domain/errors.ts";
import type { SslMode, Target } from "../../store-url.ts";

/** As in libpq: `require` verifies only with a root certificate, and `verify-ca` does not check the host name. */
export function tlsOf(target: Target, mode: SslMode): false | Bun.TLSOptions {
  if (mode === "disable") return false;
  const { rootCertificate, certificate, key } = target;
  const isVerified = mode !== "prefer" && (mode !== "require" || rootCertificate !== undefined);
  return {
    rejectUnauthorized: isVerified,
    ...(mode !== "verify-full" ? { checkServerIdentity: () => undefined } : {}),
    ...readPem("ca", "sslrootcert", rootCertificate),
    ...readPem("cert", "sslcert", certificate),
    ...readPem("key", "sslkey", key),
  };
}

function readPem(option: string, name: string, path: string | undefined): Bun.TLSOptions {
  if (path === undefined) return {};
  try {
    return { [option]: readFileSync(path, "utf8") };
  } catch (error) {
    const message = `${name}: ${path} cannot be read: ${(error as Error).message}.`;
    throw new StoreOpenError(message, { cause: error });
  }
}

const PEM_BLOCKS = /-----BEGIN [^]*?-----END [^\n]*/g;
const parseCertificates = (pem: string): unknown =>
  (pem.match(PEM_BLOCKS) ?? [""]).map((block) => new X509Certificate(block));

/** Names the file that the TLS library does not understand. Returns if it is none of them. */
export function refuseBadFile({ rootCertificate, certificate, key }: Target): void {
  for (const [name, path, what, parse] of [
    ["sslrootcert", rootCertificate, "a certificate", parseCertificates],
    ["sslcert", certificate, "a certificate", parseCertificates],
    ["sslkey", key, "a private key without a passphrase", createPrivateKey],
  ] as const)
    try {
      if (path !== undefined) parse(readFileSync(path, "utf8"));
    } catch (error) {
      throw new StoreOpenError(`${name}: ${path} is not ${what} in PEM format.`, { cause: error });
    }
}
