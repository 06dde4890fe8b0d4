/** The current import. It continues while other views are shown. */

import { computed, effect, signal, untracked } from "@preact/signals";
import { nameBatch } from "../../src/domain/change.ts";
import { readData, urlOf } from "../api/page.ts";
import { arrived, gaps } from "../state/feed.ts";
import { whenLeft } from "../state/person.ts";
import { findLimits, texts } from "../state/rules.ts";
import { identity, mayRead, token } from "../state/session.ts";
import { keep, recall } from "../state/storage.ts";
import { keepUnchanged } from "../state/subject.ts";
import { announce, toast } from "../state/toasts.ts";
import { noteBatch } from "../state/writes.ts";
import { t } from "../text/text.ts";
import { CANCEL, type Import, type ImportRequest, type Mapping, type Reading } from "./messages.ts";

/** Undefined until a file is chosen. */
export const current = signal<Import | undefined>(undefined);

/** The worker is storing plants. */
export const isImporting = computed(
  () => current.value?.batch !== undefined && current.value.ending === undefined,
);

/** Whether the import changes plants that differ. One that makes the store match the file does. */
export const updating = signal(false);

let worker: Worker | undefined;

/** Each task has its own worker, so late messages of an earlier one are ignored. */
function start(begun: Import): void {
  worker?.terminate();
  current.value = { ...begun, by: identity.peek()?.name };
  const started = new Worker(urlOf(readData("importWorker")), {
    type: "module",
    // The URL of the script for workbooks, which the worker loads on demand.
    name: urlOf(readData("workbook")),
  });
  started.addEventListener("message", ({ data }: MessageEvent<Partial<Import>>) => {
    if (started === worker) hear(data);
  });
  started.addEventListener("error", () => {
    if (started !== worker) return;
    chooseAnother();
    toast(t.imports.hasFailed);
  });
  const isAllowed = begun.batch !== undefined || mayRead.value;
  started.postMessage({
    ...begun,
    mappings: findMappings(),
    texts,
    limits: findLimits(),
    url: urlOf(),
    token: isAllowed ? token.value : undefined,
  } satisfies ImportRequest);
  worker = started;
}

function hear(change: Partial<Import>): void {
  if (current.value === undefined) return;
  current.value = { ...current.value, ...change };
  const { batch, ending } = current.value;
  if (ending === undefined) return;
  worker?.terminate();
  // Reload the list: the service may keep no journal, or the token may have expired.
  if (batch !== undefined) gaps.value++;
}

/** Guesses how to read the file. */
export function checkFile(file: File): void {
  updating.value = false;
  start({ file, isReading: true });
}

/** Reads the file again; the old preview is shown meanwhile. */
export function readAs(now: Import, reading?: Reading, isWhole = now.isWhole): void {
  const { file, sheets = [], tops = [], columns = [], table = [], rows = [], nameless = 0 } = now;
  const isReading = true;
  start({ file, reading, isWhole, sheets, tops, columns, table, rows, nameless, isReading });
}

/** Also restarts an import, as the same batch: plants that are already stored are recognised. */
export function startImport(now: Import, updates = now.updates): void {
  const { file, reading, ids, columns = [], isWhole, missing, batch = nameBatch(file.name) } = now;
  if (reading !== undefined && columns.length > 0)
    keepMapping({ columns, headings: reading.headings });
  noteBatch(batch);
  start({ file, reading, ids, updates, missing: isWhole ? missing : [], isWhole, batch });
  announce(t.imports.hasStarted);
}

export function startImports(): void {
  // A plant that someone changed since the comparison is not deleted, nor counted.
  effect(() => {
    const changes = arrived.value;
    const now = current.peek();
    if (now?.missing === undefined || now.batch !== undefined) return;
    const { missing, removed = 0 } = now;
    const left = keepUnchanged({ plants: missing }, changes)?.plants ?? missing;
    const changed = missing.length - left.length;
    if (changed > 0) current.value = { ...now, missing: left, removed: removed - changed };
  });
  // A comparison is of one person: it ends with another, and is made again with another token of the same. An import
  // that stopped with its token stays for the next one, whose name may be another.
  effect(() => {
    const now = current.peek();
    if (token.value === undefined || now === undefined || now.batch !== undefined) return;
    if (now.by === identity.peek()?.name) untracked(() => readAs(now, now.reading));
    else chooseAnother();
  });
}

/** The client waits 5 seconds for the answer of the request in flight. */
const CANCEL_MS_MAX = 8_000;

/** The import ends when the rows in flight are answered, so its figures are what is stored. */
export function cancelImport(): void {
  const cancelled = worker;
  cancelled?.postMessage(CANCEL);
  hear({ isEnding: true });
  setTimeout(() => {
    if (cancelled === worker && isImporting.value) hear({ ending: "cancelled", isUnsure: true });
  }, CANCEL_MS_MAX);
}

const MAPPINGS = "mappings";
const MAPPINGS_MAX = 20;

/** The columns of earlier imports, the newest first. They stay on the device: a corrected file may come days later. */
function findMappings(): readonly Mapping[] {
  const found = recall("localStorage", MAPPINGS);
  return Array.isArray(found) ? (found as Mapping[]) : [];
}

function keepMapping(used: Mapping): void {
  const others = findMappings().filter(
    ({ columns }) => JSON.stringify(columns) !== JSON.stringify(used.columns),
  );
  keep("localStorage", MAPPINGS, [used, ...others].slice(0, MAPPINGS_MAX));
}

export function chooseAnother(): void {
  worker?.terminate();
  current.value = undefined;
}

whenLeft(chooseAnother);
