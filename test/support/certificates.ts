/** Certificates that sign themselves, so each is its own authority. Made by openssl. */

import { copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runSync } from "./processes.ts";

export const hasOpenssl = Bun.which("openssl") !== null;

const configOf = (names: string): string => `[ca]
default_ca = own
[own]
database = index.txt
serial = serial
policy = any
default_md = sha256
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = ${names}
`;

interface Options {
  /** One that exists, instead of a new one. */
  readonly key?: string;
  /** As in 20200101000000Z. */
  readonly from?: string;
  readonly to?: string;
  readonly names?: string;
  readonly curve?: string;
}

const LOCAL = "DNS:localhost,IP:127.0.0.1";

/** `<name>.pem` and `<name>.key`, for localhost and 127.0.0.1, with the name as their common name. */
export function certify(
  folder: string,
  name: string,
  { from, to, key, names = LOCAL, curve = "prime256v1" }: Options = {},
) {
  const run = (command: string): void => {
    const { exitCode, stderr } = runSync(["openssl", ...command.split(" ")], { cwd: folder });
    if (exitCode !== 0) throw new Error(`openssl: ${stderr.toString()}`);
  };
  writeFileSync(join(folder, "ca.cnf"), configOf(names));
  writeFileSync(join(folder, "index.txt"), "");
  writeFileSync(join(folder, "serial"), "01");
  if (key === undefined) run(`ecparam -name ${curve} -genkey -noout -out ${name}.key`);
  else copyFileSync(key, join(folder, `${name}.key`));
  run(`req -new -key ${name}.key -sha256 -out ${name}.csr -subj /CN=${name}`);
  const dates = `-startdate ${from ?? "20200101000000Z"} -enddate ${to ?? "21200101000000Z"}`;
  const files = `-keyfile ${name}.key -in ${name}.csr -out ${name}.pem -outdir .`;
  run(`ca -batch -notext -config ca.cnf -selfsign ${files} ${dates}`);
  return { cert: join(folder, `${name}.pem`), key: join(folder, `${name}.key`) };
}
