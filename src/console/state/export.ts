/** Downloads of the view that is shown. */

import { signal } from "@preact/signals";
import { type Filter, formatFilter } from "../api/plants.ts";
import { ask, explain, isAbort, Lost } from "../api/service.ts";
import { token } from "./session.ts";
import { toast } from "./toasts.ts";

const types = { csv: "text/csv", ndjson: "application/x-ndjson" } as const;
export type ExportFormat = keyof typeof types;

/** Bytes that have come, while one is under way. */
export const exporting = signal<
  { readonly bytes: number; readonly cancel: () => void } | undefined
>(undefined);

const PIECE_BYTES = 4_000_000;
const REPORT_MS = 100;

/** As a stream, kept in pieces that the browser may put on its disk. A download that breaks off is none. */
export async function exportPlants(filter: Filter, format: ExportFormat): Promise<void> {
  const controller = new AbortController();
  const cancel = (): void => controller.abort();
  exporting.value = { bytes: 0, cancel };
  try {
    const response = await ask(`plants?${formatFilter(filter)}`, {
      signal: controller.signal,
      headers: { accept: types[format] },
    });
    const pieces: Blob[] = [];
    let piece: Uint8Array<ArrayBuffer>[] = [];
    let pieceBytes = 0;
    let bytes = 0;
    let reportedAtMs = 0;
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
    for (let next = await read(reader); !next.done; next = await read(reader)) {
      piece.push(next.value);
      pieceBytes += next.value.length;
      bytes += next.value.length;
      if (pieceBytes > PIECE_BYTES) {
        pieces.push(new Blob(piece));
        piece = [];
        pieceBytes = 0;
      }
      if (performance.now() - reportedAtMs < REPORT_MS) continue;
      reportedAtMs = performance.now();
      exporting.value = { bytes, cancel };
    }
    download(new Blob([...pieces, ...piece], { type: types[format] }), `plants.${format}`);
    toast(`The export is complete: plants.${format}.`);
  } catch (error) {
    // Whoever has signed out does not want to hear of it, and the next one even less.
    if (token.value === undefined) return;
    if (isAbort(error)) toast("The export was cancelled.");
    else
      toast(`The export broke off. ${explain(error)}`, {
        label: "Try again",
        run: () => void exportPlants(filter, format),
      });
  } finally {
    exporting.value = undefined;
  }
}

/** What a reader gives, or that the connection was lost meanwhile. */
async function read<Result>(reader: { read: () => Promise<Result> }): Promise<Result> {
  try {
    return await reader.read();
  } catch (error) {
    throw isAbort(error) ? error : new Lost(error);
  }
}

const FORGET_MS = 60_000;

export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), FORGET_MS);
}
