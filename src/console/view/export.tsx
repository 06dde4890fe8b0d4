/** Sharing and downloading the plants that are listed. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { formatNdjson, type Plant } from "../../domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../../format/csv.ts";
import type { Filter } from "../api/plants.ts";
import { call, explain, isAbort } from "../api/service.ts";
import { formatBytes } from "../state/format.ts";
import { currentFilter, linkTo } from "../state/route.ts";
import { hasSelection, readSelected } from "../state/selection.ts";
import { token } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { Button, Icon, Menu, MenuItem } from "./controls.tsx";

const formats = {
  csv: { type: "text/csv", head: CSV_HEAD, format: formatCsv },
  ndjson: { type: "application/x-ndjson", head: "", format: formatNdjson },
} as const;
type Format = keyof typeof formats;

/** The size of the file so far, while an export is under way. */
export const exporting = signal<
  { readonly bytes: number; readonly cancel: () => void } | undefined
>(undefined);

const PIECE_BYTES = 4_000_000;
const REPORT_MS = 100;

/** An export that stays incomplete saves no file. */
async function exportPlants(filter: Filter, format: Format): Promise<void> {
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  exporting.value = { bytes: 0, cancel };
  try {
    const content = await call((client) =>
      collect(readSelected(client, filter, controller), format, (bytes) => {
        exporting.value = { bytes, cancel };
      }),
    );
    download(content, `plants.${format}`);
    toast(`Export complete: plants.${format}`);
  } catch (error) {
    // After signing out, the next person should not hear of it.
    if (token.value === undefined) return;
    if (isAbort(error)) toast("Export cancelled.");
    else
      toast(`The export failed. ${explain(error)}`, {
        label: "Try again",
        run: () => void exportPlants(filter, format),
      });
  } finally {
    exporting.value = undefined;
  }
}

/** The file, kept in pieces that the browser may move to disk. */
async function collect(
  blocks: AsyncIterable<readonly Plant[]>,
  format: Format,
  report: (bytes: number) => void,
): Promise<Blob> {
  const { type, head, format: formatBlock } = formats[format];
  const encoder = new TextEncoder();
  const pieces: Blob[] = [];
  let chunks = [encoder.encode(head)];
  let chunkBytes = 0;
  let bytes = 0;
  let reportedAtMs = 0;
  for await (const plants of blocks) {
    const chunk = encoder.encode(formatBlock(plants));
    chunks.push(chunk);
    chunkBytes += chunk.length;
    bytes += chunk.length;
    if (chunkBytes > PIECE_BYTES) {
      pieces.push(new Blob(chunks));
      chunks = [];
      chunkBytes = 0;
    }
    if (performance.now() - reportedAtMs < REPORT_MS) continue;
    reportedAtMs = performance.now();
    report(bytes);
  }
  return new Blob([...pieces, ...chunks], { type });
}

const REVOKE_MS = 60_000;

export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_MS);
}

async function copyLink(): Promise<void> {
  try {
    await navigator.clipboard.writeText(new URL(linkTo(undefined), location.href).href);
    toast("Link copied.");
  } catch {
    toast("Can't copy the link here. Copy it from the address bar.");
  }
}

interface ExportMenuProps {
  readonly isOfSelection?: boolean;
}

export function ExportMenu({ isOfSelection = false }: ExportMenuProps): JSX.Element {
  const running = exporting.value;
  if (running !== undefined)
    return (
      <Button onClick={running.cancel}>
        <span class="tabular">{formatBytes(running.bytes)}</span> Cancel
      </Button>
    );
  const filter = currentFilter();
  const isWhole = filter.name === undefined && filter.tag === undefined;
  const what = hasSelection.value ? "the selected" : isWhole ? "all" : "these";
  return (
    <Menu
      label={isOfSelection ? "Export the selection" : "Share and export"}
      buttonClass="button button-icon"
      button={<Icon name="share" />}
    >
      {!isOfSelection && (
        <>
          <MenuItem label="Copy link to this view" onClick={() => void copyLink()} />
          <hr />
        </>
      )}
      <MenuItem
        label={`Export ${what} plants as CSV`}
        note="for spreadsheets"
        onClick={() => void exportPlants(filter, "csv")}
      />
      <MenuItem
        label={`Export ${what} plants as NDJSON`}
        note="for programs"
        onClick={() => void exportPlants(filter, "ndjson")}
      />
    </Menu>
  );
}
