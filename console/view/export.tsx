/** Downloads the listed plants, or the selected ones. */

import type { JSX } from "preact";
import { formatNdjson, type Plant } from "../../src/domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../../src/format/csv.ts";
import type { ListFilter } from "../api/plants.ts";
import { baseUrl, call, explain, isAbort } from "../api/service.ts";
import { formatBytes, formatCount } from "../state/format.ts";
import { isWhole, route } from "../state/route.ts";
import { hasSelection, readSelected, work } from "../state/selection.ts";
import { token } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import type * as workbook from "../workbook.ts";
import { Menu } from "./controls.tsx";
import { PRINTED_MAX, printList } from "./printed-list.tsx";

type Blocks = AsyncIterable<readonly Plant[]>;
type Pieces = AsyncIterable<string | Uint8Array<ArrayBuffer>>;

const writeTexts = (format: (plants: readonly Plant[]) => string, head: string) =>
  async function* (blocks: Blocks): Pieces {
    yield head;
    for await (const plants of blocks) yield format(plants);
  };

/** Most visits export no workbook, so its script is loaded on demand. */
export async function loadWorkbookScript(): Promise<typeof workbook> {
  const path = document.documentElement.dataset["workbook"] ?? "";
  return (await import(new URL(path, baseUrl).href)) as typeof workbook;
}

async function* writeWorkbook(blocks: Blocks): Pieces {
  yield* (await loadWorkbookScript()).writeWorkbook(blocks);
}

const formats = {
  xlsx: { label: "Excel workbook", note: "ids as text, exact", write: writeWorkbook },
  csv: { label: "CSV", note: "for other programs", write: writeTexts(formatCsv, CSV_HEAD) },
  /** Without a byte order mark, Excel does not detect UTF-8. */
  "excel.csv": {
    label: "Excel CSV",
    note: "with a byte order mark",
    write: writeTexts(formatCsv, `\ufeff${CSV_HEAD}`),
  },
  ndjson: { label: "NDJSON", note: "lines of JSON", write: writeTexts(formatNdjson, "") },
} as const;

/** An incomplete export saves no file. */
async function exportPlants(filter: ListFilter, format: keyof typeof formats): Promise<void> {
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  work.value = { text: "Exporting…", stop };
  /** The browser may move blobs to disk. */
  const pieces: Blob[] = [];
  let bytes = 0;
  try {
    await call(async (client) => {
      for await (const written of formats[format].write(readSelected(client, filter, controller))) {
        controller.signal.throwIfAborted();
        const piece = new Blob([written]);
        pieces.push(piece);
        bytes += piece.size;
        work.value = { text: `Exporting… ${formatBytes(bytes)}`, stop };
      }
    });
    const name = `plants.${format.replace("excel.", "")}`;
    download(new Blob(pieces), name);
    toast(`Export complete: ${name}`);
  } catch (error) {
    // After a sign-out, the next user must not see the message.
    if (token.value === undefined) return;
    if (isAbort(error)) toast("Export stopped.");
    else {
      const isTooLarge = error instanceof RangeError;
      toast(`The export failed. ${isTooLarge ? error.message : explain(error)}`, {
        label: "Try again",
        run: () => void exportPlants(filter, format),
      });
    }
  } finally {
    work.value = undefined;
  }
}

const REVOKE_MS = 60_000;

export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_MS);
}

/** Exports the selection, if there is one. */
export function ExportMenu(): JSX.Element {
  const { filter } = route.value;
  const what = hasSelection.value ? "the selected" : isWhole(filter) ? "all" : "these";
  return (
    <Menu
      aria-label={hasSelection.value ? "Export the selection" : "Export the list"}
      icon="share"
      text="Export"
      disabled={work.value !== undefined}
    >
      {Object.entries(formats).map(([format, { label, note }]) => (
        <button
          key={format}
          onClick={() => void exportPlants(filter, format as keyof typeof formats)}
        >
          Export {what} plants as {label} <small>{note}</small>
        </button>
      ))}
      <button onClick={() => void printList(filter)}>
        Print {what} plants <small>up to {formatCount(PRINTED_MAX)} rows</small>
      </button>
    </Menu>
  );
}
