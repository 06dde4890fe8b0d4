/**
 * Generates the tables of settings, limits, errors, changes and metrics in docs/ and in the client. `npm run format`
 * runs it, and a test fails if a table is stale.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import type { Client } from "../client/client.ts";
import { fixedLimits, resolveConfig, settings } from "../src/config.ts";
import { shownParts } from "../src/domain/change.ts";
import { catalogue } from "../src/domain/errors.ts";
import type { Store } from "../src/domain/store.ts";
import type { Endpoint, Endpoints } from "../src/http/endpoint.ts";
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

/** The operations that each method of the client calls. */
export const calls: Readonly<Record<keyof Omit<Client, "request">, readonly string[]>> = {
  create: ["createPlant"],
  get: ["readPlant"],
  replace: ["replacePlant"],
  patch: ["patchPlant"],
  remove: ["removePlant"],
  listPage: ["listPlants"],
  listSortedPage: ["listPlants"],
  list: ["listPlants"],
  export: ["listPlants"],
  exportBlocks: ["listPlants"],
  countPlants: ["countPlants"],
  listTagPage: ["listTags"],
  countTagPage: ["countTags"],
  listTags: ["listTags"],
  createBatch: ["createPlants"],
  createAll: ["createPlants"],
  upsertBatch: ["createPlants"],
  upsertAll: ["createPlants"],
  writeAtomic: ["createPlants"],
  previewPatch: ["patchPlants"],
  previewRemoval: ["removePlants"],
  patchMatching: ["patchPlants", "listJobs"],
  removeMatching: ["removePlants", "listJobs"],
  upsertByJob: ["createPlants", "listJobs"],
  followJob: ["patchPlants", "removePlants", "createPlants", "revertChanges", "listJobs"],
  listJobs: ["listJobs"],
  findJob: ["listJobs"],
  stopJob: ["stopJob"],
  listChangePage: ["listChanges"],
  countChangePage: ["countChanges"],
  findNewestChange: ["listChanges"],
  changes: ["listChanges"],
  previewRevert: ["revertChanges"],
  revert: ["revertChanges", "listJobs"],
  describeToken: ["describeToken"],
  listTokenPage: ["listTokens"],
  listTokens: ["listTokens"],
  createToken: ["createToken"],
  revokeToken: ["revokeToken"],
  listWebhooks: ["listWebhooks"],
  getWebhook: ["readWebhook"],
  addWebhook: ["addWebhook"],
  removeWebhook: ["removeWebhook"],
  testWebhook: ["testWebhook"],
  pauseWebhook: ["pauseWebhook"],
  resumeWebhook: ["resumeWebhook"],
  skipWebhook: ["skipWebhook"],
  replayWebhook: ["replayWebhook"],
  rotateWebhook: ["rotateWebhook"],
};

/** What the store holds, or does not hold: 3xxx. Any operation may be refused for the rest. */
function formatRefusals(): string {
  const operations: Endpoints = Object.assign({}, ...Object.values(listOperations(config)));
  const lines = Object.entries(calls).map(([method, names]) => {
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
  const endpoints = Object.values(listOperations(config)).flatMap(Object.values<Endpoint>);
  const tools = createTools(endpoints);
  return formatTable(
    ["tool", "what it does", "operation", "scopes"],
    ["---", "---", "---", "---"],
    ...Object.entries(tools).map(([name, { scopes }]) => {
      const { at, tool } = endpoints.find((each) => each.tool?.name === name) ?? {};
      return [
        `\`${name}\``,
        tool?.title,
        `\`${at}\``,
        scopes.map((each) => `\`${each}\``).join(", "),
      ];
    }),
  );
}

const tables: Readonly<Record<string, () => string | Promise<string>>> = {
  settings: formatSettings,
  limits: formatLimits,
  errors: formatErrors,
  errorNames: formatErrorNames,
  refusals: formatRefusals,
  changeParts: formatChangeParts,
  changeMembers: formatChangeMembers,
  metrics: formatMetrics,
  tools: formatTools,
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
    const table = await tables[name]?.();
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
