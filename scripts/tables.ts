/**
 * Generates the tables of operations, settings, limits, errors, changes, metrics, tools, commands and methods in docs/
 * and in the client. `npm run format` runs it, and a test fails if a table is stale.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import type { Command } from "commander";
import { Client } from "../client/client.ts";
import { Connection } from "../client/connection.ts";
import { firstOf } from "../src/cli/fields.ts";
import { createProgram } from "../src/cli/program.ts";
import { fixedLimits, resolveConfig, settings } from "../src/config.ts";
import { shownParts } from "../src/domain/change.ts";
import { catalogue } from "../src/domain/errors.ts";
import type { Store } from "../src/domain/store.ts";
import type { Endpoints } from "../src/http/endpoint.ts";
import { listOperations } from "../src/http/operations.ts";
import { createTools } from "../src/http/tools.ts";
import { createReporter } from "../src/observe/reporter.ts";

const root = join(import.meta.dir, "..");
const { config } = resolveConfig({}, {});

const formatTable = (...rows: readonly (readonly unknown[])[]): string =>
  rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n");

const formatSettings = (): string =>
  formatTable(
    ["variable", "default", "meaning"],
    ["---", "---", "---"],
    ...Object.values(settings).map(({ env, default: fallback, meaning }) => [
      `\`${env}\``,
      fallback ? `\`${fallback}\`` : "–",
      meaning,
    ]),
  );

const formatLimits = (): string =>
  formatTable(
    ["limit", "value", "meaning"],
    ["---", "---", "---"],
    ...Object.entries(fixedLimits).map(([name, { value, meaning }]) => [
      `\`${name}\``,
      String(value),
      meaning,
    ]),
  );

const formatErrors = (): string =>
  formatTable(
    ["code", "name", "status", "meaning"],
    ["---", "---", "---", "---"],
    ...Object.entries(catalogue).map(([name, { code, status, meaning, retry }]) => [
      code,
      `\`${name}\``,
      retry ? `${status} ↻` : status,
      meaning,
    ]),
  );

/** For the client, which has nothing of the service in it. */
const formatErrorNames = (): string =>
  Object.entries(catalogue)
    .map(([name, { code }]) => `  ${code}: "${name}",`)
    .join("\n");

const COMMENT =
  /^ *\/\*\*\n((?: *\*(?!\/).*\n)*?) *\* @example\n((?: *\*(?!\/).*\n)+) *\*\/\n *(?:async )?\*?(?:export type )?(\w+)/gm;

interface Comment {
  readonly about: string;
  readonly example: string;
}

/** The comments of client/ that have an example, by what they are about. */
export const clientComments: ReadonlyMap<string, Comment> = new Map(
  [...new Glob("client/*.ts").scanSync(root)].flatMap((file) =>
    Array.from(readFileSync(join(root, file), "utf8").matchAll(COMMENT), (found) => {
      const [, about = "", example = "", name = ""] = found.map((part) =>
        part.replaceAll(/^ *\* ?/gm, ""),
      );
      return [name, { about, example }] as const;
    }),
  ),
);

interface Method {
  /** What it does. */
  readonly words: string;
  /** The operations that it calls. Its example calls the first. */
  readonly operations: readonly string[];
}

/** The methods of the client, noun by noun. One without a comment is missing in `Refusals`, which does not compile. */
export const methods: ReadonlyMap<string, Method> = new Map(
  listMethods(Client.prototype).flatMap((name) => {
    const { about } = clientComments.get(name) ?? {};
    if (about === undefined) return [];
    const [words = "", called] = about.split("@operation ");
    if (called === undefined || words === "")
      throw new Error(`client/: the comment of ${name} lacks its words, or its @operation`);
    return [
      [
        name,
        { words: firstOf(words.replaceAll(/\s+/g, " ")), operations: called.trim().split(", ") },
      ],
    ];
  }),
);

/** Each noun extends that of the noun before. The first extends the connection. */
function listMethods(noun: object): string[] {
  if (noun === Connection.prototype) return [];
  return [
    ...listMethods(Object.getPrototypeOf(noun) as object),
    ...Object.getOwnPropertyNames(noun),
  ];
}

const operations: Endpoints = Object.assign({}, ...Object.values(listOperations(config)));

/** What the store holds, or does not hold: 3xxx. Any operation may be refused for the rest. */
function formatRefusals(): string {
  const lines = Array.from(methods, ([method, { operations: names }]) => {
    const failures = new Set<string>();
    for (const name of names) {
      if (operations[name] === undefined) throw new Error(`${method}: there is no ${name}`);
      operations[name].fails?.forEach((failure) => failures.add(failure));
    }
    const found = Object.entries(catalogue)
      .filter(([, error]) => Math.trunc(error.code / 1000) === 3)
      .filter(([, error]) => error.failures.some((failure) => failures.has(failure)))
      .map(([name]) => `"${name}"`);
    // What ended a job is in its report.
    if (names.includes("listJobs") && names.length > 1) found.push('"job_stopped"');
    const line = `  readonly ${method}: ${found.join(" | ") || "never"};`;
    return line.length <= 100
      ? line
      : `  readonly ${method}:\n${found.map((name) => `    | ${name}`).join("\n")};`;
  });
  return lines.join("\n");
}

const formatMethods = (): string =>
  formatTable(
    ["method", "what it does"],
    ["---", "---"],
    ...Array.from(methods, ([name, { words }]) => [`\`${name}\``, words]),
  );

const quote = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");

/** With a link to the section of the page that has the words of the operation, or its noun, as its heading. */
function formatOperations(document: string): string {
  const page = document.toLowerCase();
  return formatTable(
    ["operation", "what it does", "scopes", "answer"],
    ["---", "---", "---", "---"],
    ...Object.values(operations)
      // It is in the sentence above.
      .filter(({ at }) => at !== "GET /openapi.json")
      .map(({ at, summary, scopes, also, answers }) => {
        const titles = [summary.toLowerCase(), at.split("/")[1] ?? ""];
        const section = titles.find((title) => page.includes(`# ${title}\n`))?.replaceAll(" ", "-");
        const needs = scopes === undefined ? "none" : quote(scopes) || "any";
        return [
          section === undefined ? `\`${at}\`` : `[\`${at}\`](#${section})`,
          summary,
          also === undefined ? needs : `${needs}; sometimes also ${quote(also.scopes)}`,
          Object.keys(answers).join(", "),
        ];
      }),
  );
}

const formatCommands = (): string =>
  formatTable(
    ["command", "what it does"],
    ["---", "---"],
    ...listCommands(createProgram(), "plantstore"),
  );

function* listCommands(group: Command, before: string): Generator<string[], void> {
  for (const command of group.createHelp().visibleCommands(group)) {
    if (command.name() === "help") continue;
    const name = `${before} ${command.name()}`;
    yield [`\`${name}\``, firstOf(command.description())];
    yield* listCommands(command, name);
  }
}

const formatChangeParts = (): string =>
  formatTable(
    ["member", "meaning"],
    ["---", "---"],
    ...shownParts.map(({ name, meaning }) => [`\`${name}\``, meaning]),
  );

const formatChangeMembers = (): string =>
  shownParts
    .map(({ name, meaning }) => `  /** ${meaning} */\n  readonly ${name}?: string;`)
    .join("\n");

/** From the HELP lines of a reporter that has counted nothing. */
async function formatMetrics(): Promise<string> {
  const store = {
    description: { engine: "", location: "", durability: "" },
    readFigures: async () => ({}),
    countPlants: async () => ({ count: 0, exact: true }),
    measureBytes: async () => 0,
    countExpiring: async () => 0,
  } as unknown as Store;
  const reporter = createReporter([], {
    store,
    limits: config,
    checkReady: async () => undefined,
    kindOf: () => undefined,
  });
  const text = await reporter.formatMetrics();
  const families = text.matchAll(/^# HELP (\S+) (.*)$/gm);
  return formatTable(
    ["metric", "meaning"],
    ["---", "---"],
    ...[...families].map(([, name, meaning]) => [`\`${name}\``, meaning]),
  );
}

function formatTools(): string {
  const endpoints = Object.values(operations);
  const tools = createTools(endpoints);
  return formatTable(
    ["tool", "what it does", "operation", "scopes"],
    ["---", "---", "---", "---"],
    ...Object.entries(tools).map(([name, { scopes }]) => {
      const { at, tool } = endpoints.find((each) => each.tool?.name === name) ?? {};
      return [`\`${name}\``, tool?.title, `\`${at}\``, quote(scopes)];
    }),
  );
}

/** Each gets the document that it is in. */
const tables: Readonly<Record<string, (document: string) => string | Promise<string>>> = {
  settings: formatSettings,
  limits: formatLimits,
  errors: formatErrors,
  errorNames: formatErrorNames,
  refusals: formatRefusals,
  changeParts: formatChangeParts,
  changeMembers: formatChangeMembers,
  metrics: formatMetrics,
  tools: formatTools,
  operations: formatOperations,
  methods: formatMethods,
  commands: formatCommands,
};

/** What has tables. */
export const generated: readonly string[] = [
  ...new Glob("docs/*.md").scanSync(root),
  "client/errors.ts",
  "client/changes.ts",
];

const REGION = /((?:<!--|\/\*) table: (\w+) (?:-->|\*\/))[^]*?( *(?:<!--|\/\*) end)/g;

/** Returns the document with regenerated tables. */
export async function fillTables(document: string): Promise<string> {
  let filled = document;
  for (const [region, begin, name = "", end] of document.matchAll(REGION)) {
    const table = await tables[name]?.(document);
    if (table === undefined) throw new Error(`there is no table ${name}`);
    filled = filled.replace(region, () => `${begin}\n\n${table}\n\n${end}`);
  }
  return filled;
}

if (import.meta.main)
  for (const name of generated) {
    const path = join(root, name);
    const text = readFileSync(path, "utf8");
    const filled = await fillTables(text);
    if (filled !== text) writeFileSync(path, filled);
  }
