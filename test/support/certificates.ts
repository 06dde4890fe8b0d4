/** Certificate authorities of the test's own, and what they certify. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";

export const hasOpenssl = Bun.which("openssl") !== null;

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"];

export interface Certificate {
  /** Paths of PEM files. */
  readonly certificate: string;
  readonly key: string;
}

export class Authority {
  readonly certificate: string;
  readonly #folder: string;
  readonly #key: string;

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.certificate = join(folder, `${name}.pem`);
    this.#key = join(folder, `${name}.key`);
    const made = ["-keyout", this.#key, "-out", this.certificate];
    openssl("req", "-x509", ...NEW_KEY, ...made, "-subj", `/CN=${name}`, "-days", "2");
  }

  /** For a user by the name, or for a server by the alternative names, as in `DNS:localhost`. */
  certify(name: string, alternativeNames: readonly string[] = []): Certificate {
    const path = (ending: string): string => join(this.#folder, `${name}.${ending}`);
    const [certificate, key, request, extensions] = ["pem", "key", "csr", "ext"].map(path) as [
      string,
      string,
      string,
      string,
    ];
    openssl("req", ...NEW_KEY, "-keyout", key, "-out", request, "-subj", `/CN=${name}`);
    const lines = alternativeNames.length === 0 ? "" : `subjectAltName=${alternativeNames.join()}`;
    writeFileSync(extensions, `basicConstraints=CA:FALSE\n${lines}\n`);
    const signed = ["-in", request, "-out", certificate, "-extfile", extensions, "-days", "2"];
    const by = ["-CA", this.certificate, "-CAkey", this.#key, "-CAcreateserial", "-sha256"];
    openssl("x509", "-req", ...signed, ...by);
    return { certificate, key };
  }
}

function openssl(...args: readonly string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(["openssl", ...args], { stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`openssl ${args[0]}: ${stderr.toString()}`);
}
