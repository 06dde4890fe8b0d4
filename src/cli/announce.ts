/** What a person, or a program, is told when the service has started. */

import packageJson from "../../package.json";
import type { StoreDescription } from "../domain/store.ts";

interface Started {
  readonly url: string;
  readonly store: StoreDescription;
  readonly workers: number;
  /** Made by this very start, and never to be seen again. */
  readonly firstToken: string | undefined;
}

export function announce(started: Started): void {
  process.stdout.write(process.stdout.isTTY ? forPeople(started) : forPrograms(started));
}

export function forPeople({ url, store, workers, firstToken }: Started): string {
  const lines = [
    "",
    `  ${bold("Plant Store")} ${packageJson.version}`,
    "",
    `  ${dim("Address")}     ${url}`,
    `  ${dim("Store")}       ${store.location} (${store.engine})`,
    `  ${dim("Durability")}  ${store.durability}`,
    ...(workers === 1 ? [] : [`  ${dim("Threads")}     ${workers} accept, one writes`]),
    `  ${dim("Console")}     ${url}/`,
    `  ${dim("Reference")}   ${url}/docs`,
    "",
  ];
  if (firstToken !== undefined)
    lines.push(
      "  Your first token is in this command. It is shown only now; keep it.",
      "",
      ...tryIt(url, firstToken).map((line) => `    ${line}`),
      "",
    );
  lines.push(`  ${dim("Ctrl-C stops it.")}`, "");
  return `${lines.join("\n")}\n`;
}

/** The same facts on one line. Standard output is not the log, which never holds a token. */
function forPrograms({ url, store, workers, firstToken }: Started): string {
  const facts = { event: "listening", version: packageJson.version, url, store, workers };
  const first =
    firstToken === undefined ? {} : { token: firstToken, try: tryIt(url, firstToken).join("\n") };
  return `${JSON.stringify({ time: new Date().toISOString(), level: "info", ...facts, ...first })}\n`;
}

function tryIt(url: string, token: string): string[] {
  return [
    `curl ${url}/plants \\`,
    `  -H 'Authorization: Bearer ${token}' \\`,
    "  -H 'Content-Type: application/json' \\",
    `  -d '{"id": 1, "name": "Monstera deliciosa", "tag": "tropical"}'`,
  ];
}

const bold = (text: string): string => style(1, text);
const dim = (text: string): string => style(2, text);

/** https://no-color.org */
function style(code: number, text: string): string {
  return process.env["NO_COLOR"] ? text : `\u001b[${code}m${text}\u001b[0m`;
}
