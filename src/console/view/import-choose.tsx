/** Where a file is dropped or picked. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { chooseFile } from "../state/import.ts";
import { Sheet } from "./illustrations.tsx";

function take(files: FileList | null | undefined): void {
  const file = files?.[0];
  if (file !== undefined) chooseFile(file);
}

export function ImportChoose({ isReading }: { readonly isReading: boolean }): JSX.Element {
  const isOver = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <div
        class="drop"
        data-over={isOver.value ? "" : undefined}
        onDragOver={(event) => {
          event.preventDefault();
          isOver.value = true;
        }}
        onDragLeave={() => {
          isOver.value = false;
        }}
        onDrop={(event) => {
          event.preventDefault();
          isOver.value = false;
          take(event.dataTransfer?.files);
        }}
      >
        <Sheet />
        <h2>Drop a file here</h2>
        <p>A spreadsheet saved as CSV or TSV, lines of JSON (NDJSON), or a JSON array.</p>
        <input
          ref={input}
          class="visually-hidden"
          type="file"
          id="import-file"
          aria-label="File to import"
          tabIndex={-1}
          accept=".csv,.tsv,.txt,.ndjson,.jsonl,.json,text/csv,application/json"
          onChange={(event) => {
            take(event.currentTarget.files);
            event.currentTarget.value = "";
          }}
        />
        <button
          type="button"
          class="button button-main"
          disabled={isReading}
          onClick={() => input.current?.click()}
        >
          {isReading ? "Reading…" : "Choose a file"}
        </button>
      </div>
      <dl class="hints">
        <div>
          <dt>Columns</dt>
          <dd>The first row names them. You see which is which before anything is stored.</dd>
        </div>
        <div>
          <dt>Tags</dt>
          <dd>An empty cell is no tag.</dd>
        </div>
        <div>
          <dt>Twice is once</dt>
          <dd>
            A file may be imported again: what is there already is recognised, and nothing is
            overwritten.
          </dd>
        </div>
      </dl>
    </>
  );
}
