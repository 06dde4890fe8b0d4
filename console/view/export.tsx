/** Downloads the listed plants, or the selected ones. */

import type { JSX } from "preact";
import { formatNdjson, type Plant } from "../../src/domain/plant.ts";
import { CSV_HEAD, formatCsv } from "../../src/format/csv.ts";
import { loadScript } from "../api/page.ts";
import { call, explain, isAbort } from "../api/service.ts";
import { formatBytes } from "../state/format.ts";
import { work } from "../state/action.ts";
import { isWhole, route } from "../state/route.ts";
import { captureListed, hasSelection } from "../state/selection.ts";
import { token } from "../state/session.ts";
import { readSubject, type Subject } from "../state/subject.ts";
import { toast } from "../state/toasts.ts";
import { fill, t } from "../text/text.ts";
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
export const loadWorkbookScript = (): Promise<typeof workbook> => loadScript("workbook");

async function* writeWorkbook(blocks: Blocks): Pieces {
  yield* (await loadWorkbookScript()).writeWorkbook(blocks, {
    name: t.tools.sheetOfPlants,
    describeFullSheet: (max) => fill(t.tools.sheetFull, { max }),
    describeFullCell: (max, { id }, characters) =>
      fill(t.tools.cellFull, { max, id: String(id), characters }),
  });
}

const formats = {
  xlsx: writeWorkbook,
  csv: writeTexts(formatCsv, CSV_HEAD),
  /** Without a byte order mark, Excel does not detect UTF-8. */
  "excel.csv": writeTexts(formatCsv, `\ufeff${CSV_HEAD}`),
  ndjson: writeTexts(formatNdjson, ""),
} as const;

type Format = keyof typeof formats;

/** An incomplete export saves no file. */
async function exportPlants(about: Subject, format: Format): Promise<void> {
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  work.value = { text: t.tools.exporting, stop };
  /** The browser may move blobs to disk. */
  const pieces: Blob[] = [];
  let bytes = 0;
  try {
    await call(async (client) => {
      for await (const written of formats[format](readSubject(client, about, controller))) {
        controller.signal.throwIfAborted();
        const piece = new Blob([written]);
        pieces.push(piece);
        bytes += piece.size;
        work.value = { text: fill(t.tools.exportingSize, { size: formatBytes(bytes) }), stop };
      }
    });
    const name = `plants.${format.replace("excel.", "")}`;
    download(new Blob(pieces), name);
    toast(fill(t.tools.exported, { file: name }));
  } catch (error) {
    // After a sign-out, the next user must not see the message.
    if (token.value === undefined) return;
    if (isAbort(error)) toast(t.tools.exportStopped);
    else {
      const reason = error instanceof RangeError ? error.message : explain(error);
      toast(fill(t.tools.exportFailed, { reason }), {
        label: t.shared.tryAgain,
        run: () => void exportPlants(about, format),
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
  const what = hasSelection.value ? "selected" : isWhole(filter) ? "all" : "listed";
  return (
    <Menu
      aria-label={hasSelection.value ? t.tools.exportSelection : t.tools.exportList}
      icon="share"
      text={t.tools.export}
      disabled={work.value !== undefined}
    >
      {(Object.keys(formats) as Format[]).map((format) => (
        <button key={format} onClick={() => void exportPlants(captureListed(), format)}>
          {fill(t.tools.exportAs[what], { format: t.tools.formats[format] })}{" "}
          <small>{t.tools.formatNotes[format]}</small>
        </button>
      ))}
      <button onClick={() => void printList(filter)}>
        {t.tools.printPlants[what]} <small>{fill(t.tools.rowsMax, { count: PRINTED_MAX })}</small>
      </button>
    </Menu>
  );
}
