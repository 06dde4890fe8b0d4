/** The rows that were refused, or will be, and a file to correct them in. */

import type { JSX } from "preact";
import { fill, t } from "../text/text.ts";
import { Button, Table } from "../view/controls.tsx";
import { download, loadWorkbookScript } from "../view/export.tsx";
import type { Import } from "./messages.ts";

export function RefusedRows({ now }: { readonly now: Import }): JSX.Element {
  const { reading, firstRefused = [], refused = 0, rejects = new Blob() } = now;
  const isWorkbook = reading?.kind === "xlsx";
  return (
    <div class="stack">
      <div class="section-head">
        <h2>{t.imports.refusedRows}</h2>
        <Button
          kind="small"
          onClick={() =>
            isWorkbook
              ? void saveWorkbook(rejects)
              : download(rejects, `refused.${reading?.kind ?? "txt"}`)
          }
        >
          {fill(t.imports.downloadAll, { count: refused })}
        </Button>
      </div>
      <Table
        label={t.imports.refusedRows}
        heads={[isWorkbook ? t.imports.row : t.imports.line, t.imports.reason, t.imports.content]}
        keys={firstRefused.map(({ line, text }) => `${line} ${text}`)}
        rows={firstRefused.map(({ line, reason, text }) => [
          <span class="digits">{line}</span>,
          reason,
          <span class="digits faint cut">{text}</span>,
        ])}
      />
      {refused > firstRefused.length && (
        <p class="faint">{fill(t.imports.firstShown, { count: firstRefused.length })}</p>
      )}
    </div>
  );
}

/** The refused rows of a workbook are kept as CSV until they are saved. */
async function saveWorkbook(csv: Blob): Promise<void> {
  const { writeRows } = await loadWorkbookScript();
  download(new Blob(await Array.fromAsync(writeRows(csv, t.tools.sheetOfRefused))), "refused.xlsx");
}
