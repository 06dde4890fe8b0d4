/** Sharing and downloading the plants that are listed. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { type Filter, formatFilter } from "../api/plants.ts";
import { ask, explain, isAbort, receive } from "../api/service.ts";
import { formatBytes } from "../state/format.ts";
import { currentFilter, linkTo } from "../state/route.ts";
import { token } from "../state/session.ts";
import { toast } from "../state/toasts.ts";
import { Button, Icon, Menu } from "./controls.tsx";

const types = { csv: "text/csv", ndjson: "application/x-ndjson" } as const;

/** The bytes received so far, while an export is under way. */
export const exporting = signal<
  { readonly bytes: number; readonly cancel: () => void } | undefined
>(undefined);

const PIECE_BYTES = 4_000_000;
const REPORT_MS = 100;

/** Keeps the stream in pieces that the browser may move to disk. A stream that breaks off saves no file. */
async function exportPlants(filter: Filter, format: keyof typeof types): Promise<void> {
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  exporting.value = { bytes: 0, cancel };
  try {
    const response = await ask(`plants?${formatFilter(filter)}`, {
      signal: controller.signal,
      headers: { accept: types[format] },
    });
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
    const pieces: Blob[] = [];
    let chunks: Uint8Array<ArrayBuffer>[] = [];
    let chunkBytes = 0;
    let bytes = 0;
    let reportedAtMs = 0;
    for (;;) {
      const { done, value } = await receive(() => reader.read());
      if (done) break;
      chunks.push(value);
      chunkBytes += value.length;
      bytes += value.length;
      if (chunkBytes > PIECE_BYTES) {
        pieces.push(new Blob(chunks));
        chunks = [];
        chunkBytes = 0;
      }
      if (performance.now() - reportedAtMs < REPORT_MS) continue;
      reportedAtMs = performance.now();
      exporting.value = { bytes, cancel };
    }
    download(new Blob([...pieces, ...chunks], { type: types[format] }), `plants.${format}`);
    toast(`Export complete: plants.${format}`);
  } catch (error) {
    // After signing out, the next person should not hear of it.
    if (token.value === undefined) return;
    if (isAbort(error)) toast("Export cancelled.");
    else
      toast(`The export broke off. ${explain(error)}`, {
        label: "Try again",
        run: () => void exportPlants(filter, format),
      });
  } finally {
    exporting.value = undefined;
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

async function copyLink(): Promise<void> {
  try {
    await navigator.clipboard.writeText(new URL(linkTo(undefined), location.href).href);
    toast("Link copied.");
  } catch {
    toast("The link can't be copied here. Take it from the address bar.");
  }
}

export function ExportMenu(): JSX.Element {
  const running = exporting.value;
  if (running !== undefined)
    return (
      <Button onClick={running.cancel}>
        <span class="tabular">{formatBytes(running.bytes)}</span> Cancel
      </Button>
    );
  const filter = currentFilter();
  const what = filter.name === undefined && filter.tag === undefined ? "all" : "these";
  return (
    <Menu label="Share and export" buttonClass="button button-icon" button={<Icon name="share" />}>
      <button type="button" class="menu-item" onClick={() => void copyLink()}>
        Copy link to this view
      </button>
      <hr />
      <button type="button" class="menu-item" onClick={() => void exportPlants(filter, "csv")}>
        Export {what} plants as CSV
        <small>for spreadsheets</small>
      </button>
      <button type="button" class="menu-item" onClick={() => void exportPlants(filter, "ndjson")}>
        Export {what} plants as NDJSON
        <small>for programs</small>
      </button>
    </Menu>
  );
}
